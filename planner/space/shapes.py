"""Shapes, and the device slots of a cluster: every (tp, dp, cp, ep, microbatch size, recomputation, schedule) that divides the
model, the batch and the devices.

A shape leaves out pp: the search chooses how many stages each class of nodes has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.limits import NO_LIMITS
from planner.request import Request
from planner.space import runnable, stand_in
from planner.space.sequences_and_experts import check_degrees, context_degrees, expert_degrees, expert_tensor_degrees
from planner.space.shape import Shape
from planner.space.unequal_batches import can_have, is_faster_with, unequal_degrees
from sim.errors import Infeasible
from sim.field_changes import changed
from sim.hardware.cluster import Cluster, Device
from sim.hardware.stack import searched_facts
from sim.plan import schedules
from sim.plan.expert_parallelism import mesh_rows
from sim.plan.parallel_config import BLOCK

USUAL_SIZES = (1, 2, 4, 8, 16)
"""Microbatch sizes that the published strategies search; certified searches every divisor of a replica's batch."""
MOST_CHUNKS = 12
"""Maximum vpp (virtual stages per rank) that is searched (a guess). A larger one saves less than a twelfth of the bubble."""
USUAL_CHUNKS = (2, 4, 8)
"""Values of vpp that are searched even if they do not divide the layers."""
RECOMPUTE = ("none", "full")
"""Recomputation that is searched where stages do not choose it (`recomputations`). Plans have a fused attention core
(`ParallelConfig.attention`), with which selective recomputation equals none, so it is used only when pinned."""
VARIED = ("schedule", "vpp", "zero_stage")
"""Dimensions in which the variants of a shape differ."""


def variants(request: Request, shape: Shape, able: Callable[[str, int], bool] | None = None) -> Iterator[Shape]:
    """The shape under every schedule, vpp and ZeRO stage that is searched or pinned, allowed, and that the target can run; with
    `able`, only those for which it holds of (schedule, ZeRO stage). Virtual stages need equally long replicas."""
    if not request.limits.allows_shape(shape, but=VARIED):
        return
    several, runs, divides = searched_schedules(request), runnable.runs_under(request, shape), shape.divides(request.workload)
    for zero in zero_stages(request, shape):
        for name, vpp in several:
            if (vpp == 1 or divides) and (able is None or able(name, zero)) and runs(name, vpp, zero):
                variant = changed(shape, schedule=name, vpp=vpp, zero_stage=zero)
                if request.limits.allows_shape(variant):
                    yield variant


def zero_stages(request: Request, shape: Shape) -> tuple[int, ...]:
    """ZeRO stages that are searched; ZeRO 2 and 3 need replicas with the same number of microbatches."""
    several = request.wishes.zero_stage is None and shape.slots > 1 and shape.divides(request.workload)
    if not several:
        return (shape.zero_stage,)
    listed = sorted(map(int, request.limits.listed("zero_stage")))
    return tuple(stage for stage in listed or (1, 2, 3) if request.limits.allows("zero_stage", stage))


def searched_schedules(request: Request) -> list[tuple[str, int]]:
    """(schedule, vpp) that are searched; without virtual stages where none is pinned and pp 1 is (`lengths.allows`)."""
    wishes = request.wishes
    found: list[tuple[str, int]] = []
    for name in (wishes.schedule,) if wishes.schedule else _schedules(request):
        chunked = schedules.get(name).CHUNKED
        if chunked and wishes.pp == 1 and not wishes.schedule and not wishes.vpp:
            continue
        if wishes.vpp is None:
            listed = sorted(int(vpp) for vpp in request.limits.listed("vpp") if vpp != 1)
            sizes = listed or chunks(request.workload.model.layers)
            found += [(name, vpp) for vpp in (sizes if chunked else [1]) if request.limits.allows("vpp", vpp)]
        elif wishes.schedule or chunked == (wishes.vpp > 1):
            found.append((name, wishes.vpp))
    return found


def chunks(layers: int) -> list[int]:
    """Searched values of vpp: divisors of the layers up to `MOST_CHUNKS`, and the usual ones."""
    return [v for v in range(2, min(MOST_CHUNKS, layers) + 1) if layers % v == 0 or v in USUAL_CHUNKS]


