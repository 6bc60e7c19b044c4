"""The groups of a plan as a trace names them, and which of them a rank's collective is over."""

from __future__ import annotations

from sim.network.gradient_routes import gradient_operations, gradient_parts
from sim.plan.derived_groups import embedding_groups, gradient_groups
from sim.plan.groups import Group
from sim.plan.plan import Plan


class Groups:
    """`ranks[number]` are the ranks of a group in ring order; 0 would be all ranks to ASTRA-sim, so numbers begin with 1.

    Groups of unlike kinds have numbers of their own even where their ranks are the same: collectives of a number are matched by
    their order, and those of two kinds have none."""

    def __init__(self, plan: Plan):
        self.ranks: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._parts: dict[tuple[str, int, str], list[tuple[int, str, float]]] = {}
        for group in (*plan.groups, *(embedding_groups(plan.groups) if plan.workload.model.tied_embeddings else ())):
            if group.kind in ("tp", "cp", "ep", "embedding"):
                self._note(group.kind, "", group.ranks, "", 1.0)
        for group in gradient_groups(plan):
            for operation in gradient_operations(plan.config):
                self._note_gradients(group, operation, plan.config.shards)

    def parts(self, kind: str, rank: int, operation: str) -> list[tuple[int, str, float]]:
        """(number of the group, operation, share of the payload) of what a collective is made of, one after the other.

        One, or two where blocks of ranks share gradients and then all reduce what they hold alike (HSDP)."""
        found = self._parts.get((kind, rank, operation)) or self._parts[kind, rank, ""]
        return [(number, part or operation, share) for number, part, share in found]

    def _note_gradients(self, group: Group, operation: str, shards: int) -> None:
        for rows, part, share in gradient_parts([group], operation, shards):
            for row in rows.tolist():
                self._note(group.kind, operation, tuple(row), part, share)

    def _note(self, kind: str, operation: str, ranks: tuple[int, ...], part: str, share: float) -> None:
        number = self._numbers.setdefault((kind, ranks), len(self._numbers) + 1)
        self.ranks[number] = ranks
        for rank in ranks:
            self._parts.setdefault((kind, rank, operation), []).append((number, part, share))
