"""The certificate of a plan of islands: no plan of the stated islands, batches and sync strategy has a shorter inner step."""

from __future__ import annotations

import math
from collections.abc import Iterable

from planner.islands.island_plans import Tried
from planner.islands.node_ranges import Partition, name_of, partition_text
from sim import sync
from sim.islands.exchange import Exchanges
from sim.network.paths import Capacities
from sim.plan.certificate import Axis, Certificate
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.units import Seconds

OPTIMAL_GAP = 0.005
"""Gap up to which a plan is called optimal, that of `planner.search.budgets`."""

OUTSIDE = ("other islands and batches", "other divisions of required devices and rent")
"""What is not searched of islands."""


def certificate(plan: IslandsPlan, tried: Tried, required: tuple[str, ...] = ()) -> Certificate:
    """The certificate of a simulated plan of islands.

    tried: (partition, batches) -> plans of the islands, each with a certificate of its own. The objective is the mean seconds
    of an inner step with its part of the exchanges. Its lower bound is the least over all that was tried of the largest lower
    bound of an island, and the seconds that two islands wait for the bytes of their exchange on the link between them.
    required: limits of all islands together, in words."""
    assert plan.prediction is not None
    steps = plan.sync.inner_steps
    objective = plan.prediction.period_s / steps
    bounds = [
        max(map(_lower_bound, islands)) + _waits(plan, partition, islands) / steps for (partition, _), islands in tried.items()
    ]
    bound = min([objective, *bounds])
    proofs = [island.certificate for islands in tried.values() for island in islands if island.certificate is not None]
    gap = 1 - bound / objective
    return Certificate(
        status="optimal" if gap <= OPTIMAL_GAP else "feasible",
        objective_s=objective,
        lower_bound_s=bound,
        gap=gap,
        solver="+".join(dict.fromkeys(name for proof in proofs for name in proof.solver.split("+"))),
        time_limit_reached=any(proof.time_limit_reached for proof in proofs),
        space=(
            Axis("sync", (str(plan.sync),)),
            Axis("islands", tuple(_text(partition, batches) for partition, batches in tried)),
            *(axis for axis in proofs[0].space if axis.name not in ("sync", "islands", "required")),
            *((Axis("required", required),) if required else ()),
        ),
        outside=(*OUTSIDE, *proofs[0].outside),
    )


def most_tokens_per_s(exact: Iterable[Plan], tried: Tried, strategies: Iterable[str]) -> float:
    """Tokens per second that no exact plan, and no plan of the searched islands and batches with any setting of some sync
    strategies, exceeds; infinite without a proof. Effective ones neither: no token is worth more than one of exact training.

    Islands that exchange something go on together, so that all are as slow as the slowest inner step; others go on alone."""
    together = all(sync.get(name).SENDS for name in strategies)
    found = [_rate(plan) for plan in exact]
    for islands in tried.values():
        slowest = max(map(_lower_bound, islands))
        if together:
            found.append(sum(island.workload.tokens for island in islands) / slowest if slowest else math.inf)
        else:
            found.append(sum(map(_rate, islands)))
    return max(found, default=math.inf)


def _rate(plan: Plan) -> float:
    """Tokens per second that no plan in place of this one exceeds."""
    bound = _lower_bound(plan)
    return plan.workload.tokens / bound if bound else math.inf


def _lower_bound(plan: Plan) -> Seconds:
    """A lower bound on the inner step of any plan of an island."""
    return plan.certificate.lower_bound_s if plan.certificate is not None else 0.0


def _waits(plan: IslandsPlan, partition: Partition, islands: tuple[Plan, ...]) -> Seconds:
    """Seconds of an outer period in which two islands wait for bytes on trunks, whatever their layouts: all bytes of an
    exchange cross the trunks, and no inner step runs beside.

    None for more islands, which may order their ring in another way, and for islands of several clusters: a plan on some of
    them may have another NIC type in common with the other island."""
    waited = sum(exchange.share for exchange in plan.sync.exchanges if not exchange.overlap)
    if len(islands) > 2 or any(len(names) > 1 for names in partition) or not waited:
        return 0.0
    cost, capacities = Exchanges(IslandsPlan(plan.sync, islands, plan.made_by)).cost(plan.sync), Capacities(plan.fleet)
    crossed = [weight / capacities(link) for link, weight in cost.use if link[0] == "trunk"]
    return waited * cost.payload * max(crossed, default=0.0)


def _text(partition: Partition, batches: tuple[int, ...]) -> str:
    if len(batches) > 2:
        alike = f"{batches[0]} each" if len(set(batches)) == 1 else ", ".join(map(str, batches))
        return f"{partition_text(partition)}: batch {alike}"
    return " | ".join(f"{name_of(island)}: batch {batch}" for island, batch in zip(partition, batches, strict=True))
