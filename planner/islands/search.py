"""Search for a plan with a sync strategy between islands: `plan_with_sync(request, allowed)`.

1. The exact plan of the whole fleet, and that of the largest island alone with the whole batch, are planned as ever: they are
   what islands must beat.
2. For each partition of the clusters, the finest first, the batch is divided in proportion to the peaks of the islands, each
   island is planned with its batch, and the batch is divided anew by their speeds if the steps are not equal.
3. For each setting of an allowed sync strategy, the outer period is simulated with these plans.
4. The best row is the one with most effective tokens per second; where no worth is known, with most tokens per second. Of
   nearly equal ones it is that with the least price, then the fewest inner steps.
5. Where everything is allowed, the exact plan is also simulated with compressed messages between clusters, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from planner import api
from planner.costs.context import PlanningContext
from planner.islands import sync_rows
from planner.islands.allowed_sync import AllowedSync
from planner.islands.batches import divided, unit
from planner.islands.certificate import certificate
from planner.islands.island_plans import IslandPlans, alike
from planner.islands.message_rows import message_rows
from planner.islands.partitions import Partition, partitions
from planner.islands.sync_rows import SyncRow
from planner.placement.simulation import step
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan

UNEQUAL, DIVISIONS = 0.02, 3
"""Relative difference of inner steps from which the batch is divided anew, and how often it is divided at most. Guesses."""
NEAR = 0.005
"""Relative difference of tokens per second up to which two rows count as equal; then the one that gives up less is better. A
guess, far below the errors of a prediction."""
Tried = dict[tuple[Partition, tuple[int, ...]], tuple[Plan, ...]]


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The best row; other rows, those of the exact plan with compressed messages (`planner.islands.message_rows`) and then the
    best one of each sync strategy and partition; and the exact plans of the whole fleet and of one island alone, where there
    are any. `refused`: why there is no plan of islands, if there is none."""

    best: SyncRow
    rows: tuple[SyncRow, ...]
    exact: SyncRow | None
    alone: SyncRow | None
    refused: str = ""


def plan_with_sync(
    request: Request,
    allowed: AllowedSync,
    progress: Callable[[str], None] = lambda text: None,
    fault: Callable[[IslandsPlan], str] = lambda plan: "",
) -> SyncAnswer:
    """The best plan with one of the allowed sync strategies between islands. Raises Infeasible where there is none.

    fault: what a launch target cannot launch of a plan of islands, empty if it can; plans with a fault are left out."""
    limit, parts = TimeLimit(request.time_limit), partitions(request)[::-1]  # the finest first
    searches = {alike(request, names) for partition in parts for names in partition}
    plans = IslandPlans(request, limit, progress, len(searches) + 1)
    exact = _exact(request, limit.seconds_left / (len(searches) + 2), progress)
    alone, refused = None, "no link joins two clusters, so that there are no islands" if not parts else ""
    if parts:
        try:
            alone = plans.plan(
                max(parts[0], key=lambda names: sync_rows.peak(request, names)), request.workload.global_batch_size
            )
        except Infeasible as error:
            refused = str(error)
    tried: Tried = {}
    for partition in parts:
        if not tried or not limit.is_up():
            tried |= _with_batches(partition, plans)
    settings = list(allowed.settings(request.workload.model))
    priced = [row for (partition, _), islands in tried.items() for row in sync_rows.rows(partition, islands, settings)]
    faults = [fault(row.plan) if isinstance(row.plan, IslandsPlan) else "" for row in priced]
    found = [row for row, one in zip(priced, faults, strict=True) if not one]
    refused = refused or next((one for one in faults if one), "")
    exact_row, alone_row = (sync_rows.of_plan(plan) if plan is not None else None for plan in (exact, alone))
    candidates = [*found, *(row for row in (exact_row, alone_row) if row is not None and allowed.exact)]
    if not candidates:
        raise Infeasible(f"no plan with --sync {allowed.text}: {refused or 'memory, or no route between islands'}")
    chosen = best(candidates)
    if isinstance(chosen.plan, IslandsPlan):
        assert chosen.plan.prediction is not None
        certified = chosen.plan.annotated(chosen.plan.prediction, certificate(chosen.plan, tried))
        chosen = replace(chosen, plan=certified)
    messages = message_rows(exact) if exact is not None and allowed.messages else ()
    return SyncAnswer(chosen, (*messages, *_best_of_each(found)), exact_row, alone_row, "" if found else refused)


def best(candidates: Iterable[SyncRow]) -> SyncRow:
    """The row with most effective tokens per second among those of known worth, else with most tokens per second.

    Of rows within `NEAR` of it, the one that gives up least: by its price, its inner steps, and its compression."""
    every = list(candidates)
    known = [row for row in every if row.effective is not None]
    score = {id(row): row.effective if row.effective is not None else row.tokens_per_s for row in known or every}
    most = max(score.values())
    near = [row for row in known or every if score[id(row)] >= most * (1 - NEAR)]
    return min(near, key=lambda row: (PRICES.index(row.price), *_given_up(row), -score[id(row)]))


PRICES = ("exact", "bounded", "changed")
"""Prices from the least to the largest."""


def _given_up(row: SyncRow) -> tuple[int, float]:
    """Inner steps of an outer period, and how much smaller compression makes a value."""
    if isinstance(row.plan, Plan):
        return 1, 0.0
    return row.plan.sync.inner_steps, -row.plan.sync.bytes_per_parameter(row.plan.workload.model)


def _exact(request: Request, seconds: float, progress: Callable[[str], None]) -> Plan | None:
    """The plan of the whole fleet without islands; None where there is none."""
    inside = replace(request, time_limit=max(seconds, 1.0))
    try:
        return api.plan(inside, context=PlanningContext(inside, lambda text: progress(f"exact: {text}"), punctual=True))
    except Infeasible:
        return None


def _with_batches(partition: Partition, plans: IslandPlans) -> Tried:
    """Plans of the islands of a partition: for a batch divided by their peaks, then twice by the speeds that they have; none
    where an island has no plan."""
    batch = plans.request.workload.global_batch_size
    if batch // unit(batch) < len(partition):
        return {}
    found: Tried = {}
    speeds = tuple(sync_rows.peak(plans.request, names) for names in partition)
    for _ in range(DIVISIONS):
        batches = divided(batch, speeds)
        if (partition, batches) in found:
            break
        try:
            islands = tuple(plans.plan(names, own) for names, own in zip(partition, batches, strict=True))
        except Infeasible:
            break
        found[partition, batches] = islands
        steps = tuple(map(step, islands))
        if max(steps) <= min(steps) * (1 + UNEQUAL) or plans.limit.is_up():
            break
        speeds = tuple(own / seconds for own, seconds in zip(batches, steps, strict=True))
    return found


def _best_of_each(rows: list[SyncRow]) -> list[SyncRow]:
    """The best row of each sync strategy and partition, those with most tokens per second first."""
    groups: dict[tuple[object, ...], list[SyncRow]] = {}
    for row in rows:
        assert isinstance(row.plan, IslandsPlan)
        groups.setdefault((row.islands, row.plan.sync.strategy), []).append(row)
    return sorted((best(group) for group in groups.values()), key=lambda row: -row.tokens_per_s)