def overlaps(shape: Shape) -> tuple[Shape, ...]:
    """The shape under both orders of weight gathers: before the next step's forwards and, with ZeRO 1 or 2, after the
    optimizer.

    Gathers before the forwards overlap with the forwards of this stage and of earlier stages. Gathers after the optimizer
    overlap with the backwards that earlier stages still run, which take longer. Reductions are always overlapped."""
    chosen = shape.slots > 1 and shape.zero_stage in (1, 2)
    return (shape, changed(shape, overlap_param_gather=False)) if chosen else (shape,)


def slots(cluster: Cluster, tp: int) -> int:
    """Number of tensor-parallel groups that a cluster can hold, each inside one node."""
    return cluster.nodes * (cluster.node.count // tp)


def slot(cluster: Cluster, tp: int, index: int) -> tuple[Device, ...]:
    """Devices of slot number `index`; slots fill one node after the other."""
    node, i = divmod(index, cluster.node.count // tp)
    return tuple(Device(cluster.name, node, i * tp + j) for j in range(tp))


def stage_slots(cluster: Cluster, shape: Shape) -> int:
    """Number of slots of a cluster with the tensor-parallel degree that a shape has there."""
    return slots(cluster, shape.tp_on(cluster.name))


def uneven(cluster: Cluster, shape: Shape, stages: int) -> bool:
    """Whether this number of stages, on nodes filled one after the other, leaves two or more slots of the last node idle.

    Then `spread` is an alternative. False with cp or ep, whose groups need equal positions on their nodes."""
    per_node, taken = cluster.node.count // shape.tp_on(cluster.name), stages * shape.slots
    return shape.cp == shape.ep == 1 and taken > per_node and -taken % per_node > 1


def spread(cluster: Cluster, tp: int, taken: int) -> tuple[tuple[Device, ...], ...]:
    """Devices of `taken` slots, spread evenly over the fewest nodes that hold them; the first nodes may have one more slot."""
    nodes = math.ceil(taken / (cluster.node.count // tp))
    each, more = divmod(taken, nodes)
    positions = ((node, i) for node in range(nodes) for i in range(each + (node < more)))
    return tuple(tuple(Device(cluster.name, node, i * tp + j) for j in range(tp)) for node, i in positions)


def searched(request: Request, across: bool = False, every_size: bool = True, unequal: bool = True) -> Iterator[Shape]:
    """`shapes` with every cp and ep that is searched: powers of two for cp, all divisors of the number of experts for ep, and
    whole experts beside those that tensor parallelism divides.

    Raises Infeasible where there is none."""
    found, reason, wishes = False, "", request.wishes
    check_degrees(request.workload, wishes.cp or 1, wishes.ep or 1, wishes.etp)
    for cp in context_degrees(request):
        for ep, etp in itertools.product(expert_degrees(request), expert_tensor_degrees(request)):
            try:
                pinned = replace(request, wishes=replace(wishes, cp=cp, ep=ep, etp=etp))
                for shape in shapes(pinned, across, every_size, unequal, by_stage=not across):
                    if etp == shape.etp or wishes.etp:  # an etp that equals tp was searched before
                        found = True
                        yield shape
            except Infeasible as error:
                reason = reason or str(error)
    if not found:
        raise Infeasible(reason if request.target is not None else _why_none(request))


def shapes(
    request: Request, across: bool = False, every_size: bool = False, unequal: bool = False, by_stage: bool = False
) -> Iterator[Shape]:
    """All shapes with the pinned cp, ep and etp, else 1 (etp: as tp), each under one schedule, vpp and ZeRO stage (`variants`
    yields the others).

    across: the replicas of a stage may be on several clusters. Microbatch sizes are those of `USUAL_SIZES` that divide a
    replica's batch, or all divisors with `every_size`. unequal: replicas may have one microbatch more than others. by_stage:
    as in `recomputations`. Raises Infeasible where there is none."""
    stand_in.check(request.workload)
    found, refused = False, None
    cp, ep, shards = request.wishes.cp or 1, request.wishes.ep or 1, request.wishes.zero_shard_size
    check_degrees(request.workload, cp, ep, request.wishes.etp)
    schedule, zero = request.wishes.schedule or _usual_schedule(request), _first_zero_stage(request)
    kinds = recomputations(request, by_stage)
    vpp = request.wishes.vpp or (2 if schedules.get(schedule).CHUNKED else 1)
    free = request.target is None and request.limits == NO_LIMITS
    for tp in tensor_degrees(request):
        etp = None if request.wishes.etp == tp else request.wishes.etp
        facts = searched_facts(request.topology.stack, request.topology.fleet, tp)
        for dp in (*_data_degrees(request, tp, across), *(_unequal_degrees(request, tp) if unequal else ())):
            for size in _sizes(request, dp, every_size):
                for recompute in kinds:
                    degrees = tp, dp, size, recompute, schedule, vpp, zero, cp, ep, etp, shards
                    shape = Shape(*degrees, offload=request.wishes.offloaded, **facts)
                    if not shape.divides_experts:
                        continue
                    if free or next(variants(request, shape), None) is not None:
                        found = True
                        yield shape
                    elif request.target is not None and next(variants(replace(request, target=None), shape), None) is not None:
                        refused = refused or shape
    if not found:
        raise Infeasible(_why_none(request) if refused is None else _why_refused(request, refused))


def _first_zero_stage(request: Request) -> int:
    """The ZeRO stage of a base shape: the pinned one, else the first that is allowed."""
    if request.wishes.zero_stage is not None:
        return request.wishes.zero_stage
    return next((stage for stage in (1, 2, 3, 0) if request.limits.allows("zero_stage", stage)), 1)


def _usual_schedule(request: Request) -> str:
    """The schedule of a base shape where none is pinned."""
    if (request.wishes.vpp or 1) > 1:
        return "interleaved"
    names = _schedules(request)
    return "1f1b" if "1f1b" in names else names[0]


def _schedules(request: Request) -> tuple[str, ...]:
    """The schedules that are searched where none is pinned: those that are listed, but for those with a search of their own
    (`planner.search.along_a_v`), else all that are allowed."""
    listed = tuple(filter(schedules.is_planned, map(str, request.limits.listed("schedule"))))
    return listed or runnable.schedules_for(request.target, request.workload)


def tensor_degrees(request: Request) -> list[int]:
    """Powers of two, or the pinned tp, that fit inside some node and divide heads, MLP sizes and vocabulary."""
    model = request.workload.model
    largest = max((cluster.node.count for cluster in request.clusters()), default=0)
    wished = request.wishes.tp
    listed = sorted(map(int, request.limits.listed("tp")))
    degrees = [wished] if wished else listed or [2**i for i in range(largest.bit_length())]
    sizes = (model.heads, model.ffn_hidden, model.shared_ffn_hidden, model.vocab)
    return [tp for tp in degrees if tp <= largest and not any(size % tp for size in sizes)]


def recomputations(request: Request, by_stage: bool) -> tuple[str, ...]:
    """Recomputation that is searched: the pinned or listed one; for plans of stages on one cluster each (`by_stage`) `BLOCK`,
    alone where pipelines of any length can have it; else none and full, also where `BLOCK` is pinned."""
    listed = tuple(map(str, request.limits.listed("recompute")))
    pinned = request.wishes.recompute
    if (pinned or listed) and (by_stage or pinned != BLOCK):
        return (pinned,) if pinned else listed
    if not by_stage or not any(blocks := runnable.recomputes_blocks(request)):
        return RECOMPUTE
    limited = any(name == "recompute" for _, dimensions in request.limits.on_clusters for name, _ in dimensions)
    return (BLOCK,) if all(blocks) and not limited else (*RECOMPUTE, BLOCK)


def _data_degrees(request: Request, tp: int, across: bool) -> list[int]:
    room = [slots(cluster, tp) for cluster in request.clusters()]
    cp, ep = request.wishes.cp or 1, request.wishes.ep or 1
    divisors = mesh_rows(tp, ep, request.wishes.etp), request.wishes.zero_shard_size or 1
    most = (sum(room) if across else max(room, default=0)) // cp
    degrees = [request.wishes.dp] if request.wishes.dp else range(1, most + 1)
    fitting = (dp for dp in degrees if dp <= most and request.workload.global_batch_size % dp == 0)
    return [dp for dp in fitting if not any(dp * cp % divisor for divisor in divisors)]


def _unequal_degrees(request: Request, tp: int) -> list[int]:
    cp = request.wishes.cp or 1
    able = [cluster for cluster in request.clusters() if cluster.node.count >= tp]
    return unequal_degrees(request, [(slots(one, tp) // cp, max(one.node.count // tp // cp, 1)) for one in able])


def _sizes(request: Request, dp: int, every_size: bool) -> list[int]:
    batch, wished = request.workload.global_batch_size, request.wishes.microbatch_size
    share = batch // dp
    listed = sorted(map(int, request.limits.listed("microbatch_size")))
    able = (wished,) if wished else listed or (range(1, share + 1) if every_size else USUAL_SIZES)
    if batch % dp:
        pinned = request.wishes.dp is not None
        return [size for size in able if is_faster_with(batch, dp, size) or (pinned and can_have(batch, dp, size))]
    return [size for size in able if share % size == 0]


def _why_refused(request: Request, shape: Shape) -> str:
    """Why the target can run no layout, by the first of them: the smallest degrees, and replicas with equal shares."""
    assert request.target is not None
    return f"{request.target.can_not} express {runnable.fault(request, shape)}"


def _has_a_shape(request: Request) -> bool:
    try:
        return any(True for _ in searched(request))
    except Infeasible:
        return False


def _why_none(request: Request) -> str:
    workload, wishes = request.workload, request.wishes
    if not any(request.clusters()):
        if request.target is not None and any(replace(request, target=None).clusters()):
            return f"{request.target.can_not} run on any device of {request.topology.name}"
        others = dict.fromkeys(name for one in request.topology.fleet.clusters for name, _ in one.node.device.peak)
        return f"no cluster of {request.topology.name} has devices with {workload.precision}, only with {', '.join(others)}"
    if request.limits != NO_LIMITS and _has_a_shape(replace(request, limits=NO_LIMITS)):
        return f"no layout fits what is required{f' and {wishes}' if str(wishes) else ''}"
    most = max(slots(cluster, wishes.tp or 1) for cluster in request.clusters()) // (wishes.cp or 1)
    parts = [f"no layout fits {str(wishes) or 'the workload'}"]
    if wishes.tp and not tensor_degrees(request):
        widest = max(cluster.node.count for cluster in request.clusters())
        parts.append(
            f"tp {wishes.tp} must fit inside a node ({widest} devices) and divide heads {workload.model.heads}, "
            f"ffn_hidden {workload.model.ffn_hidden} and vocab {workload.model.vocab}"
        )
    elif (wishes.dp or 1) > most:
        product = " x ".join(f"{k} {v}" for k, v in (("dp", wishes.dp), ("cp", wishes.cp), ("tp", wishes.tp or 1)) if v)
        parts.append(f"{product} replicas do not fit one cluster, which holds {most}")
    elif wishes.zero_shard_size and (not wishes.dp or wishes.dp * (wishes.cp or 1) % wishes.zero_shard_size):
        room = f"of at most {most}" if not wishes.dp else f"{wishes.dp}"
        parts.append(f"zero_shard_size {wishes.zero_shard_size} must divide dp {room} x cp {wishes.cp or 1}")
    elif wishes.ep and not wishes.etp and (not wishes.dp or wishes.dp * (wishes.cp or 1) % wishes.ep):
        room = f"of at most {most}" if not wishes.dp else f"{wishes.dp}"
        parts.append(f"ep {wishes.ep} must divide dp {room} x cp {wishes.cp or 1}, from which it takes its ranks")
    else:
        product = " x ".join(f"{k} {v}" for k, v in (("dp", wishes.dp), ("microbatch size", wishes.microbatch_size)) if v)
        parts.append(f"{product or 'every dp'} must divide global_batch_size {workload.global_batch_size}")
    return "; ".join(parts)
