"""Numbering of ranks.

Ranks are numbered in Megatron-LM's default order tp-cp-ep-dp-pp (RankGenerator in megatron/core/parallel_state.py): tp varies
fastest, pp slowest. For dense layers the order is tp-cp-dp-pp; the cp x dp ranks of a stage that hold the same dense weights
share one index, `dp_cp`, in which cp varies fastest. Expert parallelism takes its ranks from the same index, ep fastest: ep
divides cp x dp, and cp x dp / ep ranks hold the same experts. Stages of unlike degrees are numbered one after the other, each
in this order (as FlagScale numbers its process meshes).

Where stages have unlike dp, `dp` counts the replicas (pipelines), and a stage with dp k times as large has k ranks for each
tensor-parallel rank of a replica: k consecutive dp indices, each with an equal part of the samples of every microbatch.

Where stages have unlike cp, a rank of a stage with cp n has the chunks r and 2n - 1 - r of the 2n chunks of a sequence
(r: its cp index). With cp k n, the ranks r k to r k + k - 1 have the same tokens: each a part of both chunks, from the front of
the first and from the end of the second. Their tp ranks have slices of these (`sim.plan.token_parts`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from sim.plan import token_parts


class KeptHash:
    """Room for the hash of an object, which is computed once. It is not pickled: other processes hash texts in other ways."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class RankNumbering(KeptHash):
    """The degrees that number ranks, and the indices of every rank.

    `stage_tp`: the tensor-parallel degree of every pipeline rank, where they differ; `tp` is the largest of them, which all
    others divide. Empty: all have `tp`. `stage_dp` and `stage_cp`: likewise the data- and the context-parallel degree; `dp` and
    `cp` are the smallest of them, which divide all others. `other_dp_cp`: the sum of dp x cp of the other pipelines, where
    pipelines are unlike (`sim.plan.pipelines`): their ranks hold the same weights, and gradients are summed over all."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    stage_tp: tuple[int, ...] = ()
    stage_dp: tuple[int, ...] = ()
    stage_cp: tuple[int, ...] = ()
    other_dp_cp: int = 0

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.first_rank(self.pp)

    @property
    def dp_cp(self) -> int:
        """dp x cp: ranks of a stage that hold the same dense weights and reduce their gradients together (`dp_cp_of`, where
        stages have unlike dp)."""
        return self.dp * self.cp

    @property
    def most_dp_cp(self) -> int:
        """The largest `dp_cp_of` all pipeline ranks."""
        return max(self.stage_dp, default=self.dp) * self.most_cp

    @property
    def most_cp(self) -> int:
        """The largest context-parallel degree of all pipeline ranks."""
        return max(self.stage_cp, default=self.cp)

    @property
    def has_stage_degrees(self) -> bool:
        """Whether pipeline ranks differ in tp, dp or cp."""
        return bool(self.stage_tp or self.stage_dp or self.stage_cp)

    @property
    def gradient_ranks(self) -> int:
        """`dp_cp`, and that of other pipelines: all ranks that reduce the gradients of the same dense weights."""
        return self.dp_cp + self.other_dp_cp

    @property
    def sums_gradients(self) -> bool:
        """Whether several ranks hold the same dense weights, on any pipeline rank."""
        return self.dp > 1 or self.cp > 1 or self.other_dp_cp > 0 or self.most_dp_cp > 1

    @property
    def degrees(self) -> tuple[int, ...]:
        """Tensor-parallel degree of every pipeline rank."""
        return self.stage_tp or (self.tp,) * self.pp

    @property
    def tp_text(self) -> str:
        """The tensor-parallel degree as text; of unlike ones each with its number of pipeline ranks in a row: `8x1+2x3`."""
        return degrees_text(self.stage_tp, self.tp)

    @property
    def dp_text(self) -> str:
        """The data-parallel degree as text, of unlike ones as `tp_text`."""
        return degrees_text(self.stage_dp, self.dp)

    def tp_of(self, pp_rank: int) -> int:
        """Tensor-parallel degree of a pipeline rank."""
        return self.stage_tp[pp_rank] if self.stage_tp else self.tp

    def dp_of(self, pp_rank: int) -> int:
        """Data-parallel degree of a pipeline rank."""
        return self.stage_dp[pp_rank] if self.stage_dp else self.dp

    def cp_of(self, pp_rank: int) -> int:
        """Context-parallel degree of a pipeline rank."""
        return self.stage_cp[pp_rank] if self.stage_cp else self.cp

    def context_of(self, pp_rank: int) -> tuple[int, int]:
        """(cp, tp) of a pipeline rank: the ranks of a replica that divide the tokens of its samples."""
        return self.cp_of(pp_rank), self.tp_of(pp_rank)

    def dp_cp_of(self, pp_rank: int) -> int:
        """dp x cp of a pipeline rank: the number of its dp_cp indices."""
        return self.dp_of(pp_rank) * self.cp_of(pp_rank)

    def row_of(self, part: int, pp_rank: int) -> int:
        """The dp_cp index on a pipeline rank that has a part of the samples and sequences, of as many as the largest dp and cp
        make (`most_dp_cp`): those of the first samples first."""
        samples, tokens = divmod(part, self.most_cp)
        dp = samples * self.dp_of(pp_rank) * self.most_cp // self.most_dp_cp
        return dp * self.cp_of(pp_rank) + tokens * self.cp_of(pp_rank) // self.most_cp

    def split_of(self, pp_rank: int) -> int:
        """Ranks of a pipeline rank among which the samples of a microbatch are divided."""
        return self.dp_of(pp_rank) // self.dp

    def first_rank(self, pp_rank: int) -> int:
        """The first rank of a pipeline rank; of `pp`, the number of ranks."""
        if not self.has_stage_degrees:
            return self.dp_cp * self.tp * pp_rank
        return sum(self.tp_of(earlier) * self.dp_cp_of(earlier) for earlier in range(pp_rank))

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(tp, dp_cp, pp) indices of a rank; dp_cp = cp index + cp x dp index = ep index + ep x expert-data-parallel index."""
        if not self.has_stage_degrees:
            return rank % self.tp, rank // self.tp % self.dp_cp, rank // (self.tp * self.dp_cp)
        left = rank
        for pp_rank, tp in enumerate(self.degrees):
            if left < (ranks := tp * self.dp_cp_of(pp_rank)):
                return left % tp, left // tp, pp_rank
            left -= ranks
        raise IndexError(f"rank {rank} of {self.world_size}")

    def rank(self, tp: int, dp_cp: int, pp: int) -> int:
        """The rank of (tp, dp_cp, pp) indices, the inverse of `coordinates`."""
        return self.first_rank(pp) + self.tp_of(pp) * dp_cp + tp

    def peers(self, rank: int, pp_rank: int) -> tuple[int, ...]:
        """The ranks of a pipeline rank that hold a part of what the given rank, of the same replica, holds of an activation.

        With equal degrees it is the rank with the same tp and dp_cp indices. A rank of a stage with a smaller tp has several
        peers, each with a slice of every sample, and several ranks of a stage with a larger tp have one; likewise with dp,
        where a peer has some of the samples, and with cp, where it has some of the tokens (`token_parts.exchanged`). Peers are
        in the order of their samples, then of their cp and tp indices."""
        tp, dp_cp, own = self.coordinates(rank)
        width = self.cp_of(pp_rank)
        dp, cp = divmod(dp_cp, self.cp_of(own))
        samples = _overlap(dp, self.dp_of(own), self.dp_of(pp_rank))
        if self.cp_of(own) != width:
            found = tuple(token_parts.exchanged((cp, tp), self.context_of(own), self.context_of(pp_rank)))
        else:
            found = tuple((cp, one) for one in _overlap(tp, self.tp_of(own), self.tp_of(pp_rank)))
        return tuple(self.rank(one, width * some + part, pp_rank) for some in samples for part, one in found)

    def sharing(self, pp_rank: int, other: int) -> int:
        """Number of peers of a rank of a pipeline rank on another one, each with an equal part of its tokens."""
        if self.cp_of(pp_rank) != self.cp_of(other):
            return len(token_parts.exchanged((0, 0), self.context_of(pp_rank), self.context_of(other)))
        return max(self.tp_of(other) // self.tp_of(pp_rank), 1)


def _overlap(index: int, mine: int, theirs: int) -> range:
    """The parts of a whole cut into `theirs` equal parts that share something with part `index` of `mine`."""
    first = index * theirs // mine
    return range(first, first + max(theirs // mine, 1))


def degrees_text(degrees: tuple[int, ...], alike: int) -> str:
    """Degrees of the pipeline ranks as text, as `RankNumbering.tp_text`; `alike`: that of all, where there are none."""
    runs = ((degree, len(list(ranks))) for degree, ranks in itertools.groupby(degrees))
    return "+".join(f"{degree}x{many}" for degree, many in runs) or str(alike)
