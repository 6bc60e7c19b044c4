"""Prediction of a plan of islands: the inner step of each, the exchanges, and the outer period in steady state."""

from __future__ import annotations

from dataclasses import replace

from sim import aggregation
from sim.engine.engine import simulate as simulate_step
from sim.engine.faults import NO_FAULTS, DrawnFaults
from sim.engine.symmetry import fold
from sim.islands.exchange import ExchangeCost, exchange_cost
from sim.islands.outer_period import simulate
from sim.islands.outer_timeline import OuterTimeline, Timing
from sim.islands.parameter_shares import largest_share
from sim.network.paths import Capacities
from sim.plan.islands import IslandsPlan, IslandsPrediction
from sim.plan.plan import Plan
from sim.sync import get
from sim.units import Bytes, Seconds

NEGLIGIBLE = 0.01
"""Share of a link's rate below which the bytes of an exchange are taken as not slowing an inner step. A guess."""


def inner_steps(plan: IslandsPlan, drawn: DrawnFaults = NO_FAULTS) -> tuple[Seconds, ...]:
    """Simulated seconds of an inner step of each island, without exchanges."""
    return tuple(_step(island, drawn) for island in plan.islands)


def timing(plan: IslandsPlan, inner: tuple[Seconds, ...] = (), drawn: DrawnFaults = NO_FAULTS) -> Timing:
    """What the simulation of an outer period needs. `inner`: the seconds of inner steps, if they are known."""
    cost, inner = exchange_cost(plan), inner or inner_steps(plan, drawn)
    beside = steps_beside(plan, cost, inner) if any(exchange.overlap for exchange in plan.sync.exchanges) else inner
    return Timing(inner, beside, cost, weak=dict(drawn.weak), outages=dict(drawn.down))


def predict(plan: IslandsPlan, inner: tuple[Seconds, ...] = ()) -> tuple[OuterTimeline, IslandsPrediction]:
    """Simulate the outer periods of a plan. `inner`: the seconds of inner steps, if they are known."""
    given = timing(plan, inner)
    timeline = simulate(plan, given)
    return timeline, prediction_of(plan, given, timeline)


def prediction_of(plan: IslandsPlan, given: Timing, timeline: OuterTimeline) -> IslandsPrediction:
    """The prediction of a plan from its simulated outer periods."""
    steps, islands = plan.sync.inner_steps, range(len(plan.islands))
    periods = [timeline.period_s(island) for island in islands]
    slowest = max(given.inner)
    exchange = given.cost.seconds(Capacities(plan.fleet), sum(e.share for e in plan.sync.exchanges))
    rates = [island.workload.tokens * steps / period for island, period in zip(plan.islands, periods, strict=True)]
    flops = sum(island.workload.flops * steps / period for island, period in zip(plan.islands, periods, strict=True))
    peak = sum(i.fleet.spec(device).peak_of(i.workload.precision) for i in plan.islands for device in i.placement)
    waits = bool(plan.sync.exchanges)
    return IslandsPrediction(
        period_s=max(periods),
        inner_step_s=given.inner,
        exchange_s=exchange,
        exposed_s=max(max(periods) - steps * slowest, 0.0),
        waiting_s=tuple(steps * (slowest - own) if waits else 0.0 for own in given.inner),
        tokens_per_s=sum(rates),
        mfu=flops / peak,
    )


def outer_state_bytes(plan: IslandsPlan) -> tuple[Bytes, ...]:
    """Outer state, error feedback and the values of other islands that an aggregation keeps, of the rank with most of them, of
    each island: on the host, or on the device where the gradients of each step are exchanged (`is_on_host`)."""
    parameters = plan.workload.trained_parameters
    each = plan.sync.state_bytes + 4.0 * aggregation.get(plan.sync.aggregation).kept(len(plan.islands))
    return tuple(each * parameters * largest_share(island) for island in plan.islands)


def is_on_host(plan: IslandsPlan) -> bool:
    """Whether the host keeps the outer state."""
    return get(plan.sync.strategy).OUTER != "step"


def _step(plan: Plan, drawn: DrawnFaults) -> Seconds:
    """Simulated seconds of a step of an island."""
    return simulate_step(plan, fold(plan, drawn), drawn).step_s


def steps_beside(plan: IslandsPlan, cost: ExchangeCost, inner: tuple[Seconds, ...]) -> tuple[Seconds, ...]:
    """Seconds of an inner step of each island while an exchange has its share of the NICs and trunks that it uses."""
    capacities = Capacities(plan.fleet)
    rate = 1 / max((weight / capacities(link) for link, weight in cost.use), default=float("inf"))
    taken = {link: rate * weight / capacities(link) for link, weight in cost.use if link[0] in ("nic", "trunk")}
    weak = tuple((link, 1 - share) for link, share in taken.items() if NEGLIGIBLE < share < 1)
    found = []
    for island, seconds in zip(plan.islands, inner, strict=True):
        clusters = {device.cluster for device in island.placement}
        own = tuple((link, share) for link, share in weak if link[1] in clusters)
        slowed = replace(NO_FAULTS, weak=own)
        found.append(max(seconds, _step(island, slowed)) if own else seconds)
    return tuple(found)
