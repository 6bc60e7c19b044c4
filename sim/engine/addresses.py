"""Addresses: the classes of carriers that a rank's sends, receives and collectives use."""

from __future__ import annotations

from typing import Any

from sim.engine.rank_plans import RankPlans
from sim.engine.state import Rank
from sim.engine.symmetry import Folding
from sim.plan.context_parallelism import parts
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.program import BESIDE, Action


class Addresses:
    """Finds the carriers of actions, which name peers by pipeline rank and groups by kind; each is found once."""

    def __init__(self, plan: Plan | PipelinesPlan, folding: Folding):
        self.plans, self.folding = RankPlans(plan), folding
        self._carriers: dict[tuple[int | str, ...], tuple[int, ...]] = {}

    def messages(self, rank: Rank, action: Action) -> tuple[tuple[Any, ...], ...]:
        """The keys of the messages of a send or recv (`Transfer.key`): one for each class of peers."""
        key = rank.index, action.kind, action.peer
        if key not in self._carriers:
            ends = ((rank.rank, peer) for peer in self._peers(rank.rank, action.peer))
            every = (self.folding.of["message", *(both if action.kind == "send" else both[::-1])] for both in ends)
            self._carriers[key] = tuple(dict.fromkeys(every))
        own = action.operation, action.stage, action.microbatch
        return tuple([(carrier, *own) for carrier in self._carriers[key]])

    def carriers(self, rank: Rank, action: Action) -> tuple[int, ...]:
        """The carriers of a collective or ring: one; of a tied embedding one for each class of peers; of gradients in unlike
        pipelines one for each slice of a section that the rank has."""
        operation = BESIDE.get(action.kind, action.operation)
        key = rank.index, action.group, operation, action.section
        if key not in self._carriers:
            names: list[tuple[int, ...]]
            if action.group == "embedding":
                names = [*self._tied_pairs(rank.rank)]
            elif action.group in GRADIENT_KINDS and self.plans.sections:
                names = [(action.section, one) for one in self._slices(rank.rank, action.section, action.group)]
            else:
                names = [(self._first(rank.rank, action.group, operation),)]
            every = (self.folding.of[action.group, *name, operation] for name in names)
            self._carriers[key] = tuple(dict.fromkeys(every))
        return self._carriers[key]

    def _peers(self, rank: int, pp_rank: int) -> tuple[int, ...]:
        """The ranks of a pipeline rank that hold a part of what a rank holds of an activation."""
        plan, own = self.plans.of(rank)
        return tuple(rank - own + peer for peer in plan.config.peers(own, pp_rank))

    def _slices(self, rank: int, section: int, group: str) -> list[int]:
        """The slices of a section's weights that a rank has: of its dense weights, or of its routed experts."""
        (plan, within), (*_, pp_rank) = self.plans.of(rank), self.plans.coordinates(rank)
        config = plan.config
        return self.plans.sections[section].slices_of(config.of_pp_rank(pp_rank), within - config.first_rank(pp_rank), group)

    def _first(self, rank: int, group: str, operation: str) -> int:
        """The first rank of a rank's group of a kind, or of the part of it that runs an operation."""
        (plan, within), (tp, dp_cp, pp_rank) = self.plans.of(rank), self.plans.coordinates(rank)
        config = plan.config.of_pp_rank(pp_rank)
        start, mesh, width = rank - within + plan.config.first_rank(pp_rank), config.expert_mesh, config.expert_tp
        own, context = rank - start, dp_cp % config.cp
        mine = next(one for one in parts(config, operation, config.cp) if context in range(config.cp)[one])
        firsts = {
            "tp": own - tp,
            "cp": own - config.tp * (context - mine.start),
            "dp": tp,
            "etp": own - own % width,
            "ep": own - own % mesh + own % width,
            "edp": own % mesh,
        }
        first: int = firsts[group]
        return start + first

    def _tied_pairs(self, rank: int) -> list[tuple[int, int]]:
        """The pairs of ranks that share a part of a tied embedding, of which this rank is one."""
        if self.plans.coordinates(rank)[2] == 0:
            plan, _ = self.plans.of(rank)
            return [(rank, peer) for peer in self._peers(rank, plan.config.rank_of(plan.head_stage))]
        return [(peer, rank) for peer in self._peers(rank, 0)]
