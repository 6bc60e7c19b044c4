"""Costs of the stages of pipelines as rows of numbers, and candidates made of these rows: the input of the evaluator.

Seconds come from `sim.analytic.stage_costs`. A row has the costs of one (virtual) stage (`COSTS`); `candidates_of` puts the
rows of whole pipelines together."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sim.analytic import stage_amounts
from sim.analytic.alike_configs import summing_alike
from sim.analytic.candidates import STAGE, Candidates, Floats, stages_by_rank
from sim.analytic.paired_exchanges import exchange_seconds
from sim.analytic.paired_exchanges import slowdown as paired_slowdown
from sim.analytic.slowed_compute import slowed_compute
from sim.analytic.stage_costs import StageCosts
from sim.field_changes import changed
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import shards
from sim.kernels.launches import stage_message_seconds
from sim.kernels.shards import Bucket
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.round_trips import holds_receivers
from sim.units import Seconds

COSTS = (*STAGE[:-3], "reduced", "gathered", "gather_slows", "reduce_slows", "token_slows")
"""Rows of the cost of one stage: `STAGE` without messages, then the stage's contributions to the rows of `PIPELINE_RANK`."""
LINEAR = COSTS.index("gather")
"""Number of these rows before those of collectives."""


def without_vpp(costs: StageCosts) -> StageCosts:
    """Costs of each virtual stage separately: with vpp 1, collectives are not divided by the stages of a pipeline rank."""
    return replace(costs, config=_with_one_stage(costs.config), stages=costs.config.vpp) if costs.config.vpp > 1 else costs


@functools.lru_cache(maxsize=4096)
def _with_one_stage(config: ParallelConfig) -> ParallelConfig:
    return changed(config, vpp=1)


def costs_of(at: StageCosts, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[float, ...]:
    """`COSTS` of one stage, the only one of its pipeline rank (`without_vpp`)."""
    config, specs, has_work = at.config, specs or at.collectives.specs, layers > 0 or first or last
    cost = at.of(layers, first, last, specs)
    received = cost.received, at.received(layers, first, last, True)
    weight = at.weight_gradients(layers, first, last, specs) if config.reduces_between else cost.weight
    forward, backward = map(max, zip(*(slowed_compute(spec, at, layers, first, last) for spec in specs), strict=True))
    passes, compute = [cost.forward - received[0], cost.inputs - received[1]], (forward, backward - weight)
    stream, collectives = 0.0, _collectives(at, cost.reduce, cost.gather, layers, first, last, specs)
    if config.shards_parameters and config.gathers_ahead:
        own = max(_groups(at, layers, first, last, specs), key=lambda both: both[False].seconds + 2 * both[True].seconds)
        *passes, stream = _sharded(passes, compute, cost.parts, *own, closes=not schedules.get(config.schedule).SPLITS_BACKWARD)
        collectives = 0.0, own[False].seconds, *collectives[2:]
    gather, reduce, *rest = collectives
    *before, called, called_back = stage_message_seconds(specs, config, has_work and not first, has_work and not last)
    received = received[0] + before[0], received[1] + before[1]
    tokens, slowed = exchange_seconds(at, layers, first, last), paired_slowdown(at, layers, first, last)
    timed = (*passes, cost.weight, *compute, *received, called, called_back, *tokens)
    return (*timed, gather, reduce, float(cost.parts), stream, *rest, slowed)


def _collectives(
    at: StageCosts, reduce: Seconds, gather: Seconds, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...]
) -> tuple[float, ...]:
    """gather, reduce, reduced, gathered, gather_slows and reduce_slows of `COSTS`, without ZeRO 3."""
    specs = specs or at.collectives.specs
    alike = summing_alike(at.config, any(spec.profile is not None for spec in specs))
    key, known = (alike, at.workload, layers, first, last, specs), at.collectives.known_slowdowns
    if key not in known:
        known[key] = _slowdowns(at, layers, first, last, specs)
    ahead, behind = at.config.gathers_ahead, at.config.reduces_behind
    return (
        gather if ahead else 0.0, reduce if behind else 0.0, 0.0 if behind else reduce, 0.0 if ahead else gather, *known[key],
    )  # fmt: skip


def _slowdowns(at: StageCosts, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...]) -> tuple[float, float]:
    """gather_slows and reduce_slows of `COSTS`."""
    slows = dict[str, list[float]]()
    for group, operation, nbytes, _ in at.in_buckets(layers, first, last, specs)[2]:
        both = slows.setdefault(group, [0.0, 0.0])
        both[operation == "all_gather"] = at.collectives.interference(group, operation, nbytes)
    gathers, reduces = (min((both[way] for both in slows.values()), default=0.0) for way in (True, False))
    return gathers, reduces


