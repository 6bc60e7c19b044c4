"""The searched space that a certificate holds for: each dimension of the search with its values, and what is left out.

Values are those that the search enumerates for the request (`planner.space.shapes`), so a pinned dimension has one value. What
a plan (`sim.plan.plan`) could have and the search leaves out is listed as short texts; a text about a dimension begins with the
dimension's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

from planner.bounds.orders import CLASSES
from planner.request import Request, Wishes
from planner.search.left_out import TRIED, by_stage, recomputed
from planner.search.mixed import ORDERS, SHORT
from planner.space.lengths import shortest
from planner.space.runnable import recomputes_blocks
from planner.space.sequences_and_experts import short_degree
from planner.space.shape import Shape
from planner.space.shapes import overlaps, recomputations, searched, variants
from planner.space.tied_shards import FLAG, with_tied_shards
from planner.space.tried_offload import may_offload
from planner.space.unlike_degrees import may_differ
from planner.space.unlike_tp import by_memory, unlike_shapes
from sim.errors import Infeasible
from sim.plan import schedules
from sim.plan.certificate import Axis
from sim.plan.parallel_config import BLOCK, RECOMPUTE, ZERO_STAGES

ACROSS = "stages across clusters"
"""Name of the axis of plans with mixed stages, which have a bound of their own."""
UNEQUAL = "unequal replicas"
"""Name of the axis of dp that does not divide the batch."""
UNLIKE = "stage_tp"
"""Name of the axis of tp that differs between device types."""
WORDS = {BLOCK: "as few layers of each stage as memory requires"}
"""Recomputation of shapes in words, where its name does not say what it is."""
ALONE = "as few layers as memory requires, without a pipeline only"
"""The same where a target has it in pipelines of one stage only."""
RUNS = 6
"""Runs of consecutive numbers that are listed; of more runs, only the least and the largest number and how many there are."""


def axes(request: Request) -> tuple[Axis, ...]:
    """The dimensions of the search with their values for a request. Raises Infeasible where there is no shape."""
    shapes = _shapes(request)
    sampled = _sampled(request, shapes)
    found = (
        Axis("tp", _values(shapes, "tp")),
        Axis("pp", (_lengths(request, shapes),)),
        *(Axis(name, _values(shapes, name)) for name in ("dp", "cp", "ep")),
        *((Axis("etp", _expert_tp(shapes)),) if any(shape.etp for shape in shapes) else ()),
        Axis("microbatch_size", _values(shapes, "microbatch_size")),
        *_unequal(request, shapes),
        *_unlike(request, shapes),
        *(Axis(name, _values(sampled, name)) for name in ("schedule", "vpp", "zero_stage")),
        *((Axis("zero_shard_size", (size,)),) if (size := request.wishes.zero_shard_size) else ()),
        *((Axis("offload", request.wishes.offloaded),) if request.wishes.offloaded else ()),
        Axis("recompute", tuple(_recomputations(request, shapes))),
        Axis("overlap_param_gather", tuple(dict.fromkeys("on" if one.overlap_param_gather else "off" for one in sampled))),
        *((Axis(FLAG, ("on",)),) if any(one.tied_shards for one in sampled) else ()),
        Axis("layers", ("any split",)),
        *((Axis("target", (request.target.name,)),) if request.target is not None else ()),
        *((Axis("required", words),) if (words := tuple(request.limits.words())) else ()),
        Axis("placement", tuple(_placements(request))),
    )
    return found + _across(request, sampled)


def _recomputations(request: Request, shapes: Iterable[Shape]) -> Iterator[str | int]:
    """The kinds of recomputation, in words."""
    words = WORDS if recomputes_blocks(request)[1] else {BLOCK: ALONE}
    yield from (words.get(str(value), value) for value in _values(shapes, "recompute"))


def outside(request: Request, tried: bool = False, every_step: bool = False) -> tuple[str, ...]:
    """What a plan could have and the search leaves out: values of dimensions that are not pinned, then rules in words.

    tried: plans with another cp (`short_degree`) and, unless `every_step` is wanted, with unlike degrees, the optimizer on the
    hosts or recomputed modules are tried, without a proof, where that may be (`planner.space.unlike_degrees`, `tried_offload`,
    `tried_modules`)."""
    shapes = _shapes(request)
    sampled = _sampled(request, shapes)
    rows = TRIED if tried and not every_step and may_differ(request) else "(one dp for all stages)"
    beside = tried and not every_step and may_offload(request)
    return (
        *_other_values(request, shapes, sampled, tried, beside),
        *_partly(sampled),
        *_other_rules(request, shapes, sampled, rows),
        *by_stage(request, tried and not every_step),
        *recomputed(request, any(shape.recompute == BLOCK for shape in shapes), tried and not every_step),
    )


def _shapes(request: Request) -> list[Shape]:
    """The searched shapes; those of mixed stages where no others have room."""
    try:
        every = list(searched(request))
    except Infeasible:
        every = list(searched(request, across=True, every_size=False, unequal=False))
    return [with_tied_shards(request, shape) for shape in every]


def _unequal(request: Request, shapes: Iterable[Shape]) -> Iterator[Axis]:
    """The axis of dp that does not divide the batch, if one is searched."""
    unequal = [shape for shape in shapes if not shape.divides(request.workload)]
    if unequal:
        found = list(variants(request, unequal[0]))
        names = [", ".join(map(str, _values(found, name))) for name in ("schedule", "zero_stage")]
        degrees = listed(sorted({shape.dp for shape in unequal}))
        yield Axis(UNEQUAL, (f"dp {degrees}: some replicas have one microbatch more; under {names[0]} with ZeRO {names[1]}",))


def _unlike(request: Request, shapes: Iterable[Shape]) -> Iterator[Axis]:
    """The axis of tp that differs between device types, if one is searched."""
    if next(unlike_shapes(request, shapes), None) is not None:
        ample, scarce = (", ".join(dict.fromkeys(c.node.device.name for c in part)) for part in by_memory(request))
        yield Axis(UNLIKE, (f"smaller on {ample} than on {scarce}",))


def listed(values: Sequence[int]) -> str:
    """Ascending numbers as text, with consecutive ones as a run: `3, 5 to 7`."""
    by_run = groupby(enumerate(values), lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in run] for _, run in by_run]
    if len(runs) > RUNS:
        return f"{values[0]} to {values[-1]} ({len(values)} values)"
    texts = ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run) for run in runs)
    return ", ".join(text for run in texts for text in run)


def _sampled(request: Request, shapes: Iterable[Shape]) -> list[Shape]:
    """All variants of one shape of each kind, for a kind decides which schedules and ZeRO stages there are."""
    kinds: dict[tuple[object, ...], Shape] = {}
    for shape in shapes:
        kind = shape.slots > 1, shape.recompute, shape.cp > 1, shape.ep > 1, shape.etp, shape.divides(request.workload)
        kinds.setdefault(kind, shape)
    return [one for shape in kinds.values() for variant in variants(request, shape) for one in overlaps(variant)]


def _expert_tp(shapes: Iterable[Shape]) -> tuple[str | int, ...]:
    """The tensor-parallel degrees of experts that are searched."""
    return tuple(dict.fromkeys("tp" if shape.etp is None else shape.etp for shape in shapes))


def _values(shapes: Iterable[Shape], name: str) -> tuple[str | int, ...]:
    """The values of a dimension that shapes have: numbers ascending, words in the order of the search."""
    found = dict.fromkeys(getattr(shape, name) for shape in shapes)
    return tuple(found) if any(isinstance(value, str) for value in found) else tuple(sorted(found))


def _lengths(request: Request, shapes: Iterable[Shape]) -> str | int:
    """Lengths of pipelines as text: the pinned one, else from 1 to as many stages as layers and slots allow."""
    if request.wishes.pp:
        return request.wishes.pp
    widths = {(shape.tp, shape.slots) for shape in shapes}
    stages = max(
        sum(cluster.nodes * (cluster.node.count // tp) // slots for cluster in request.clusters()) for tp, slots in widths
    )
    most = max(min(request.workload.model.layers, stages), 1)
    allowed = [pp for pp in range(1, most + 1) if request.limits.allows("pp", pp)] or [most]
    return f"{allowed[0]} to {allowed[-1]}" if len(allowed) > 1 else allowed[0]


def _placements(request: Request) -> Iterator[str]:
    many = len(list(request.clusters()))
    order = "in any order" if many <= CLASSES else "in the order of the cheapest borders, both ways"
    sides = "stages side by side" if many == 1 else f"stages of a cluster side by side, clusters {order}"
    yield f"whole stages on one cluster each; {sides}; nodes filled in order"
    if shortest(request) == 1:
        yield "a pipeline of one stage: in order or evenly on its nodes"


def _across(request: Request, sampled: Iterable[Shape]) -> tuple[Axis, ...]:
    """The axis of plans with mixed stages; empty for one cluster, or where pinned values rule such plans out."""
    many = max(map(len, request.joinable()))
    unequal = [one for one in sampled if not schedules.get(one.schedule).CHUNKED and one.zero_stage <= 1]
    if many < 2 or not unequal:
        return ()
    names, zeros = ({str(value) for value in _values(unequal, name)} for name in ("schedule", "zero_stage"))
    order = "in any order" if math.factorial(many) <= ORDERS else f"in {ORDERS} orders"
    again = " or ".join(recomputations(request, by_stage=False))
    long = "" if request.wishes.pp else f", pp up to {SHORT} or a divisor of the layers"
    values = (
        f"each stage on the next slots of all clusters in sequence, {order}",
        f"each replica on one cluster{long}",
        f"both under {', '.join(sorted(names))} with ZeRO {', '.join(sorted(zeros))}, recompute {again}, "
        "microbatches by the speed of a replica",
    )
    return (Axis(ACROSS, values),)


def _other_values(
    request: Request, shapes: Sequence[Shape], sampled: Iterable[Shape], tried: bool, offloads: bool
) -> Iterator[str]:
    """Texts of values that a plan could have and the search leaves out, of dimensions that are not pinned. `offloads`: plans
    with the optimizer on the hosts are tried without a proof."""
    wishes, found = request.wishes, {shape.schedule for shape in sampled}
    other = [name for name in schedules.names() if name not in found and _is_defined(name, wishes.vpp)]
    if other and not wishes.schedule:
        yield f"schedule {', '.join(other)}"
    if wishes.zero_stage is None and any(shape.slots > 1 for shape in shapes):
        yield from _left_out("zero_stage", ZERO_STAGES, sampled)
    recomputed = _values(shapes, "recompute")
    other = [name for name in RECOMPUTE if name not in recomputed and (BLOCK not in recomputed or name == "selective")]
    if other and not wishes.recompute:
        yield f"recompute {', '.join(other)}"
    if not wishes.offload and offloads:
        yield f"offload optimizer {TRIED}"
    if not wishes.offload:
        yield f"{'' if offloads else 'optimizer state or '}activations in host memory (--offload)"
    if not wishes.tp:
        most = max(cluster.node.count for cluster in request.clusters())
        yield from _left_out("tp", _pinnable(request, "tp", most, shapes), shapes)
    if not wishes.cp:
        most = max(cluster.devices for cluster in request.clusters())
        degrees, short = list(_pinnable(request, "cp", most, shapes)), short_degree(request) if tried else None
        yield from (f"cp {cp} {TRIED}" for cp in degrees if cp == short)
        yield from _left_out("cp", (cp for cp in degrees if cp != short), shapes)
    if not wishes.microbatch_size:
        yield from _left_out("microbatch_size", _sizes(request, shapes), shapes)
    if not wishes.vpp and any(schedules.get(name).CHUNKED for name in found):
        yield from _left_out("vpp", range(2, request.workload.model.layers // 2 + 1), sampled)


def _is_defined(schedule: str, vpp: int | None) -> bool:
    """Whether a schedule is defined for a pinned vpp."""
    return vpp is None or (vpp > 1) == schedules.get(schedule).CHUNKED


def _left_out(name: str, possible: Iterable[int], shapes: Iterable[Shape]) -> Iterator[str]:
    """The text of the possible values of a dimension that no shape has; nothing where all are searched."""
    known = _values(shapes, name)
    other = sorted(value for value in possible if value not in known)
    if other:
        yield f"{name} {listed(other)}"


def _pinnable(request: Request, name: str, most: int, shapes: Iterable[Shape]) -> Iterator[int]:
    """Degrees of a dimension (tp or cp) from 2 to `most` that are not searched, but would be if they were pinned."""
    known = _values(shapes, name)
    for degree in range(2, most + 1):
        with suppress(Infeasible):
            if degree not in known and any(True for _ in searched(replace(request, wishes=_pinned(request, name, degree)))):
                yield degree


def _pinned(request: Request, name: str, degree: int) -> Wishes:
    return replace(request.wishes, tp=degree) if name == "tp" else replace(request.wishes, cp=degree)


def _sizes(request: Request, shapes: Iterable[Shape]) -> set[int]:
    """Microbatch sizes that divide the share of the batch of a replica, for some dp."""
    shares = {request.workload.global_batch_size // shape.dp for shape in shapes if shape.divides(request.workload)}
    small = ((share, size) for share in shares for size in range(1, math.isqrt(share) + 1) if share % size == 0)
    return {size for share, low in small for size in (low, share // low)}


def _partly(sampled: Iterable[Shape]) -> Iterator[str]:
    """Texts of ZeRO stages that are searched under some schedules only."""
    pairs = {(one.zero_stage, one.schedule) for one in sampled if one.slots > 1}
    names = sorted({schedule for _, schedule in pairs})
    for stage in sorted({stage for stage, _ in pairs}):
        missing = [name for name in names if (stage, name) not in pairs]
        if missing:
            yield f"zero_stage {stage} with {', '.join(missing)}"


def _other_rules(request: Request, shapes: Sequence[Shape], sampled: Iterable[Shape], rows: str) -> Iterator[str]:
    """Texts of what is left out but is no value of a dimension; `rows` says how dp may differ between stages."""
    width, pp = max(shape.slots for shape in shapes), request.wishes.pp or request.workload.model.layers
    if width >= 4 and not request.wishes.zero_shard_size:
        yield "ZeRO among part of the replicas (zero_shard_size)"
    if pp > 1 and not request.wishes.tp and any(shape.tp > 1 for shape in shapes):
        searches = next(unlike_shapes(request, shapes), None) is not None
        yield f"{UNLIKE} that differs in another way" if searches else f"{UNLIKE} (one tp for all stages)"
    if pp > 1 and not request.wishes.dp and request.wishes.microbatch_size != 1:
        yield f"stage_dp {rows}"
    if any(shape.dp > 1 for shape in shapes):
        yield "other dp that do not divide the batch, and replicas that differ by more than one microbatch"
    if any(one.vpp > 1 for one in sampled):
        yield "virtual stages of a pipeline rank that differ by more than one layer"
        yield "interleaved with one stage on each pipeline rank"
    if pp > 1 and len(list(request.clusters())) > 1:
        yield "compressed messages between clusters (message_compression)"
    if pp > 2 and len(list(request.clusters())) > 1:
        yield "stages of one cluster that are not consecutive in the pipeline"
    if any(shape.cp > 1 or shape.ep > 1 for shape in shapes):
        yield "cp or ep groups at unequal positions on their nodes"
    yield "other choices of nodes and of devices"
    if pp > 1:
        yield "the head before the last stage, and stages without layers"
    yield "unfused attention"
    if width > 1:
        yield "gradient reduction that does not overlap the backward"
    if any(shape.tp > 1 for shape in shapes):
        yield "tensor parallelism without sequence parallelism"
