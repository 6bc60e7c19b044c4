"""The plans of today's search for islands on a changed fleet, with the sync strategy chosen anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.islands import row_limits, sync_rows
from planner.islands.allowed_sync import AllowedSync
from planner.islands.budgets import inside
from planner.islands.island_plans import Tried
from planner.islands.node_ranges import Partition
from planner.islands.search import SyncAnswer, best, priced
from planner.islands.sync_rows import SyncRow
from planner.placement.simulation import step
from planner.replan.rebasing import rebased
from planner.request import Request
from sim.islands.token_worth import worth_of
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.sync import Sync


def on_changed(
    answer: SyncAnswer,
    allowed: AllowedSync,
    request: Request,
    fault: Callable[[IslandsPlan], str] = lambda plan: "",
) -> SyncRow | None:
    """The best row of the plans of an answer on the topology of another request; None where none of them exists there.

    Layouts and devices stay (`planner.replan.rebasing.rebased`), and each allowed strategy is priced on the changed links; only
    today's where no island and no link is faster or slower. The batch of an island grows and shrinks with that of the request;
    of several divisions of the batch, the one with the shortest steps is taken. `fault` as in `plan_with_sync`."""
    before, limits = answer.best.plan.workload.global_batch_size, request.limits
    request = replace(request, limits=inside(limits))
    fastest: dict[Partition, tuple[Plan, ...]] = {}
    same = answer.best.plan.topology.fleet.trunks == request.topology.fleet.trunks
    for (partition, _), islands in answer.tried.items():
        there = _all_moved(islands, request, before)
        same &= all(new.prediction is old.prediction for new, old in zip(there, islands, strict=False))
        if there and (partition not in fastest or max(map(step, there)) < max(map(step, fastest[partition]))):
            fastest[partition] = there
    tried: Tried = {(partition, ()): islands for partition, islands in fastest.items()}
    settings = _settings(answer, allowed, request)
    if same and isinstance(answer.best.plan, IslandsPlan):
        there = _all_moved(answer.best.plan.islands, request, before)
        if there:
            tried, settings = {(answer.best.islands, ()): there}, [answer.best.plan.sync]
    found, _ = priced(tried, settings, fault)
    for row in (answer.exact, answer.alone) if allowed.exact else ():
        if row is not None and isinstance(row.plan, Plan):
            found += [sync_rows.of_plan(plan) for plan in _all_moved((row.plan,), request, before)]
    within = [row for row in found if not row_limits.fault(limits, row)]
    return best(within) if within else None


def _settings(answer: SyncAnswer, allowed: AllowedSync, request: Request) -> list[Sync]:
    """The allowed settings; where the worth of a token of the best row is known, those with a known worth only."""
    model = request.workload.model
    every = list(allowed.settings(model))
    if answer.best.worth is None or request.workload.adapter is not None:
        return every
    return [sync for sync in every if worth_of(sync, model.parameters, 2) is not None]


def _all_moved(plans: tuple[Plan, ...], request: Request, before: int) -> tuple[Plan, ...]:
    """Plans on the topology of the request, with the same shares of the batch, which was `before` sequences; none where one of
    them does not exist there, or where a limit or the target refuses it."""
    moved = []
    for plan in plans:
        batch, rest = divmod(plan.workload.global_batch_size * request.workload.global_batch_size, before)
        workload = replace(request.workload, global_batch_size=batch)
        found = None if rest else rebased(plan, request.topology, workload)
        if found is None or request.refuses(found):
            return ()
        moved.append(found)
    return tuple(moved)