def is_linear(at: StageCosts, specs: tuple[DeviceSpec, ...]) -> bool:
    """Whether the first `LINEAR` of `COSTS` and the optimizer's seconds are linear in the layers: not where passes wait for
    collectives (ZeRO 3, and ZeRO 2 without overlap)."""
    alike = stage_amounts.extends(at.workload, at.config, specs or at.collectives.specs)
    return alike and not (at.config.shards_parameters or at.config.reduces_between)


def extended(
    one: tuple[float, ...], two: tuple[float, ...], at: StageCosts, layers: int, first: bool, last: bool,
    specs: tuple[DeviceSpec, ...],
) -> tuple[float, ...]:  # fmt: skip
    """`COSTS` and optimizer seconds of a stage of any number of layers, given those of one layer and of two (`is_linear`)."""
    reduce, gather, _, parts, _ = at.synchronised(layers, first, last, specs)
    own = [a + (layers - 1) * (b - a) for a, b in zip(one, two, strict=True)]
    ahead, behind, *rest = _collectives(at, reduce, gather, layers, first, last, specs)
    slowed = paired_slowdown(at, layers, first, last)
    return (*own[:LINEAR], ahead, behind, float(parts), 0.0, *rest, slowed, own[-1])


def _groups(at: StageCosts, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...]) -> list[tuple[Bucket, Bucket]]:
    """(reductions, gathers) of a stage by kind of group: total seconds of each, and the slowdown of compute they cause."""
    found: dict[str, list[Bucket]] = {}
    for group, operation, nbytes, count in at.in_buckets(layers, first, last, specs)[2]:
        both = found.setdefault(group, [Bucket(0.0, 0.0), Bucket(0.0, 0.0)])
        slows = at.collectives.interference(group, operation, nbytes)
        both[operation == "all_gather"] = Bucket(at.collectives.seconds(group, operation, nbytes, count), slows)
    return [(reduce, gather) for reduce, gather in found.values()]


def _sharded(
    passes: Sequence[Seconds], compute: Sequence[Seconds], parts: int, reduce: Bucket, gather: Bucket, closes: bool
) -> tuple[Seconds, Seconds, Seconds]:
    """Seconds of F, of B and of the stream in B under ZeRO 3, from when rank and stream are free; B reduces if it `closes`."""
    reduce, gather = (Bucket(whole.seconds / parts, whole.slows) for whole in (reduce, gather))
    forward, _ = shards.sharded_pass(parts, compute[0], passes[0], gather, None)
    return forward, *shards.sharded_pass(parts, compute[1], passes[1], gather, reduce if closes else None)


def optimizer_of(at: StageCosts, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> Seconds:
    """Seconds of the optimizer on a pipeline rank with so many layers, the longest of its device types."""
    shape = at.workload, at.config, layers, first, last
    return max(stage_amounts.optimizer_seconds(spec, *shape) for spec in specs or at.collectives.specs)


def candidates_of(
    config: ParallelConfig, microbatches: int, rows: Floats, optimizer: Floats, ahead: Floats, back: Floats, tied: Floats
) -> Candidates:
    """Candidates from arrays of seconds. With n candidates, shapes are: `rows` (len(COSTS), stages, n), `optimizer` (pipeline
    ranks, n), messages `ahead` and `back` (stages, n), `tied` (n,)."""
    own, pp = len(STAGE) - 3, len(optimizer)
    reduced, gathered, *slows = (row[stages_by_rank(config.schedule, pp, len(row) // pp)] for row in rows[own:])
    stages = np.concatenate([rows[:own], ahead[None], back[None], np.zeros_like(ahead)[None]])
    sums, (*most, tokens) = (reduced.sum(axis=0), optimizer + gathered.sum(axis=0)), [slow.max(axis=0) for slow in slows]
    pp_ranks = np.stack([*sums, *most, np.zeros_like(optimizer), tokens])
    zero = tuple(map(config.zero_of, range(pp))) if config.reduces_each_microbatch and not config.gathers_between else ()
    found = Candidates(config.schedule, pp, config.vpp, microbatches, stages, pp_ranks, tied, zero)
    return replace(found, holds_receivers=True) if holds_receivers(config) else found
