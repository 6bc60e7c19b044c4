"""Cost and energy of plans of islands: those of `sim.results.cost_energy` for each island, and its waits."""

from __future__ import annotations

from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.results.cost_energy import idle_watts, occupied, occupied_rent
from sim.units import JoulesPerToken, UsdPerSecond, UsdPerToken


def rent(plan: Plan | IslandsPlan) -> UsdPerSecond | None:
    """Rent of all devices of the nodes with a rank, of a plan or of all islands; None if one has no price."""
    rents = [occupied_rent(one) for one in (plan.islands if isinstance(plan, IslandsPlan) else (plan,))]
    known = [one for one in rents if one is not None]
    return sum(known) if len(known) == len(rents) else None


def usd_per_token(plan: IslandsPlan) -> UsdPerToken | None:
    """Rent of the occupied devices of all islands for a token; None if one of them has no price."""
    assert plan.prediction is not None
    paid = rent(plan)
    return None if paid is None else paid / plan.prediction.tokens_per_s


def joules_per_token(plan: IslandsPlan) -> JoulesPerToken | None:
    """Energy of the occupied devices of all islands for a token; None if one of them has no watts, or an inner step no energy.

    An inner step takes the energy of a step of the island's plan. In the rest of the outer period, in which an island waits for
    exchanges and for slower islands, devices draw their idle watts. Exchanges add nothing, like communication that overlaps
    compute."""
    assert plan.prediction is not None
    steps, joules = plan.sync.inner_steps, 0.0
    for island, inner in zip(plan.islands, plan.prediction.inner_step_s, strict=True):
        of_step = island.prediction.joules_per_token if island.prediction is not None else None
        if of_step is None:
            return None
        idle = sum(devices * idle_watts(cluster.node.device) for cluster, devices in occupied(island))
        waits = max(plan.prediction.period_s - steps * inner, 0.0)
        joules += steps * of_step * island.workload.tokens + waits * idle
    return joules / (plan.prediction.tokens_per_s * plan.prediction.period_s)
