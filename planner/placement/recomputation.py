"""Whole layers that the stages of a plan recompute: as few as memory allows, by stage or with one number for all stages.

Here a plan of stages gets what `sim.plan.parallel_config.BLOCK` leaves to them. Bytes are those of `sim.kernels.memory`."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.placement.simulation import fits
from sim.kernels import communicators, memory
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Bytes


def recomputing(plan: Plan) -> Iterator[Plan]:
    """A plan whose stages recompute as few layers as fit; then, for targets with one number for all stages, the most of these
    numbers for each (virtual) stage, if that fits, too, and last all layers."""
    counts = fewest_recomputed(plan)
    every = [stage.layers for stage in plan.stages]
    alike, whole = (max(counts),) * len(every), tuple(every)
    for some in dict.fromkeys((counts, alike, whole)):
        found = plan.recomputing(_with_counts(plan.config, every, some))
        if some != alike or fits(found):
            yield found


def fewest_recomputed(plan: Plan) -> tuple[int, ...]:
    """Fewest layers of each (virtual) stage that must be recomputed to fit memory; all where the stage does not fit.

    A stage that recomputes one layer needs the layer at work beside those that it keeps. So a stage may fit that recomputes
    none, where it does not if it recomputes one; from one layer on, more layers need less memory."""
    config, room = plan.config, room_of(plan)
    known: dict[tuple[object, ...], int] = {}
    found: list[int] = []
    for pp_rank, layers in enumerate(plan.layers):
        degrees = config.tp_of(pp_rank), config.dp_of(pp_rank), config.zero_of(pp_rank)
        own = *degrees, config.offload_of(pp_rank), memory.in_flight(plan, pp_rank)
        key = room[pp_rank], layers, plan.ends(plan.stages_of(pp_rank)), *own
        if key not in known:
            known[key] = _fewest(plan, pp_rank, layers, room[pp_rank])
        found.append(known[key])
    return tuple(virtual_recomputed(np.array([plan.layers]), np.array([found]), config.vpp)[0].tolist())


def virtual_recomputed(layers: NDArray[np.int64], recomputed: NDArray[np.int64], vpp: int) -> NDArray[np.int64]:
    """Recomputed layers of the virtual stages of many pipelines, where each stage recomputes some of its layers.

    Shape (pipelines, stages) becomes (pipelines, vpp x stages), as in `planner.placement.ranks.virtual_stages`. Each virtual
    stage recomputes as many layers, and some of them one more: those with one layer more than the others first."""
    if vpp == 1:
        return recomputed
    ends = layers[:, None, :] * np.arange(vpp + 1)[:, None] // vpp
    sizes = np.diff(ends, axis=1)
    larger = sizes > (layers // vpp)[:, None, :]
    number = np.where(larger, np.cumsum(larger, axis=1), layers[:, None, :] % vpp + np.cumsum(~larger, axis=1))
    more = number <= (recomputed % vpp)[:, None, :]
    return ((recomputed // vpp)[:, None, :] + more).reshape(len(layers), -1)


def _fewest(plan: Plan, pp_rank: int, layers: int, room: Bytes) -> int:
    own = plan.config.of_pp_rank(pp_rank)

    def has_room(recomputed: int) -> bool:
        config = replace(own, recompute="full", recompute_layers=(recomputed,), recompute_modules=())
        return memory.needed(plan, pp_rank, config) <= room

    return 0 if has_room(0) else bisect.bisect_left(range(1, max(layers, 1)), True, key=has_room) + 1


def room_of(plan: Plan) -> list[Bytes]:
    """Bytes that torch may need on a device of every pipeline rank, beside the head-room."""
    free, config = 1.0 - plan.topology.memory_headroom, plan.config
    outside = (communicators.outside_torch(config.of_pp_rank(pp_rank)) for pp_rank in range(config.pp))
    return [limit * free - more for limit, more in zip(memory.limits(plan), outside, strict=True)]


def _with_counts(config: ParallelConfig, layers: Sequence[int], counts: tuple[int, ...]) -> ParallelConfig:
    """The configuration with a number of recomputed layers for each (virtual) stage, said in the shortest way."""
    least = [min(pair) for pair in zip(layers, counts, strict=True)]
    if not any(least):
        return config.recomputing("none")
    full = config.recomputing("full")
    if least == list(layers):
        return full
    alike = least == [min(size, max(counts)) for size in layers]
    return replace(full, recompute_layers=(max(counts),) if alike else counts)
