"""What each sync strategy gives with the plans of some islands: tokens per second, and what a token is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from planner.islands.node_ranges import Partition
from planner.placement.simulation import step
from sim.errors import NoRoute
from sim.islands.exchange import Exchanges
from sim.islands.outer_period import simulate
from sim.islands.outer_timeline import Timing
from sim.islands.prediction import is_on_host, outer_state_bytes, prediction_of, steps_beside
from sim.islands.token_worth import EXACT, TokenWorth, token_worth
from sim.kernels import memory, offload
from sim.plan.islands import IslandsPlan
from sim.plan.plan import MadeBy, Plan
from sim.sync import Price, Sync


@dataclass(frozen=True, slots=True)
class SyncRow:
    """A plan and what it gives. islands: the clusters of each island; one for a plan without islands. sync: the strategy in
    words. worth: what a token is worth, None if unknown."""

    plan: Plan | IslandsPlan
    islands: Partition
    sync: str
    price: Price
    tokens_per_s: float
    worth: TokenWorth | None

    @property
    def effective(self) -> float | None:
        """Tokens of synchronous training per second that give the same loss; None if unknown."""
        return None if self.worth is None else self.tokens_per_s * self.worth.expected

    @property
    def short(self) -> str:
        """The strategy in few words."""
        return self.plan.sync.short if isinstance(self.plan, IslandsPlan) else self.sync

    @property
    def speed(self) -> float:
        """What rows are compared by: effective tokens per second, or tokens per second where their worth is unknown."""
        return self.tokens_per_s if self.effective is None else self.effective


def of_plan(plan: Plan) -> SyncRow:
    """The row of a plan without islands."""
    names = tuple(dict.fromkeys(device.cluster for device in plan.placement))
    assert plan.prediction is not None
    return SyncRow(plan, (names,), "exact", "exact", plan.prediction.tokens_per_s, EXACT)


def rows(
    partition: Partition, islands: tuple[Plan, ...], settings: Iterable[tuple[int, Sync]]
) -> Iterator[tuple[int, SyncRow]]:
    """(number, row) of each numbered setting whose state fits the islands' memory, none where nothing joins the islands."""
    inner, beside = tuple(map(step, islands)), None
    made_by = MadeBy("certified", islands[0].made_by.version)
    exchanges: Exchanges | None = None
    for number, sync in settings:
        plan = IslandsPlan(sync, islands, made_by)
        exchanges = exchanges or Exchanges(plan)
        try:
            cost = exchanges.cost(sync)
        except NoRoute:
            continue
        if not _fits(plan):
            continue
        overlaps = any(exchange.overlap for exchange in sync.exchanges)
        if overlaps and beside is None:
            beside = steps_beside(plan, cost, inner)
        timing = Timing(inner, beside if overlaps and beside else inner, cost)
        predicted = prediction_of(plan, timing, simulate(plan, timing))
        found = plan.annotated(predicted)
        yield number, SyncRow(found, partition, str(sync), sync.price, predicted.tokens_per_s, token_worth(found))


def _fits(plan: IslandsPlan) -> bool:
    """Whether outer state fits: on hosts, where their memory is known, or on devices beside what a step needs."""
    each = tuple(zip(plan.islands, outer_state_bytes(plan), strict=True))
    if is_on_host(plan):
        return all(offload.over_host_memory(island, more) is None for island, more in each)
    for island, more in each:
        free = 1.0 - island.topology.memory_headroom
        peaks = zip(memory.peak_memory(island), memory.limits(island), strict=True)
        if more and any(peak + more > limit * free for peak, limit in peaks):
            return False
    return True
