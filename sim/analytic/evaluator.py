"""Batched evaluator: step times of many plans, or of many divisions of layers over device classes, by the max-plus recurrence.

It turns plans into `Candidates`: seconds come from `sim.analytic.stage_costs`, the step from `sim.analytic.recurrence`. It
models every schedule, tp, cp, vpp, every ZeRO stage with and without overlap, mixed devices, and interference of gradient
collectives with compute, but not interference of exchanges around a cp ring. Gradients of dense weights and of experts are
reduced concurrently, and the later of them counts. Under ZeRO 3, where their gathers and reductions alternate, only the kind
with more seconds of both counts: then the step is a lower bound of the engine's. Not modelled: ZeRO 2 and 3 of experts with
virtual stages.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.analytic import plan_costs, stage_amounts
from sim.analytic.alike_configs import summing_alike
from sim.analytic.candidates import STAGE, UNTIED, Candidates, Floats, join, stages_by_rank
from sim.analytic.equal_replicas import microbatches_of, replica_classes
from sim.analytic.paired_exchanges import exchange_seconds
from sim.analytic.paired_exchanges import slowdown as paired_slowdown
from sim.analytic.plan_costs import PlanCosts
from sim.analytic.recurrence import steps
from sim.analytic.slowed_compute import slowed_compute
from sim.analytic.stage_costs import StageCosts
from sim.errors import NotModelled
from sim.field_changes import changed
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import shards
from sim.kernels.shards import Bucket
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Seconds

Ints: TypeAlias = NDArray[np.int64]
StageRows: TypeAlias = dict[tuple[StageCosts, tuple[DeviceSpec, ...], int, int, int], tuple[float, ...]]
"""(costs of a class of devices, their types, layers, recomputed layers, 2 if it is the first stage + 1 if it is the last) ->
`COSTS` and optimizer seconds."""


def check(config: ParallelConfig) -> None:
    """Raise NotModelled if the recurrence does not model the configuration."""
    if config.reduces_each_microbatch and config.vpp > 1 and _sums_experts(config):
        raise NotModelled(
            f"the evaluator does not model zero_stage {config.zero_stage} with ep {config.ep} and vpp {config.vpp}: "
            "the gradients of dense weights and of experts alternate on two streams of a rank; simulate the plan"
        )


def _sums_experts(config: ParallelConfig) -> bool:
    """Whether several ranks of some stage hold the same part of divided experts."""
    every = {config.of_pp_rank(pp_rank) for pp_rank in range(config.pp)}
    return any(own.splits_experts and own.edp > 1 for own in every)


def evaluate(plans: Sequence[Plan]) -> Floats:
    """Step time in seconds of each plan, shape (plans,): that of its slowest class of replicas. Raises NotModelled (`check`).

    Unequal replicas are evaluated independently, so the time for which they wait for each other is neglected.
    """
    found = np.zeros(len(plans))
    by_structure: dict[tuple[object, ...], list[tuple[int, Candidates]]] = {}
    for index, plan in enumerate(plans):
        for one in of_plan(plan):
            by_structure.setdefault(one.structure, []).append((index, one))
    for rows in by_structure.values():
        together = join([one for _, one in rows])
        np.maximum.at(found, [index for index, _ in rows], steps(together))
    return found


def of_plan(plan: Plan) -> tuple[Candidates, ...]:
    """One candidate for each class of equivalent replicas of a plan. Raises NotModelled (`check`)."""
    check(plan.config)
    found = PlanCosts(plan)
    tied = plan_costs.tied_seconds(found) or UNTIED
    return tuple(_of_replicas(found, replicas, tied) for replicas in replica_classes(plan))


def _of_replicas(found: PlanCosts, replicas: tuple[int, ...], tied: Seconds) -> Candidates:
    plan, config = found.plan, found.plan.config
    last = config.num_stages - 1
    rows = np.zeros((len(COSTS), config.num_stages, 1))
    optimizer, ahead, back = np.zeros((config.pp, 1)), np.zeros((last + 1, 1)), np.zeros((last + 1, 1))
    for pp_rank in range(config.pp):
        specs, mine = found.specs(pp_rank, replicas), plan.stages_of(pp_rank)
        for stage in mine:
            at = _without_vpp(found.at(pp_rank, replicas, (stage,)))
            rows[:, stage, 0] = _costs(at, plan.stages[stage].layers, *plan.ends((stage,)), specs)
        layers = sum(plan.stages[stage].layers for stage in mine)
        whole = found.at(pp_rank, replicas, mine)
        optimizer[pp_rank] = _optimizer(whole, layers, *plan.ends(mine), specs)
    for stage in range(last if config.pp > 1 else 0):
        here, there = config.rank_of(stage), config.rank_of(stage + 1)
        if here == there:
            continue
        ahead[stage], back[stage + 1] = found.message(here, there, replicas), found.message(there, here, replicas)
    microbatches = microbatches_of(config, replicas[0])
    candidates = _candidates(config, microbatches, rows, optimizer, ahead, back, np.array([tied]))
    return replace(candidates, head=config.rank_of(plan.head_stage))


COSTS = (*STAGE[:-3], "reduced", "gathered", "gather_slows", "reduce_slows", "token_slows")
"""Rows of the cost of one stage: `STAGE` without messages, then the stage's contributions to the rows of `PIPELINE_RANK`."""
LINEAR = COSTS.index("gather")
"""Number of these rows before those of collectives."""


