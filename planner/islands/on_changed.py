"""The plans of today's search for islands on a changed fleet, with the sync strategy chosen anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.islands import row_limits, sync_rows
from planner.islands.allowed_sync import AllowedSync
from planner.islands.budgets import inside
from planner.islands.island_plans import Tried
from planner.islands.search import SyncAnswer, best, priced
from planner.islands.sync_rows import SyncRow
from planner.replan.rebasing import rebased
from planner.request import Request
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan


def on_changed(
    answer: SyncAnswer,
    allowed: AllowedSync,
    request: Request,
    fault: Callable[[IslandsPlan], str] = lambda plan: "",
) -> SyncRow | None:
    """The best row of the plans of an answer on the topology of another request; None where none of them exists there.

    Layouts and devices stay (`planner.replan.rebasing.rebased`), and each allowed strategy is priced on the changed links. The
    batch of an island grows and shrinks with that of the request. `fault` as in `planner.islands.search.plan_with_sync`."""
    before, limits = answer.best.plan.workload.global_batch_size, request.limits
    request = replace(request, limits=inside(limits))
    tried: Tried = {}
    for (partition, _), islands in answer.tried.items():
        moved = [_moved(island, request, before) for island in islands]
        there = tuple(island for island in moved if island is not None)
        if len(there) == len(islands):
            tried[partition, tuple(plan.workload.global_batch_size for plan in there)] = there
    found, _ = priced(tried, request.workload.model, allowed, fault)
    for row in (answer.exact, answer.alone) if allowed.exact else ():
        if row is not None and isinstance(row.plan, Plan):
            plan = _moved(row.plan, request, before)
            found += [sync_rows.of_plan(plan)] if plan is not None else []
    within = [row for row in found if not row_limits.fault(limits, row)]
    return best(within) if within else None


def _moved(plan: Plan, request: Request, before: int) -> Plan | None:
    """The plan on the topology of the request, with the same share of the batch, which was `before` sequences; None where it
    does not exist there, or where a limit or the target refuses it."""
    batch, rest = divmod(plan.workload.global_batch_size * request.workload.global_batch_size, before)
    if rest:
        return None
    found = rebased(plan, request.topology, replace(request.workload, global_batch_size=batch))
    return found if found is not None and not request.refuses(found) else None
