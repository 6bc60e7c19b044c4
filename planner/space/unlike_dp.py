"""Layouts whose stages have tp and dp of their own on each cluster, which the search tries beside its proof.

All ranks of a stage together have the same samples of the microbatches, whatever its degrees: with dp k times as large, a rank
has a k-th of them (`sim.plan.rank_numbering`). So a layout is a shape for each cluster, all with equally many microbatches."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.request import Request
from planner.space import runnable
from planner.space.shape import Shape
from planner.space.shapes import searched_schedules, slots, zero_stages
from planner.space.unlike_tp import MOST_DEVICES
from planner.target import Target
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload

MOST_CLUSTERS = 4
"""Clusters of a fleet up to which such layouts are tried (a guess): more give many more combinations."""


def may_differ(request: Request) -> bool:
    """Whether such plans are tried: not on one cluster or on large fleets, nor where pins or the target leave one degree.

    A tied embedding needs equal degrees of the two stages that share it, at the ends, so there must be three clusters."""
    pinned, model = request.wishes, request.workload.model
    alike = pinned.tp is not None or pinned.dp is not None or pinned.pp == 1 or (pinned.vpp or 1) > 1
    further = (pinned.cp or 1) > 1 or (pinned.ep or 1) > 1 or pinned.etp or pinned.zero_shard_size
    if alike or further or not model.is_uniform or pinned.microbatch_size == 1:
        return False
    clusters = max(request.joinable(), key=len)
    few = len(clusters) < (3 if model.tied_embeddings else 2)
    if few or len(clusters) > MOST_CLUSTERS or sum(one.devices for one in clusters) > MOST_DEVICES:
        return False
    return request.target is None or _takes(request.target, request.workload)


@functools.lru_cache(maxsize=1024)
def _takes(target: Target, workload: Workload) -> bool:
    """Whether a target can launch stages of unlike dp."""
    config = ParallelConfig(
        tp=2, pp=3, stage_tp=(2, 1, 2), stage_dp=(1, 2, 1), microbatch_size=2, num_microbatches=(2,), sequence_parallel=True
    )
    return not any(text.startswith("stage_") for text in target.unsupported_layout(config, workload))


def templates(request: Request, bases: Iterable[Shape], schedule: str) -> list[Shape]:
    """A shape of each tp and recomputation of `bases` without further degrees, under a schedule and a ZeRO stage with which the
    target can run a pipeline: `schedule` if it can be, else one that splits the backward if any."""
    found: dict[tuple[int, str], Shape] = {}
    names = [name for name, vpp in searched_schedules(request) if vpp == 1]
    names.sort(key=lambda name: (name != schedule, not schedules.get(name).SPLITS_BACKWARD))
    for base in bases:
        if base.further_degrees or base.zero_shard_size is not None or (base.tp, base.recompute) in found:
            continue
        several = replace(base, dp=max(base.dp, 2), vpp=1, tied_shards=False)
        every = itertools.product(names, zero_stages(request, several))
        shapes = (replace(several, schedule=name, zero_stage=zero) for name, zero in every)
        chosen = next((shape for shape in shapes if runnable.runs(request, shape, 2)), None)
        if chosen is not None:
            found[base.tp, base.recompute] = chosen
    return list(found.values())


def own_shapes(request: Request, template: Shape, samples: int) -> Iterator[Shape]:
    """The shapes of a template's tp that some cluster can hold, with `samples` of the microbatches in a stage."""
    most = max((slots(cluster, template.tp) for cluster in request.clusters()), default=0)
    for dp in range(1, min(most, samples) + 1):
        if samples % dp == 0:
            yield replace(template, dp=dp, microbatch_size=samples // dp)
