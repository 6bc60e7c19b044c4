"""Load of point-to-point messages: how long the busiest link takes for many transfers between pairs of ranks side by side.

Pairs at equivalent locations have equivalent paths over their own nodes' links (`sim.network.paths.path`). So a path is found
once for each kind of pair, and the loads of links are summed as arrays, in the order of the pairs: the same additions in the
same order as in `sim.network.alpha_beta.alpha_beta_cost`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.network.alpha_beta import AlphaBeta
from sim.network.hashes import hash_arrays
from sim.network.paths import Capacities, End, LinkName, Path, Traffic, path
from sim.network.rings import Integers, Sites
from sim.plan.plan import Plan

MAX_LINKS = 1 << 16
"""Exceeds the number of links of any path; a sort key is pair number x MAX_LINKS + number of the link on the pair's path."""


class P2PLoad:
    """Transfers from `source[i]` to `target[i]` (ranks), over NIC type `nics[i]` between nodes.

    `firsts` are indices of the first pair of each kind."""

    def __init__(self, plan: Plan, sites: Sites, source: Integers, target: Integers, nics: Sequence[str]):
        self.plan, self.sites, self.source, self.target, self.nics = plan, sites, source, target, nics
        numbers = {name: index for index, name in enumerate(dict.fromkeys(nics))}
        ends = [of[side] for side in (source, target) for of in (sites.cluster, sites.index)]
        near = 2 * (sites.node[source] == sites.node[target]) + (sites.leaf[source] == sites.leaf[target])
        kinds = hash_arrays(*ends, near, np.array([numbers[nic] for nic in nics]))
        _, self.firsts, self._kind = np.unique(kinds, return_index=True, return_inverse=True)

    def path(self, pair: int, operation: str, protocol: str = "") -> Path:
        """The path of the transfer of pair number `pair`."""
        a, b = (self.plan.placement[side[pair]] for side in (self.source, self.target))
        nic = "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else self.nics[pair]
        return path(self.plan.fleet, End(a, (a.index,)), End(b, (b.index,)), Traffic(nic, operation, 2, 2, protocol))

    def per_byte(self, operation: str, capacities: Capacities, protocol: str = "") -> float:
        """Seconds of the busiest link for each byte of every transfer."""
        numbers, rates = dict[LinkName, int](), list[float]()
        sites, width = self.sites, int(max(self.sites.node.max(), self.sites.leaf.max())) + 1
        links, weights, order_keys = [], [], []
        for kind, first in enumerate(self.firsts.tolist()):
            pairs = np.flatnonzero(self._kind == kind)
            for position, (link, weight) in enumerate(self.path(first, operation, protocol).use):
                of = sites.leaf if link[0] == "leaf" else sites.node
                at = 0 if link[0] == "trunk" else of[(self.source if link[-1] in ("out", "up") else self.target)[pairs]]
                number = numbers.setdefault(_without_number(link), len(numbers))
                if number == len(rates):
                    rates.append(capacities(link))
                links.append(number * width + at + np.zeros_like(pairs))
                weights.append(np.full(len(pairs), weight))
                order_keys.append(pairs * MAX_LINKS + position)
        order = np.argsort(np.concatenate(order_keys), kind="stable")
        named, which = np.unique(np.concatenate(links)[order], return_inverse=True)
        load = np.bincount(which, np.concatenate(weights)[order])
        return float(np.max(load / np.array(rates)[named // width]))

    def alpha_beta_cost(self, operation: str, capacities: Capacities) -> AlphaBeta:
        """Cost of one message of each pair; its latency is that of the first pair."""
        first = self.path(0, operation)
        return AlphaBeta(first.overhead + first.latency, self.per_byte(operation, capacities))


def _without_number(link: LinkName) -> LinkName:
    """The name of a link without the number of its node or leaf."""
    return link if link[0] == "trunk" else (*link[:3], *link[4:]) if link[0] == "leaf" else (*link[:2], *link[3:])
