"""Numbering of ranks.

Ranks are numbered in Megatron-LM's default order tp-cp-ep-dp-pp (RankGenerator in megatron/core/parallel_state.py): tp varies
fastest, pp slowest. For dense layers the order is tp-cp-dp-pp; the cp x dp ranks of a stage that hold the same dense weights
share one index, `dp_cp`, in which cp varies fastest. Expert parallelism takes its ranks from the same index, ep fastest: ep
divides cp x dp, and cp x dp / ep ranks hold the same experts. Stages of unlike tp are numbered one after the other, each in
this order (as FlagScale numbers its process meshes).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankNumbering:
    """The degrees that number ranks, and the indices of every rank.

    `stage_tp`: the tensor-parallel degree of every pipeline rank, where they differ; `tp` is the largest of them, which all
    others divide. Empty: all have `tp`."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    stage_tp: tuple[int, ...] = ()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.first_rank(self.pp)

    @property
    def dp_cp(self) -> int:
        """dp x cp: ranks of a stage that hold the same dense weights and reduce their gradients together."""
        return self.dp * self.cp

    @property
    def degrees(self) -> tuple[int, ...]:
        """Tensor-parallel degree of every pipeline rank."""
        return self.stage_tp or (self.tp,) * self.pp

    @property
    def tp_text(self) -> str:
        """The tensor-parallel degree as text; of unlike ones each with its number of pipeline ranks in a row: `8x1+2x3`."""
        runs = ((tp, len(list(ranks))) for tp, ranks in itertools.groupby(self.stage_tp))
        return "+".join(f"{tp}x{many}" for tp, many in runs) or str(self.tp)

    def tp_of(self, pp_rank: int) -> int:
        """Tensor-parallel degree of a pipeline rank."""
        return self.stage_tp[pp_rank] if self.stage_tp else self.tp

    def first_rank(self, pp_rank: int) -> int:
        """The first rank of a pipeline rank; of `pp`, the number of ranks."""
        return self.dp_cp * (sum(self.stage_tp[:pp_rank]) if self.stage_tp else self.tp * pp_rank)

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(tp, dp_cp, pp) indices of a rank; dp_cp = cp index + cp x dp index = ep index + ep x expert-data-parallel index."""
        if not self.stage_tp:
            return rank % self.tp, rank // self.tp % self.dp_cp, rank // (self.tp * self.dp_cp)
        for pp_rank, tp in enumerate(self.stage_tp):
            if rank < tp * self.dp_cp:
                return rank % tp, rank // tp, pp_rank
            rank -= tp * self.dp_cp
        raise IndexError(f"rank {rank + self.world_size} of {self.world_size}")

    def rank(self, tp: int, dp_cp: int, pp: int) -> int:
        """The rank of (tp, dp_cp, pp) indices, the inverse of `coordinates`."""
        return self.first_rank(pp) + self.tp_of(pp) * dp_cp + tp

    def peers(self, rank: int, pp_rank: int) -> tuple[int, ...]:
        """The ranks of a pipeline rank that hold a part of what the given rank, of the same replica, holds of an activation.

        With equal degrees it is the rank with the same tp index. A rank of a narrower stage has several peers, and several
        ranks of a wider stage have one."""
        tp, dp_cp, own = self.coordinates(rank)
        mine, theirs = self.tp_of(own), self.tp_of(pp_rank)
        each = max(theirs // mine, 1)
        first = self.rank(tp * theirs // mine, dp_cp, pp_rank)
        return tuple(range(first, first + each))
