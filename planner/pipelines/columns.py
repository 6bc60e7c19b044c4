"""Columns of the master programme: plans of alike replicas on parts of a fleet, each with what its step takes.

Their sequences and experts are whole. Columns with context parallelism, and those of mixtures with expert parallelism, are
found for chosen parts, after these (`divide_sequences`, `divide_experts`).

The step of a plan is linear in its samples: what fills and drains the pipelines, then equal seconds for each further
microbatch. Both are taken from the closed form of two steps. A third term is the reduction of gradients over all replicas of
the fleet, which is not in the plan: the seconds of the busiest link of its nodes, if one more replica takes part in each ring
from another node. All are estimates that choose what is simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from planner.bounds.pipeline_modes import context_degrees
from planner.costs.context import PlanningContext
from planner.pipelines.gradients import gradient_seconds
from planner.pipelines.parts import Part, peak
from planner.placement.simulation import FastestTimeline, fits
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from planner.space.sequences_and_experts import SHORT_TOKENS, is_measured
from planner.strategies import certified
from planner.time_limit import TimeLimit
from sim.analytic.plan_costs import step_seconds, steps_seconds
from sim.errors import HolmesError
from sim.plan.expert_parallelism import DISPATCHERS
from sim.plan.groups import groups_of
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.units import Seconds

PINNED = Wishes(schedule="1f1b", vpp=1, zero_stage=1, cp=1, ep=1)
"""What plans of unlike pipelines have in common, or cannot have otherwise (`sim.plan.pipelines.check_modelled`), and the cp
and ep of most columns."""
BUDGETS = Budgets(
    first_shapes=8, draft_shapes=0, first_variants=8, other_variants=0, first_estimates=2, first_evaluated=8,
    first_improved=2, restaged_shapes=0, first_tries=1, alone_tries=1, mixed_tries=1,
)  # fmt: skip
"""Budgets of the search for one column, half of the usual ones or less (a guess), without a draft: tens of columns are
searched."""

LEAST_S: Seconds = 0.1
"""Time limit of the search for a column that begins as the time is up (a guess)."""

LEAST_CP = 2
"""The smallest degree of context parallelism, which is tried for all sequences."""

LEAST_SEVERAL = 2
"""Replicas of a column with several on one node whose fastest plan has one: a slow node's share of a small batch may be a
single sample."""

LARGER = 2
"""Doublings of the microbatch size of a plan that are columns, too (a guess)."""


@dataclass(frozen=True, slots=True)
class Column:
    """The plan of a part: `fixed_s` seconds of a step, `each_s` for each microbatch of the replica with most of them, and
    `gradients_s` for the gradients, where one more replica takes part (an estimate). offered: whether the master programme has
    the column. Others take its place at the end: those of numbers of stages that are slower alone, and microbatches larger than
    those of the fastest plan, into which few batches can be divided."""

    part: Part
    plan: Plan
    fixed_s: Seconds
    each_s: Seconds
    gradients_s: Seconds
    offered: bool = True

    def step(self, microbatches: int) -> Seconds:
        """Estimated seconds of a step without the reduction of gradients, with so many microbatches on all replicas."""
        return self.fixed_s + self.each_s * -(-microbatches // self.plan.config.dp)

    @property
    def key(self) -> tuple[Part, int, int, int, int, int, int, int]:
        """The part, and what tells its columns apart: dp, tp, cp, ep and etp, pp and microbatch size."""
        config = self.plan.config
        return self.part, config.dp, config.tp, config.cp, config.ep, config.expert_tp, config.pp, config.microbatch_size

    def gradients(self, replicas: int) -> Seconds:
        """Estimated seconds of the gradients of so many replicas: a rank of a ring of n sends (n - 1) / n of a buffer. Those
        of other columns are taken to have cp 1 and ep 1; where this one divides experts, theirs are taken for all gradients."""
        config = self.plan.config
        here, ranks = config.edp + 1, max(replicas - config.dp + config.edp, 2)
        return self.gradients_s * (ranks - 1) / ranks * here / (here - 1)

    def samples(self, deadline: Seconds) -> int:
        """Samples that the part computes within a deadline."""
        replica = int((deadline - self.fixed_s) / self.each_s * (1 + 1e-9))
        return max(replica, 0) * self.plan.config.dp * self.plan.config.microbatch_size


class Columns:
    """The columns of a request, each found on first use: those with one replica apart from all others."""

    def __init__(self, request: Request, progress: Callable[[str], None] = lambda text: None, limit: TimeLimit | None = None):
        self.request, self.progress, self._limit = request, progress, limit or TimeLimit(request.time_limit)
        self._clusters = tuple(request.clusters())
        self._pinned = replace(PINNED, ep=None) if divides_experts(request) else PINNED
        self._found: dict[tuple[Part, bool], tuple[Column, ...]] = {}
        self._under: dict[tuple[object, ...], Column | None] = {}
        self._contexts: dict[tuple[Part, int], PlanningContext] = {}  # which know the costs on a part for a share of the batch
        self._divided, self._of_experts = set[tuple[Part, bool]](), set[tuple[Part, bool]]()
        self.searched = 0

    @property
    def known(self) -> tuple[Column, ...]:
        """The columns found so far."""
        return tuple(column for some in self._found.values() for column in some)

    def is_known(self, part: Part, one: bool) -> bool:
        """Whether the columns of a part, or that it has none, are known: those with `one` replica, or with several."""
        return (part, one) in self._found

    def of(self, part: Part, one: bool) -> tuple[Column, ...]:
        """The columns of a part with `one` replica, or with several; none where the model has no such plan on it."""
        if (part, one) not in self._found:
            names = (f"{number} x {cluster.name}" for number, cluster in zip(part, self._clusters, strict=True) if number)
            self.progress(f"{'a pipeline' if one else 'pipelines'} on {' + '.join(names)}")
            self._found[part, one] = tuple(self._search(part, one))
        return self._found[part, one]

    def divide_sequences(self, part: Part, one: bool) -> None:
        """Find columns of a part with context parallelism inside nodes, too: the fastest for each degree; none for measured
        devices."""
        if (part, one) in self._divided or is_measured(self.request):
            return
        self._divided.add((part, one))
        known = self.of(part, one)
        own = (cluster.node.count for cluster, number in zip(self._clusters, part, strict=True) if number)
        for cp in context_degrees(self.request, max(own)):
            if cp > 1 and (cp == LEAST_CP or self.request.workload.seq_len >= cp * SHORT_TOKENS) and not self._limit.is_up():
                plan = self._plan(part, replace(self._pinned, cp=cp, dp=1 if one else None))
                if plan is not None and (one or plan.config.dp > 1) and _is_inside_nodes(plan):
                    known = (*known, *self._of_sizes(part, plan, True))
        self._found[part, one] = known

    def divide_experts(self, part: Part, one: bool) -> None:
        """Find the columns of the fastest plan of a part that may divide experts, too; none where no column may."""
        if (part, one) in self._of_experts or not divides_experts(self.request):
            return
        self._of_experts.add((part, one))
        known, plan = self.of(part, one), self._plan(part, replace(self._pinned, dp=1 if one else None))
        if plan is not None and plan.config.splits_experts and (one or plan.config.dp > 1):
            self._found[part, one] = (*known, *self._of_sizes(part, plan, True))

    def under(self, column: Column, schedule: str) -> Column | None:
        """A column under another schedule; None where it does not fit, or the schedule cannot run it."""
        key = *column.key, schedule
        if key not in self._under:
            self._under[key] = column if schedule == column.plan.config.schedule else _rescheduled(column, schedule)
        return self._under[key]

    def _search(self, part: Part, one: bool) -> Iterator[Column]:
        """The fastest plan of a part; where it has one replica and tensor parallelism also the fastest without, which reduces
        some gradients earlier, and on one node the fastest with one stage, which fills no pipeline, or with two, which reduce
        gradients one after the other. Each also with smaller microbatches, which divide a batch more finely, and with larger
        ones, of which a small share needs few."""
        pinned = replace(PINNED, dp=1) if one else PINNED
        plan = self._plan(part, pinned)
        if not one and sum(part) == 1 and plan is not None and plan.config.dp == 1:
            plan = self._plan(part, replace(pinned, dp=LEAST_SEVERAL)) or plan
        plans: list[tuple[Plan | None, bool]] = [(plan, True)] if plan is not None and (one or plan.config.dp > 1) else []
        if plan is not None and sum(part) > 1 and (plan.config.pp < sum(part) if not one else _nodes(plan) < sum(part)):
            plans.append((self._plan(part, replace(pinned, pp=sum(part))), True))
        if one and plan is not None:
            if plan.config.tp > 1:
                plans.append((self._plan(part, replace(pinned, tp=1)), True))
            if sum(part) == 1:
                plans.append((self._plan(part, replace(pinned, pp=1 if plan.config.pp > 1 else 2)), False))
        seen = set[tuple[int, ...]]()
        for each, offered in plans:
            if each is None or (not one and each.config.dp == 1):
                continue
            if (degrees := (each.config.tp, each.config.pp, each.config.ep, each.config.expert_tp)) in seen:
                continue
            seen.add(degrees)
            yield from self._of_sizes(part, each, offered)

    def _of_sizes(self, part: Part, plan: Plan, offered: bool) -> Iterator[Column]:
        """The columns of a plan with microbatches of each size."""
        usual, gradients = plan.config.microbatch_size, gradient_seconds(self._clusters, part, plan)
        for size in _sizes(usual, self.request.workload.global_batch_size // plan.config.dp):
            if (column := _column(part, plan, size, gradients)) is not None:
                yield replace(column, offered=offered and size <= usual)

    def _plan(self, part: Part, wishes: Wishes) -> Plan | None:
        """Plan a part for its share of the batch, by the peaks of its devices."""
        self.searched += 1
        whole = self.request.workload.global_batch_size
        share = peak(self.request, part) / peak(self.request, tuple(cluster.nodes for cluster in self._clusters))
        batch = max(1 << max(round(whole * share).bit_length() - 1, 0), wishes.dp or 1)
        machines = tuple((cluster.name, number) for cluster, number in zip(self._clusters, part, strict=True) if number)
        if (known := self._contexts.get((part, batch))) is None:
            workload = replace(self.request.workload, global_batch_size=batch)
            known = PlanningContext(replace(self.request, workload=workload, machines=machines, target=None))
            self._contexts[part, batch] = known
        request = replace(known.request, wishes=wishes, time_limit=max(self._limit.seconds_left, LEAST_S))
        context = known.of(request)
        context.punctual = True
        context.proves, context.timelines = False, ClosedForms()
        try:
            return certified.plan(request, context, BUDGETS)
        except HolmesError:
            return None


def layouts(columns: Sequence[Column]) -> tuple[tuple[object, ...], ...]:
    """What tells columns apart but for the sizes of their microbatches."""
    return tuple(sorted(column.key[:-1] for column in columns))


def is_resized(column: Column, other: Column) -> bool:
    """Whether a column is another one with microbatches of half the size, of the same, or of twice the size."""
    alike = column.key[:-1] == other.key[:-1] and column.plan.stages == other.plan.stages
    small, large = sorted((column.plan.config.microbatch_size, other.plan.config.microbatch_size))
    return alike and column.plan.placement == other.plan.placement and large in (small, 2 * small)


def divides_experts(request: Request) -> bool:
    """Whether columns may divide experts: not of measured devices, and where tokens travel as in plans of unlike pipelines."""
    stack, model = request.topology.stack, request.workload.model
    usual = stack.dispatcher == DISPATCHERS[0] and not stack.overlap_expert_communication and not stack.overlap_shared_experts
    return model.experts > 0 and usual and request.workload.adapter is None and not is_measured(request)


class ClosedForms(FastestTimeline):
    """Closed forms in place of simulations: they price the column, too, and a simulation of tens of stages takes seconds."""

    def simulate_up_to(self, plan: Plan, limit: Seconds) -> Plan:
        """The plan with the closed form of its step; all else in its prediction is 0."""
        return plan.annotated(prediction=Prediction(step_seconds(plan), 0.0, 0.0, 0.0, 0.0, (), 0.0, 0.0, 0.0))


def _is_inside_nodes(plan: Plan) -> bool:
    """Whether all ranks of each context-parallel group are on one node."""
    groups = ([plan.placement[rank] for rank in group.ranks] for group in plan.groups if group.kind == "cp")
    return all(len({(device.cluster, device.node) for device in devices}) == 1 for devices in groups)


def _nodes(plan: Plan) -> int:
    """Number of nodes that a plan uses."""
    return len({(device.cluster, device.node) for device in plan.placement})


def _sizes(size: int, largest: int) -> list[int]:
    """Microbatch sizes of the columns of a plan that has one of them: all halves, and `LARGER` of its doubles."""
    halves = [size >> power for power in range(size.bit_length()) if size % (1 << power) == 0]
    return halves + [size << power for power in range(1, LARGER + 1) if size << power <= largest]


def _column(part: Part, plan: Plan, size: int, gradients: Seconds) -> Column | None:
    """The column of a plan with microbatches of a size: its steps with many and with half as many of them; None where it does
    not fit."""
    many = max(*plan.config.num_microbatches, 4 * plan.config.pp)
    plans = [of_samples(plan, (number,) * plan.config.dp, size) for number in (many, many // 2)]
    if not all(map(fits, plans)):
        return None
    long, short = steps_seconds(plans)
    each = (long - short) / (many - many // 2)
    return Column(part, plans[0], long - many * each, each, gradients) if each > 0 else None


def _rescheduled(column: Column, schedule: str) -> Column | None:
    """A column under another schedule, as `Columns.under` gives it."""
    config = replace(column.plan.config, schedule=schedule)
    try:
        found = _column(column.part, replace(column.plan, config=config), config.microbatch_size, column.gradients_s)
    except HolmesError:  # a schedule may need more microbatches, or no recomputation
        return None
    return replace(found, offered=column.offered) if found is not None else None


def of_samples(plan: Plan, microbatches: tuple[int, ...], size: int) -> Plan:
    """A plan with other microbatches of its replicas and of another size, as an entry of unlike pipelines may have them."""
    config = replace(
        plan.config, num_microbatches=microbatches, microbatch_size=size, sequence_parallel=True, tied_shards=False
    )
    workload = replace(plan.workload, global_batch_size=sum(microbatches) * config.microbatch_size)
    groups = groups_of(plan.fleet, config, plan.placement)
    return Plan(replace(plan.topology, workload=workload), workload, config, plan.stages, plan.placement, groups, plan.made_by)
