"""Many transfers between pairs of ranks side by side, as arrays: how long the fullest link takes.

Pairs that lie alike take alike paths over their own nodes' links (`sim.network.routes.path`); so paths are looked at once for
each kind of pair, and only the sums over links for every pair. They are added up in the order of the pairs, as
`sim.network.routes.pace` does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.network.rings import Integers, Sites, mixed
from sim.network.routes import AlphaBeta, Capacities, LinkName, Path, path
from sim.plan.plan import Plan


class Pairs:
    """Transfers from `source[i]` to `target[i]` (ranks), over NIC type `nics[i]` where they leave a node.

    `firsts` are indices of the first pair of each kind."""

    def __init__(self, plan: Plan, sites: Sites, source: Integers, target: Integers, nics: Sequence[str]):
        self.plan, self.sites, self.source, self.target, self.nics = plan, sites, source, target, nics
        numbers = {name: index for index, name in enumerate(dict.fromkeys(nics))}
        ends = [of[side] for side in (source, target) for of in (sites.cluster, sites.index)]
        near = 2 * (sites.node[source] == sites.node[target]) + (sites.leaf[source] == sites.leaf[target])
        looks = mixed(*ends, near, np.array([numbers[nic] for nic in nics]))
        _, self.firsts, self._kind = np.unique(looks, return_index=True, return_inverse=True)

    def path(self, pair: int, operation: str, protocol: str = "") -> Path:
        """The path of a transfer of two ranks."""
        a, b = (self.plan.placement[side[pair]] for side in (self.source, self.target))
        nic = "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else self.nics[pair]
        return path(self.plan.fleet, nic, a, b, operation, (a.index,), (b.index,), 2, 2, protocol)

    def per_byte(self, operation: str, capacities: Capacities, protocol: str = "") -> float:
        """Seconds of the fullest link for each byte of every transfer."""
        numbers, rates = dict[LinkName, int](), list[float]()
        sites, width = self.sites, int(max(self.sites.node.max(), self.sites.leaf.max())) + 1
        links, weights, turns = [], [], []
        for kind, first in enumerate(self.firsts.tolist()):
            mine = np.flatnonzero(self._kind == kind)
            for turn, (link, weight) in enumerate(self.path(first, operation, protocol).use):
                of = sites.leaf if link[0] == "leaf" else sites.node
                at = 0 if link[0] == "trunk" else of[(self.source if link[-1] in ("out", "up") else self.target)[mine]]
                number = numbers.setdefault(_anywhere(link), len(numbers))
                if number == len(rates):
                    rates.append(capacities(link))
                links.append(number * width + at + np.zeros_like(mine))
                weights.append(np.full(len(mine), weight))
                turns.append(mine * TURNS + turn)
        order = np.argsort(np.concatenate(turns), kind="stable")
        named, which = np.unique(np.concatenate(links)[order], return_inverse=True)
        load = np.bincount(which, np.concatenate(weights)[order])
        return float(np.max(load / np.array(rates)[named // width]))

    def pace(self, operation: str, capacities: Capacities) -> AlphaBeta:
        """AlphaBeta of a message of each pair: the first one's latency."""
        first = self.path(0, operation)
        return AlphaBeta(first.overhead + first.latency, self.per_byte(operation, capacities))


TURNS = 1 << 16
"""More than the links of any path."""


def _anywhere(link: LinkName) -> LinkName:
    """The name of a link without the number of its node or leaf."""
    return link if link[0] == "trunk" else (*link[:3], *link[4:]) if link[0] == "leaf" else (*link[:2], *link[3:])
