"""Costs of many candidate pipelines of one schedule, as arrays: the input of `sim.analytic.recurrence`.

A candidate is one pipeline, given by the costs (`sim.analytic.stage_costs`) of its stages, pipeline ranks and messages.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.plan import schedules

Floats: TypeAlias = NDArray[np.float64]

STAGE = (
    "forward", "inputs", "weight", "forward_compute", "inputs_compute", "forward_received", "inputs_received",
    "forward_called", "inputs_called", "forward_tokens", "inputs_tokens", "gather", "reduce", "parts", "stream",
    "ahead", "back", "joint",
)  # fmt: skip
"""Rows of `Candidates.stages`, seconds of a (virtual) stage unless said otherwise.

forward, inputs, weight: one F, B and W after its message is gathered; B is the whole backward unless the schedule splits it.
*_compute: the part of F and B that overlapping communication slows down. *_received: the gather of the slices of a received
message, and the host's calls for it. *_called: the host's calls for the message that leaves, where ranks wait for it. *_tokens:
exchanges of tokens that F and B wait for, where the schedule's pairs hide them; else 0, and F and B have them. gather:
all-gather of parameters, each bucket before its part of the first forward. reduce: reduction of gradients, each bucket after
its part of the last backward, or of each backward under ZeRO 2 and 3. parts: number of buckets of both.
ahead, back: messages to the next and to the previous stage. joint: what the links of a stage need for a message from the
previous stage and one from the next stage together, where these share links and the schedule receives first; else 0.

With sharded parameters (ZeRO 3), forward and inputs include their gathers and count from the moment when the pipeline rank and
its stream (the queue of its gradient collectives) are free (`sim.kernels.shards`); stream is the time from then until the
gathers and reductions of B end; gather is 0, and reduce is the reduction after W."""
PIPELINE_RANK = ("reduced", "updated", "gather_slows", "reduce_slows", "gathered", "token_slows")
"""Rows of `Candidates.pp_ranks`. reduced: seconds of exposed collectives before the all-reduce of a tied embedding; updated:
seconds of the optimizer and of the exposed collectives after it; *_slows: relative slowdown of compute that overlaps gathers,
reductions and, in a pair of passes, exchanges of tokens (0.1: it takes 10 % longer); gathered: when the gathers of its first
stage end at the earliest, where that is later than on an idle network, else 0."""
UNTIED = -np.inf
"""Seconds of the all-reduce of a tied embedding's gradient where no embedding is tied."""


@functools.lru_cache(maxsize=1024)
def stages_by_rank(schedule: str, pp: int, vpp: int) -> NDArray[np.int64]:
    """The stages of each pipeline rank in pipeline order, shape (vpp, pipeline ranks)."""
    return np.array([schedules.stages_of(schedule, pp_rank, pp, pp * vpp) for pp_rank in range(pp)]).T


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidate pipelines of equal structure, with their costs in seconds.

    Shapes: `stages` (len(STAGE), stages, candidates), `pp_ranks` (len(PIPELINE_RANK), pipeline ranks, candidates), `tied`
    (candidates,). `zero`: ZeRO stage of each pipeline rank whose ranks share weights, 1 or less for others; empty: no more than
    1 on any. ZeRO 2 and 3 reduce gradients in every microbatch; ZeRO 3 shards parameters.
    `head`: pipeline rank with the logits, with which the first one shares a tied embedding. `holds_receivers`: see
    `sim.plan.round_trips`.
    """

    schedule: str
    pp: int
    vpp: int
    microbatches: int
    stages: Floats
    pp_ranks: Floats
    tied: Floats
    zero: tuple[int, ...] = ()
    head: int = -1
    holds_receivers: bool = False

    def __len__(self) -> int:
        return len(self.tied)

    @property
    def structure(self) -> tuple[object, ...]:
        """All but the arrays: candidates of equal structure can be joined."""
        one = self.schedule, self.pp, self.vpp, self.microbatches
        return *one, self.zero, self.head, self.holds_receivers

    @property
    def reduces_each_microbatch(self) -> bool:
        """Whether some pipeline rank reduces gradients in every microbatch."""
        return max(self.zero, default=0) >= 2

    @property
    def by_rank(self) -> NDArray[np.int64]:
        """`stages_by_rank` of these candidates."""
        return stages_by_rank(self.schedule, self.pp, self.vpp)

    def zero_of(self, pp_rank: int) -> int:
        """ZeRO stage of a pipeline rank, as in `zero`."""
        return self.zero[pp_rank] if self.zero else 0

    def some(self, rows: NDArray[np.int64] | slice) -> Candidates:
        """The candidates of the given indices."""
        stages, pp_ranks = (np.ascontiguousarray(whole[:, :, rows]) for whole in (self.stages, self.pp_ranks))
        return replace(self, stages=stages, pp_ranks=pp_ranks, tied=self.tied[rows])

    def without_gathers(self) -> Candidates:
        """The candidates as if the weights of the first forwards took no time to gather."""
        stages, pp_ranks = self.stages.copy(), self.pp_ranks.copy()
        stages[STAGE.index("gather")] = 0.0
        pp_ranks[[PIPELINE_RANK.index(name) for name in ("gather_slows", "gathered")]] = 0.0
        return replace(self, stages=stages, pp_ranks=pp_ranks)


def join(candidates: Sequence[Candidates]) -> Candidates:
    """Concatenate candidates of equal structure."""
    stages = np.concatenate([one.stages for one in candidates], axis=2)
    pp_ranks = np.concatenate([one.pp_ranks for one in candidates], axis=2)
    return replace(candidates[0], stages=stages, pp_ranks=pp_ranks, tied=np.concatenate([one.tied for one in candidates]))
