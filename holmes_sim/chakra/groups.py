"""Communication groups of a plan as traces number them, and the groups of each collective of a rank."""

from __future__ import annotations

from sim.network.gradient_routes import gradient_operations, gradient_parts
from sim.plan.derived_groups import embedding_groups, gradient_groups
from sim.plan.groups import Group
from sim.plan.plan import Plan


class Groups:
    """The numbered groups of a plan: `ranks[number]` are the ranks of a group in ring order.

    Numbers start at 1, because ASTRA-sim reads 0 as the group of all ranks. Groups of different kinds have different numbers
    even if they have the same ranks: ASTRA-sim matches the collectives of one number by their order, and collectives of
    different kinds have no common order.
    """

    def __init__(self, plan: Plan):
        self.ranks: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._parts: dict[tuple[str, int, str], list[tuple[int, str, float]]] = {}
        for group in (*plan.groups, *(embedding_groups(plan, plan.groups) if plan.workload.model.tied_embeddings else ())):
            if group.kind in ("tp", "cp", "ep", "embedding"):
                self._note(group.kind, "", group.ranks, "", 1.0)
        for group in gradient_groups(plan):
            for operation in gradient_operations(plan.config):
                self._note_gradients(group, operation, plan.config.zero_shard_size)

    def parts(self, kind: str, rank: int, operation: str) -> list[tuple[int, str, float]]:
        """The collectives that one collective of the plan consists of, in order: (number of the group, operation, share of the
        payload).

        There is one, or two for HSDP: blocks of ranks shard gradients, then ranks with the same shard reduce it across blocks.
        """
        found = self._parts.get((kind, rank, operation)) or self._parts[kind, rank, ""]
        return [(number, part or operation, share) for number, part, share in found]

    def _note_gradients(self, group: Group, operation: str, shard_size: int | None) -> None:
        """Number the groups of one gradient collective."""
        for rows, part, share in gradient_parts([group], operation, shard_size):
            for row in rows.tolist():
                self._note(group.kind, operation, tuple(row), part, share)

    def _note(self, kind: str, operation: str, ranks: tuple[int, ...], part: str, share: float) -> None:
        """Number one group, and record it for each of its ranks."""
        number = self._numbers.setdefault((kind, ranks), len(self._numbers) + 1)
        self.ranks[number] = ranks
        for rank in ranks:
            self._parts.setdefault((kind, rank, operation), []).append((number, part, share))
