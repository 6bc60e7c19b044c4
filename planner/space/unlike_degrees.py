"""Layouts whose stages have degrees of their own on each cluster (tp, dp, cp, ep, etp), which are tried beside the proof.

All ranks of a stage together have the same samples of the microbatches, whatever its degrees: with dp k times as large, a rank
has a k-th of them (`sim.plan.rank_numbering`). So a layout is a shape for each cluster, all with equally many microbatches."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import starmap
from typing import Any

from planner.request import Request
from planner.space import runnable
from planner.space.sequences_and_experts import context_degrees, expert_degrees
from planner.space.shape import Shape
from planner.space.shapes import searched_schedules, slots, zero_stages
from planner.space.unlike_tp import MOST_DEVICES
from planner.target import Target
from sim.plan import token_parts
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload

MOST_CLUSTERS = 4
"""Clusters of a fleet up to which such layouts are tried (a guess): more give many more combinations."""


def may_differ(request: Request) -> bool:
    """Whether such plans are tried: not on one cluster or on large fleets, nor where pins or the target leave one degree.

    A tied embedding needs equal degrees of the two stages that share it, at the ends, so there must be three clusters."""
    pinned, model = request.wishes, request.workload.model
    alike = pinned.tp is not None or pinned.dp is not None or pinned.pp == 1 or (pinned.vpp or 1) > 1
    if alike or pinned.zero_shard_size or not model.is_uniform or pinned.microbatch_size == 1:
        return False
    clusters = max(request.joinable(), key=len)
    few = len(clusters) < (3 if model.tied_embeddings else 2)
    if few or len(clusters) > MOST_CLUSTERS or sum(one.devices for one in clusters) > MOST_DEVICES:
        return False
    return _takes(request.target, request.workload, "dp")


def tried_degrees(request: Request) -> tuple[str, ...]:
    """The degrees beside tp that may differ between clusters in plans that are tried; empty where none are (`may_differ`)."""
    if not may_differ(request):
        return ()
    searched = {"cp": len(context_degrees(request)) > 1, "ep": len(expert_degrees(request)) > 1}
    found = ["dp", *(name for name, several in searched.items() if several and _takes(request.target, request.workload, name))]
    return (*found, "etp") if "ep" in found else tuple(found)


_UNLIKE: dict[str, dict[str, Any]] = {
    "dp": {"tp": 2, "stage_tp": (2, 1, 2), "stage_dp": (1, 2, 1), "sequence_parallel": True},
    "cp": {"tp": 1, "stage_cp": (1, 2, 1)},
    "ep": {"tp": 1, "dp": 4, "ep": 2, "stage_ep": (2, 4, 2)},
    "whole experts": {"tp": 1, "dp": 2, "ep": 1, "stage_ep": (1, 2, 1)},
}
"""Configurations with unlike degrees of a kind."""


@functools.lru_cache(maxsize=1024)
def _takes(target: Target | None, workload: Workload, kind: str) -> bool:
    """Whether a target can launch stages with unlike degrees of a kind."""
    options = {"dp": 1, **_UNLIKE[kind]}
    config = ParallelConfig(pp=3, microbatch_size=2, num_microbatches=(2,) * options["dp"], **options)
    faults = target.unsupported_layout(config, workload) if target is not None else ()
    return not any(text.startswith("stage_") for text in faults)


def templates(request: Request, bases: Iterable[Shape]) -> list[Shape]:
    """A shape of each tp, cp, ep, etp and recomputation of `bases`, under each schedule without virtual stages and the first
    ZeRO stage with which the target can run a pipeline."""
    found: dict[tuple[object, ...], Shape] = {}
    names = [name for name, vpp in searched_schedules(request) if vpp == 1]
    for base, name in itertools.product(bases, names):
        kind = name, base.tp, base.cp, base.ep, base.etp, base.recompute
        if base.zero_shard_size is not None or kind in found:
            continue
        several = replace(base, dp=max(base.dp, 2), vpp=1, tied_shards=False, schedule=name)
        shapes = (replace(several, zero_stage=zero) for zero in zero_stages(request, several))
        chosen = next((one for one in shapes if runnable.runs(request, one, 2) and _runs_unlike(request, one)), None)
        if chosen is not None:
            found[kind] = chosen
    return list(found.values())


def matching(request: Request, shapes: Iterable[Shape]) -> list[list[Shape]]:
    """Groups of templates of which stages of one pipeline may have any: of one schedule, ZeRO stage and recomputation, and of
    one cp unless the target takes unlike ones. Targets may want ep above 1 on all stages or on none."""
    contexts = "cp" in tried_degrees(request)
    mixed = _takes(request.target, request.workload, "whole experts")
    found: dict[tuple[object, ...], list[Shape]] = {}
    for shape in shapes:
        cp = None if contexts else shape.cp
        same = shape.schedule, shape.zero_stage, shape.recompute, mixed or shape.ep > 1, cp
        found.setdefault(same, []).append(shape)
    return list(found.values())


def _runs_unlike(request: Request, shape: Shape) -> bool:
    """Whether the target can launch a stage of a shape beside one of twice its dp."""
    if request.target is None:
        return True
    config = replace(shape, microbatch_size=2).config(request.workload, 2)
    unlike = replace(config, stage_dp=(shape.dp, 2 * shape.dp))
    return not any(request.target.unsupported_layout(unlike, request.workload))


def own_shapes(request: Request, template: Shape, samples: int) -> Iterator[Shape]:
    """The shapes of a template that some cluster can hold, with `samples` of the microbatches in a stage."""
    most = max((slots(cluster, template.tp) for cluster in request.clusters()), default=0) // template.cp
    for dp in range(1, min(most, samples) + 1):
        own = replace(template, dp=dp, microbatch_size=samples // dp)
        if samples % dp == 0 and own.divides_experts:
            yield own


def are_unlike(shapes: Iterable[Shape]) -> bool:
    """Whether shapes have unlike degrees, of the dp, cp and tp of two of them one divides the other, and the tokens of ranks of
    unlike cp match."""
    degrees = {(one.dp, one.cp, one.tp, one.ep, one.etp) for one in shapes}
    if len(degrees) == 1:
        return False
    each = [sorted(some) for some in zip(*((dp, cp, tp) for dp, cp, tp, *_ in degrees), strict=True)]
    contexts = sorted({(cp, tp) for _, cp, tp, *_ in degrees})
    pairs = itertools.combinations(contexts, 2) if contexts[0][0] < contexts[-1][0] else ()
    return all(b % a == 0 for some in each for a, b in itertools.pairwise(some)) and all(starmap(token_parts.match, pairs))


def may_tie(first: Shape, last: Shape) -> bool:
    """Whether the stages at both ends may share a tied embedding (`sim.plan.unlike_degrees.check_tied_ends`)."""
    unsharded = first.zero_stage == 0 or first.dp * first.cp == 1
    return (first.dp, first.cp) == (last.dp, last.cp) and (first.tp == last.tp or unsharded)
