"""Batched evaluator: step times of many plans, or of many divisions of layers over device classes, by the max-plus recurrence.

It turns plans into `Candidates`: seconds come from `sim.analytic.stage_costs`, the step from `sim.analytic.recurrence`. It
models every schedule, tp, cp, vpp, every ZeRO stage with and without overlap, mixed devices, and interference of gradient
collectives with compute, but not interference of exchanges around a cp ring. Gradients of dense weights and of experts are
reduced concurrently, and the later of them counts. Under ZeRO 3, where their gathers and reductions alternate, only the kind
with more seconds of both counts: then the step is a lower bound of the engine's. Not modelled: ZeRO 2 and 3 of experts with
virtual stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.analytic import plan_costs
from sim.analytic.candidates import UNTIED, Candidates, Floats, join, stages_by_rank
from sim.analytic.cost_rows import COSTS, candidates_of, costs_of, extended, is_linear, optimizer_of, without_vpp
from sim.analytic.equal_replicas import microbatches_of, replica_classes
from sim.analytic.plan_costs import PlanCosts
from sim.analytic.recurrence import steps
from sim.analytic.stage_costs import StageCosts
from sim.errors import NotModelled
from sim.field_changes import changed
from sim.hardware.device_spec import DeviceSpec
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Seconds

Ints: TypeAlias = NDArray[np.int64]
PARTS, SLOWS = COSTS.index("parts"), [COSTS.index(f"{name}_slows") for name in ("gather", "reduce", "token")]
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
            at = without_vpp(found.at(pp_rank, replicas, (stage,)))
            rows[:, stage, 0] = costs_of(at, plan.stages[stage].layers, *plan.ends((stage,)), specs)
        layers = sum(plan.stages[stage].layers for stage in mine)
        whole = found.at(pp_rank, replicas, mine)
        optimizer[pp_rank] = optimizer_of(whole, layers, *plan.ends(mine), specs)
    for stage in range(last if config.pp > 1 else 0):
        here, there = config.rank_of(stage), config.rank_of(stage + 1)
        if here == there:
            continue
        ahead[stage], back[stage + 1] = found.message(here, there, replicas), found.message(there, here, replicas)
    microbatches = microbatches_of(config, replicas[0])
    candidates = candidates_of(config, microbatches, rows, optimizer, ahead, back, np.array([tied]))
    return replace(candidates, head=config.rank_of(plan.head_stage))


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
        self.classes, self.config, self.messages = tuple(map(without_vpp, classes)), classes[0].config, messages
        self.tied = np.full_like(messages, UNTIED) if tied is None else tied
        self.specs = specs or [()] * len(classes)
        check(self.config)
        if len(set(self.config.num_microbatches)) > 1:
            raise NotModelled("a table needs replicas with the same number of microbatches; use `evaluate`")
        self._sizes = classes[0].workload.model.layers + 1
        self._counts = self._sizes if recomputes else 1
        self._known = np.zeros(len(classes) * self._sizes * self._counts * 4, np.int64)  # 1 + the column of `_rows`
        self._rows = np.zeros((len(COSTS) + 1, 0))

    def candidates(
        self, classes: Ints, layers: Ints, recomputed: Ints | None = None, most: Ints | None = None
    ) -> Candidates:  # fmt: skip
        """Candidates from `classes` by pipeline rank, shape (candidates, pp), and `layers` by stage, (candidates, stages).

        recomputed: of these layers, those that are recomputed in full, in a table that `recomputes`. most: if given, each
        candidate stands for all pipelines with `layers` to `most` layers on each stage, and its step is no longer than any of
        theirs."""
        classes, layers = np.ascontiguousarray(classes.T), np.ascontiguousarray(layers.T)
        pp, vpp = len(classes), self.config.vpp
        rank_of = [schedules.rank_of(self.config.schedule, stage, pp) for stage in range(pp * vpp)]
        of_stage = classes[rank_of]
        if most is None:
            rows = self._of(of_stage, layers, 0 if recomputed is None else np.ascontiguousarray(recomputed.T))
        else:
            rows = self._least(of_stage, layers, np.ascontiguousarray(most.T))
        by_rank, head = stages_by_rank(self.config.schedule, pp, vpp), rank_of[-1]
        optimizer = rows[-1] if vpp == 1 else self._of(classes, layers[by_rank].sum(axis=0), 0, head)[-1]
        ahead, back = np.zeros(layers.shape), np.zeros(layers.shape)
        if pp > 1:
            ahead[:-1], back[1:] = self.messages[of_stage[:-1], of_stage[1:]], self.messages[of_stage[1:], of_stage[:-1]]
            for stage in range(pp * vpp - 1):
                if rank_of[stage] == rank_of[stage + 1]:  # no message: both are on one rank
                    ahead[stage] = back[stage + 1] = 0.0
        tied = self.tied[classes[0], classes[head]]
        found = candidates_of(self.config, self.config.num_microbatches[0], rows[:-1], optimizer, ahead, back, tied)
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

    def _least(self, classes: Ints, layers: Ints, most: Ints) -> Floats:
        """As `_of`, the least seconds of `layers` to `most` layers, none of them recomputed, in the most buckets, without
        slowdowns: a task and the reductions behind it end the sooner, the less either takes and the more buckets they have."""
        found = self._of(classes, layers, 0)
        for more in range(1, int((most - layers).max(initial=0)) + 1):
            other = self._of(classes, np.minimum(layers + more, most), 0)
            parts = np.maximum(found[PARTS], other[PARTS])
            found = np.minimum(found, other)
            found[PARTS] = parts
        found[SLOWS] = 0.0
        return found

    def _row(self, code: int, ends: int) -> tuple[float, ...]:
        code, recomputed = divmod(code, self._counts)
        which, layers = divmod(code, self._sizes)
        costs, specs = self.classes[which], self.specs[which]
        key = costs, specs, layers, recomputed, ends
        if key not in self._shared:
            if layers > 2 and not recomputed and is_linear(costs, specs):
                one, two = (self._row((which * self._sizes + few) * self._counts, ends) for few in (1, 2))
                self._shared[key] = extended(one, two, costs, layers, ends >= 2, ends % 2 == 1, specs)
                return self._shared[key]
            if recomputed:
                config = changed(costs.config, recompute="full", recompute_layers=(recomputed,))
                costs = replace(costs, config=config)
            stage = costs, layers, ends >= 2, ends % 2 == 1
            self._shared[key] = (*costs_of(*stage, specs), optimizer_of(*stage, specs))
        return self._shared[key]
