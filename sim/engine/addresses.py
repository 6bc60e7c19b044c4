"""Addresses: the classes of carriers that a rank's sends, receives and collectives use."""

from __future__ import annotations

from typing import Any

from sim.engine.state import Rank
from sim.engine.symmetry import Folding
from sim.plan.plan import Plan
from sim.plan.program import BESIDE, Action


class Addresses:
    """Finds the carriers of actions, which name peers by pipeline rank and groups by kind; each is found once."""

    def __init__(self, plan: Plan, folding: Folding):
        self.config, self.folding, self._head = plan.config, folding, plan.config.rank_of(plan.head_stage)
        self._carriers: dict[tuple[int, str, str | int], tuple[int, ...]] = {}

    def messages(self, rank: Rank, action: Action) -> tuple[tuple[Any, ...], ...]:
        """The keys of the messages of a send or recv (`Transfer.key`): one for each class of peers."""
        key = rank.index, action.kind, action.peer
        if key not in self._carriers:
            ends = ((rank.rank, peer) for peer in self.config.peers(rank.rank, action.peer))
            every = (self.folding.of["message", *(both if action.kind == "send" else both[::-1])] for both in ends)
            self._carriers[key] = tuple(dict.fromkeys(every))
        return tuple((carrier, action.operation, action.stage, action.microbatch) for carrier in self._carriers[key])

    def carriers(self, rank: Rank, action: Action) -> tuple[int, ...]:
        """The carriers of a collective or ring: one, or of a tied embedding one for each class of peers."""
        operation = BESIDE.get(action.kind, action.operation)
        key = rank.index, action.group, operation
        if key not in self._carriers:
            firsts = self._tied_pairs(rank.rank) if action.group == "embedding" else [(self._first(rank.rank, action.group),)]
            every = (self.folding.of[action.group, *first, operation] for first in firsts)
            self._carriers[key] = tuple(dict.fromkeys(every))
        return self._carriers[key]

    def _first(self, rank: int, group: str) -> int:
        """The first rank of a rank's group of a kind."""
        config, (tp, dp_cp, pp_rank) = self.config, self.config.coordinates(rank)
        start, mesh, width = config.first_rank(pp_rank), config.expert_mesh, config.expert_tp
        own = rank - start
        firsts = {
            "tp": own - tp,
            "cp": own - config.tp_of(pp_rank) * (dp_cp % config.cp),
            "dp": tp,
            "etp": own - own % width,
            "ep": own - own % mesh + own % width,
            "edp": own % mesh,
        }
        return start + firsts[group]

    def _tied_pairs(self, rank: int) -> list[tuple[int, int]]:
        """The pairs of ranks that share a part of a tied embedding, of which this rank is one."""
        if self.config.coordinates(rank)[2] == 0:
            return [(rank, peer) for peer in self.config.peers(rank, self._head)]
        return [(peer, rank) for peer in self.config.peers(rank, 0)]
