"""Search for a plan with a sync strategy between islands: `plan_with_sync(request, allowed)`.

1. The exact plan of the whole fleet, and that of the largest island alone with the whole batch, are planned as ever: they are
   what islands must beat.
2. For each partition of the clusters, the finest first, then with some of its islands left out, then with clusters that have a
   thin network cut into ranges of nodes (`planner.islands.node_ranges`), the batch is divided in proportion to the peaks of
   the islands, each island is planned with its batch, and the batch is divided anew by their speeds if the steps are not
   equal. At last that of the fastest islands is divided in smaller units.
3. For each setting of an allowed sync strategy, the outer period is simulated with these plans.
4. The best row is the one with most effective tokens per second; where no worth is known, with most tokens per second. Of
   nearly equal ones it is that with the least price, then the fewest inner steps.
5. Where everything is allowed, exact plans with compressed messages between clusters are searched, for comparison; where only
   they are allowed, the fastest is the answer (`planner.islands.message_rows`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from planner import api
from planner.islands import row_limits, sync_rows
from planner.islands.allowed_sync import AllowedSync
from planner.islands.budgets import check_limits, divisions
from planner.islands.certificate import certificate, most_tokens_per_s
from planner.islands.island_plans import IslandPlans, Tried, alike, exact_plan, with_batches, with_finer_batches
from planner.islands.message_rows import message_rows, plans_for_messages
from planner.islands.node_ranges import Partition, with_cut_clusters
from planner.islands.partitions import partitions, peak, with_some_left_out
from planner.islands.sync_rows import SyncRow
from planner.placement.simulation import step
from planner.request import Request
from planner.space.unrunnable import fault_of_every_shape
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.plan.islands import IslandsPlan, check_exchanged
from sim.plan.plan import Plan
from sim.sync import PRICES, Sync

NEAR = 0.005
"""Relative difference of tokens per second up to which two rows count as equal; then the one that gives up less is better. A
guess, far below the errors of a prediction."""
PRICING = 0.25
"""Share of the time limit that the plans of islands leave for the simulation of their sync strategies (a guess)."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The best row; other rows, those of the exact plan with compressed messages (`planner.islands.message_rows`) and then the
    best one of each sync strategy and partition; and the exact plans of the whole fleet and of one island alone, where there
    are any. `refused`: why there is no plan of islands, if there is none; `interrupted`: Ctrl-C ended the search. `tried`: the
    plans of the islands. `at_most`: tokens per second that no searched plan exceeds, whatever its strategy
    (`planner.islands.certificate.most_tokens_per_s`). `every`: the rows of all settings and of the exact plans that are allowed
    and keep to the limits."""

    best: SyncRow
    rows: tuple[SyncRow, ...]
    exact: SyncRow | None
    alone: SyncRow | None
    refused: str = ""
    interrupted: bool = False
    tried: Tried = field(default_factory=dict)
    at_most: float = math.inf
    every: tuple[SyncRow, ...] = ()

    @property
    def gap(self) -> float:
        """How much of what no searched plan exceeds the best row is short of, a fraction: what a better plan could gain."""
        return max(1 - self.best.speed / self.at_most, 0.0)


def plan_with_sync(
    request: Request,
    allowed: AllowedSync,
    progress: Callable[[str], None] = lambda text: None,
    fault: Callable[[IslandsPlan], str] = lambda plan: "",
    each_alone: bool = False,
) -> SyncAnswer:
    """The best plan with one of the allowed sync strategies between islands. Raises Infeasible where there is none, NotModelled
    for PowerSGD of adapters, KeyboardInterrupt where Ctrl-C ended the search before one was found.

    fault: what a launch target cannot launch of a plan of islands, empty if it can; plans with a fault are left out.
    each_alone: each island is planned alone, too, not the largest one only; as where the cost is limited."""
    check_exchanged(request.workload, allowed.compressions)
    check_limits(request.limits)
    _check_target(request, allowed)
    limit = TimeLimit(request.time_limit)
    with limit.sooner(PRICING * request.time_limit if math.isfinite(request.time_limit) else 0.0):
        plans = _plans(request, allowed, progress, each_alone or request.limits.cost is not None, limit)
    progress("simulating sync strategies")
    islands, faults = priced(plans.tried, list(allowed.settings(request.workload.model)), fault, limit)
    whole = sync_rows.of_plan(plans.whole) if plans.whole is not None else None
    alone = [sync_rows.of_plan(plan) for plan in plans.alone]
    exact = [*([whole] if whole is not None else ()), *alone]
    compressed = [*message_rows(plans.messages, request)]
    rows = [*islands, *(exact if allowed.exact else ()), *(compressed if not allowed.exact and not allowed.names else ())]
    refused = plans.refused or min(faults, key=len, default="")  # the shortest has the fewest reasons
    if not rows and plans.interrupted:
        raise KeyboardInterrupt
    if not rows:
        raise Infeasible(f"no plan with --sync {allowed.text}: {refused or 'memory, or no route between islands'}")
    without = [row.plan for row in exact if allowed.exact and isinstance(row.plan, Plan)]
    at_most = most_tokens_per_s(without, plans.tried, allowed.names)
    over = {id(row): row_limits.fault(request.limits, row) for row in (*rows, *exact)}
    within = [row for row in rows if not over[id(row)]]
    if not within:
        raise row_limits.refusal(request.limits, rows, best(rows), at_most, allowed.text)
    chosen = best(within)
    if isinstance(chosen.plan, IslandsPlan):
        assert chosen.plan.prediction is not None
        proof = certificate(chosen.plan, plans.tried, tuple(request.limits.words()))
        chosen = replace(chosen, plan=chosen.plan.annotated(chosen.plan.prediction, proof))
    whole = whole if whole is not None and not over[id(whole)] else None
    fastest = max((row for row in alone if not over[id(row)]), key=lambda row: row.tokens_per_s, default=None)
    kept = [row for row in islands if not over[id(row)]]
    if islands and not kept:
        nearest = best(islands)
        refused = f"{nearest.short} has {over[id(nearest)]}"
    others = (*compressed, *_best_of_each(kept))
    facts = (
        whole,
        fastest,
        "" if kept or not (allowed.names or allowed.exact) else refused,
        plans.interrupted,
        plans.tried,
        at_most,
        tuple(within),
    )
    return SyncAnswer(chosen, others, *facts)


def _check_target(request: Request, allowed: AllowedSync) -> None:
    """Raise Infeasible, with the remedies of `planner.api.plan`, where the target can run no layout of the workload: then no
    island has a plan, either."""
    if fault_of_every_shape(request):
        try:
            api.plan(request)
        except Infeasible as error:
            raise Infeasible(f"no plan with --sync {allowed.text}: {error}") from None


@dataclass(slots=True)
class _Plans:
    """Plans that were found, before a sync strategy is chosen: of the whole fleet, of one island alone, of the islands, and for
    each compression of messages between clusters. `refused` and `interrupted` as in `SyncAnswer`."""

    whole: Plan | None = None
    messages: dict[str, list[Plan]] = field(default_factory=dict)
    alone: list[Plan] = field(default_factory=list)
    tried: Tried = field(default_factory=dict)
    refused: str = ""
    interrupted: bool = False


def _plans(
    request: Request, allowed: AllowedSync, progress: Callable[[str], None], each_alone: bool, limit: TimeLimit
) -> _Plans:
    """The exact plans and the plans of islands of a request; each island alone, or the largest one only."""
    parts = _parts(request) if allowed.names or allowed.exact else []
    searches = sum(len({alike(request, names) for names in part}) * len(divisions(request, part)) for part in parts)
    searches += len(allowed.messages)
    plans = IslandPlans(request, limit, progress, searches + 1)
    found = _Plans(refused=_no_islands(allowed) if not parts else "")
    try:
        found.whole = exact_plan(request, limit.seconds_left / (searches + 2), progress)
        by_peak = sorted(parts[0], key=lambda names: -peak(request, names)) if parts else []
        for names in by_peak if each_alone else by_peak[:1]:
            try:
                found.alone.append(plans.plan(names, request.workload.global_batch_size))
            except Infeasible as error:
                found.refused = str(error)
        for partition in parts:
            if not found.tried or not limit.is_up():
                found.tried |= with_batches(partition, plans)
        if found.tried:
            found.tried |= with_finer_batches(found.tried, plans)
        found.messages = plans_for_messages(request, allowed.messages, limit, progress)
    except KeyboardInterrupt:  # go on with what was found
        found.interrupted = True
    if (whole := found.whole) is not None:
        for text in allowed.messages:
            found.messages.setdefault(text, []).append(whole)
    return found


def _no_islands(allowed: AllowedSync) -> str:
    """Why there are no islands to plan."""
    if allowed.names or allowed.exact:
        return (
            "no link joins two clusters, and the network between nodes is fast enough for the gradients of each step, so that "
            "there are no islands; nodes that may be one anyway need to be a cluster of their own"
        )
    return "no message of the plans that were found goes from one cluster to another"


def priced(
    tried: Tried, settings: Sequence[Sync], fault: Callable[[IslandsPlan], str], limit: TimeLimit | None = None
) -> tuple[list[SyncRow], list[str]]:
    """(a row for each setting with the plans of each set of islands, the faults of those that are left out).

    Where the time is up, those that were simulated until then: the islands with the shortest steps come first."""
    found, faults = dict[tuple[int, int], SyncRow](), list[str]()
    keys, order = list(tried), _in_turn(settings)
    for number in sorted(range(len(keys)), key=lambda number: max(map(step, tried[keys[number]]))):
        for index, row in sync_rows.rows(keys[number][0], tried[keys[number]], [(index, settings[index]) for index in order]):
            one = fault(row.plan) if isinstance(row.plan, IslandsPlan) else ""
            if one:
                faults.append(one)
            else:
                found[number, index] = row
            if found and limit is not None and limit.is_up():
                return [found[key] for key in sorted(found)], faults
    return [found[key] for key in sorted(found)], faults


def _in_turn(settings: Sequence[Sync]) -> list[int]:
    """Indices of the settings: the first one of each strategy, then the second ones, and so on; last those whose exchanges run
    beside inner steps, which are simulated for them."""
    times = Counter[str]()
    turns = list[tuple[bool, int, int]]()
    for index, sync in enumerate(settings):
        turns.append((any(exchange.overlap for exchange in sync.exchanges), times[sync.strategy], index))
        times[sync.strategy] += 1
    return [index for *_, index in sorted(turns)]


def _parts(request: Request) -> list[Partition]:
    """Partitions in the order in which they are tried: the finest, those that leave some of its islands out, coarser ones,
    those with islands inside clusters."""
    found = partitions(request)[::-1]
    base = found[0] if found else tuple((cluster.name,) for cluster in request.clusters())
    cut = with_cut_clusters(request, base)[::-1]
    return [*found[:1], *(with_some_left_out(request, base) if found else ()), *found[1:], *cut]


def best(candidates: Iterable[SyncRow]) -> SyncRow:
    """The row with most effective tokens per second among those of known worth, else with most tokens per second.

    Of rows within `NEAR` of it, the one that gives up least: by its price, its inner steps, and its compression."""
    every = list(candidates)
    known = [row for row in every if row.effective is not None]
    most = max(row.speed for row in known or every)
    near = [row for row in known or every if row.speed >= most * (1 - NEAR)]
    return min(near, key=lambda row: (tuple(PRICES).index(row.price), *given_up(row), -row.speed))


def given_up(row: SyncRow) -> tuple[int, float]:
    """Inner steps of an outer period, and how much smaller compression makes a value."""
    if isinstance(row.plan, Plan):
        return 1, 0.0
    return row.plan.sync.inner_steps, -row.plan.sync.bytes_per_parameter(row.plan.workload.model)


def _best_of_each(rows: list[SyncRow]) -> list[SyncRow]:
    """The best row of each sync strategy and partition, those with most tokens per second first."""
    groups: dict[tuple[object, ...], list[SyncRow]] = {}
    for row in rows:
        assert isinstance(row.plan, IslandsPlan)
        groups.setdefault((row.islands, row.plan.sync.strategy), []).append(row)
    return sorted((best(group) for group in groups.values()), key=lambda row: -row.tokens_per_s)
