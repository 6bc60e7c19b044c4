"""Components: ranks whose steady states are independent of one another, because only gradient collectives join them."""

from __future__ import annotations

from sim.engine.disjoint_sets import DisjointSets
from sim.engine.symmetry import Folding
from sim.plan.amax import shares_amax
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.parallel_config import ParallelConfig


def components(folding: Folding, config: ParallelConfig) -> tuple[tuple[int, ...], ...]:
    """Classes of ranks by connected component, found by union-find over the carriers and links that join them.

    Gradient collectives and their links do not join: they run at the begin and at the end of a step, and in between replicas
    are independent. All classes form one component in two cases: replicas reduce something in each microbatch, or some gradient
    collective has no rank in some component. While that component is postponed, such a collective could begin on its links,
    although the component's own transfers are not simulated then."""
    together = (tuple(range(len(folding.representatives))),)
    if config.reduces_each_microbatch or shares_amax(config):
        return together
    joined = DisjointSets()  # classes of ranks have numbers from 0, links below 0
    gradients = {index for key, index in folding.of.items() if key[0] in GRADIENT_KINDS}
    for index, carrier in enumerate(folding.carriers):
        if index not in gradients:
            links = [~link for route in carrier.routes for leg in route.legs for link, _ in leg.use]
            joined.join(*carrier.members, *links)
    found: dict[int, list[int]] = {}
    for member in together[0]:
        found.setdefault(joined.root(member), []).append(member)
    if any(len({joined.root(member) for member in folding.carriers[index].members}) < len(found) for index in gradients):
        return together
    return tuple(tuple(part) for part in found.values())