def _without_vpp(costs: StageCosts) -> StageCosts:
    """Costs of each virtual stage separately: with vpp 1, collectives are not divided by the stages of a pipeline rank."""
    return replace(costs, config=_with_one_stage(costs.config), stages=costs.config.vpp) if costs.config.vpp > 1 else costs


@functools.lru_cache(maxsize=4096)
def _with_one_stage(config: ParallelConfig) -> ParallelConfig:
    return changed(config, vpp=1)


def _costs(at: StageCosts, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[float, ...]:
    """`COSTS` of one stage, the only one of its pipeline rank (`_without_vpp`)."""
    config, specs = at.config, specs or at.collectives.specs
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
    tokens, slowed = exchange_seconds(at, layers, first, last), paired_slowdown(at, layers, first, last)
    return (*passes, cost.weight, *compute, *received, *tokens, gather, reduce, float(cost.parts), stream, *rest, slowed)


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


def _is_linear(at: StageCosts, specs: tuple[DeviceSpec, ...]) -> bool:
    """Whether the first `LINEAR` of `COSTS` and the optimizer's seconds are linear in the layers: not where passes wait for
    collectives (ZeRO 3, and ZeRO 2 without overlap)."""
    alike = stage_amounts.extends(at.workload, at.config, specs or at.collectives.specs)
    return alike and not (at.config.shards_parameters or at.config.reduces_between)


def _extended(
    one: tuple[float, ...], two: tuple[float, ...], at: StageCosts, layers: int, first: bool, last: bool,
    specs: tuple[DeviceSpec, ...],
) -> tuple[float, ...]:  # fmt: skip
    """`COSTS` and optimizer seconds of a stage of any number of layers, given those of one layer and of two (`_is_linear`)."""
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


def _optimizer(at: StageCosts, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> Seconds:
    shape = at.workload, at.config, layers, first, last
    return max(stage_amounts.optimizer_seconds(spec, *shape) for spec in specs or at.collectives.specs)


def _candidates(
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
    return Candidates(config.schedule, pp, config.vpp, microbatches, stages, pp_ranks, tied, zero)


class Table:
    """Cache of stage costs of one configuration on several classes of devices; computes each stage once.

    `messages[a, b]`: seconds of a message from a stage on class a to the next stage on class b; `tied[a, b]`: seconds of the
    all-reduce of a tied embedding's gradient between end stages on a and b (`UNTIED` if none is tied). `shared`: a cache of
    stage costs, which tables of the same classes in other orders may use together. recomputes: stages may recompute some of
    their layers in full. specs: the device types of each class, by default all of its costs. Raises NotModelled (`check`, and
    if replicas have different numbers of microbatches).
    """

    def __init__(
        self, classes: Sequence[StageCosts], messages: Floats, tied: Floats | None = None, shared: StageRows | None = None,
        recomputes: bool = False, specs: Sequence[tuple[DeviceSpec, ...]] = (),
    ):  # fmt: skip
        self._shared: StageRows = {} if shared is None else shared
        self.classes, self.config, self.messages = tuple(map(_without_vpp, classes)), classes[0].config, messages
        self.tied = np.full_like(messages, UNTIED) if tied is None else tied
        self.specs = specs or [()] * len(classes)
        check(self.config)
        if len(set(self.config.num_microbatches)) > 1:
            raise NotModelled("a table needs replicas with the same number of microbatches; use `evaluate`")
        self._sizes = classes[0].workload.model.layers + 1
        self._counts = self._sizes if recomputes else 1
        self._known = np.zeros(len(classes) * self._sizes * self._counts * 4, np.int64)  # 1 + the column of `_rows`
        self._rows = np.zeros((len(COSTS) + 1, 0))

    def candidates(self, classes: Ints, layers: Ints, recomputed: Ints | None = None) -> Candidates:
        """Candidates from `classes` by pipeline rank, shape (candidates, pp), and `layers` by stage, (candidates, stages).

        recomputed: of these layers, those that are recomputed in full, in a table that `recomputes`."""
        classes, layers = np.ascontiguousarray(classes.T), np.ascontiguousarray(layers.T)
        pp, vpp = len(classes), self.config.vpp
        rank_of = [schedules.rank_of(self.config.schedule, stage, pp) for stage in range(pp * vpp)]
        of_stage = classes[rank_of]
        rows = self._of(of_stage, layers, 0 if recomputed is None else np.ascontiguousarray(recomputed.T))
        by_rank, head = stages_by_rank(self.config.schedule, pp, vpp), rank_of[-1]
        optimizer = rows[-1] if vpp == 1 else self._of(classes, layers[by_rank].sum(axis=0), 0, head)[-1]
        ahead, back = np.zeros(layers.shape), np.zeros(layers.shape)
        if pp > 1:
            ahead[:-1], back[1:] = self.messages[of_stage[:-1], of_stage[1:]], self.messages[of_stage[1:], of_stage[:-1]]
            for stage in range(pp * vpp - 1):
                if rank_of[stage] == rank_of[stage + 1]:  # no message: both are on one rank
                    ahead[stage] = back[stage + 1] = 0.0
        tied = self.tied[classes[0], classes[head]]
        found = _candidates(self.config, self.config.num_microbatches[0], rows[:-1], optimizer, ahead, back, tied)
        return found if head == pp - 1 else replace(found, head=head)

    def _of(self, classes: Ints, layers: Ints, recomputed: Ints | int, head: int = -1) -> Floats:
        """`COSTS` and the optimizer of stages (or pipeline ranks) in pipeline order; computes and caches missing sizes. head:
        which of them has the head."""
        codes = ((classes * self._sizes + layers) * self._counts + recomputed) * 4
        codes[0] += 2
        codes[head] += 1
        new = np.unique(codes[self._known[codes] == 0])
        self._known[new] = self._rows.shape[1] + 1 + np.arange(len(new))
        fresh = [self._row(*divmod(int(code), 4)) for code in new]
        self._rows = np.concatenate([self._rows, np.array(fresh).reshape(-1, len(self._rows)).T], axis=1)
        found: Floats = self._rows.take(self._known[codes] - 1, axis=1)
        return found

    def _row(self, code: int, ends: int) -> tuple[float, ...]:
        code, recomputed = divmod(code, self._counts)
        which, layers = divmod(code, self._sizes)
        costs, specs = self.classes[which], self.specs[which]
        key = costs, specs, layers, recomputed, ends
        if key not in self._shared:
            if layers > 2 and not recomputed and _is_linear(costs, specs):
                one, two = (self._row((which * self._sizes + few) * self._counts, ends) for few in (1, 2))
                self._shared[key] = _extended(one, two, costs, layers, ends >= 2, ends % 2 == 1, specs)
                return self._shared[key]
            if recomputed:
                config = changed(costs.config, recompute="full", recompute_layers=(recomputed,))
                costs = replace(costs, config=config)
            stage = costs, layers, ends >= 2, ends % 2 == 1
            self._shared[key] = (*_costs(*stage, specs), _optimizer(*stage, specs))
        return self._shared[key]
