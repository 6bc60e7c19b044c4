"""Seconds of links that the reductions of gradients of a simulation take together, whatever else shares the links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from sim.engine.communication import Communication
from sim.plan.program import Action
from sim.units import Seconds

Reductions: TypeAlias = frozenset[tuple[int, Action]]
"""Reductions of gradients: the carrier and the action of each, which all ranks that take part have in common."""
NO_REDUCTIONS: Reductions = frozenset()

MOST = 256
"""Reductions of a set, after which no more are added (a guess): where every microbatch has some, those of the last ones. More
take longer, and are loads of a link that compute hides."""


class LinkLoads:
    """Loads of sets of reductions; equal sets are one object, so that each is added up once.

    In unlike pipelines, where ranks that reduce together do not have the same action, no reduction counts."""

    def __init__(self, communication: Communication):
        self.communication = communication
        self._counts = not communication.addresses.plans.sections
        self._sets: dict[Reductions, Reductions] = {NO_REDUCTIONS: NO_REDUCTIONS}
        self._unions: dict[tuple[Reductions, Reductions], Reductions] = {}
        self._seconds: dict[Reductions, Seconds] = {}

    def union(self, one: Reductions, other: Reductions) -> Reductions:
        """The reductions of both sets."""
        key = one, other
        if key not in self._unions:
            both = one | other
            self._unions[key] = self._sets.setdefault(both, both)
        return self._unions[key]

    def with_one(self, others: Reductions, carriers: Iterable[int], action: Action) -> Reductions:
        """A set and one more reduction, on all of its carriers."""
        if not self._counts or len(others) >= MOST:
            return others
        added = frozenset((carrier, action) for carrier in carriers)
        return self.union(others, added)

    def seconds(self, reductions: Reductions) -> Seconds:
        """Seconds that the reductions take of the link that they take longest."""
        if reductions not in self._seconds:
            links: dict[int, Seconds] = {}
            for carrier, action in reductions:
                for link, seconds in self.communication.seconds_of_links(carrier, action):
                    links[link] = links.get(link, 0.0) + seconds
            self._seconds[reductions] = max(links.values(), default=0.0)
        return self._seconds[reductions]
