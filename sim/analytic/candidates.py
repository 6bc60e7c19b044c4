"""Many candidates of one schedule at once: seconds of their stages and places, as arrays.

A candidate is what `sim.analytic.stage_costs` says of one pipeline: of each stage, of each place, of the messages between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

STAGE = (
    "forward", "inputs", "weight", "forward_compute", "inputs_compute", "forward_received", "inputs_received",
    "gather", "reduce", "parts", "stream", "ahead", "back",
)  # fmt: skip
"""Of a (virtual) stage. forward, inputs (B; all of the backward unless the schedule splits it), weight (W): seconds of a turn
behind the gather of its message; *_compute: what of it other communication slows; *_received: that gather; gather: of weights
ahead of the first forward; reduce: of gradients behind the last backward, or behind each; both in `parts` buckets; ahead, back:
its messages to the stages behind and before it.

Where parameters are sharded, forward and inputs count from when place and stream are free, gathers included
(`sim.kernels.shards`), and stream is when B's own gathers and reductions are done, counted from then; gather is 0, reduce that
behind W."""
PLACE = ("reduced", "updated", "gather_slows", "reduce_slows")
"""Of a pipeline place. reduced: collectives before the sum of a tied embedding; updated: optimizer and collectives behind it;
*_slows: by what share gathers and reductions slow the compute beside them."""
UNTIED = -np.inf
"""Seconds of the sum of a tied embedding's gradient where there is none."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is alike of many candidates, and their seconds as arrays.

    `stages` has the shape (len(STAGE), stages, candidates), `places` (len(PLACE), places, candidates), `tied` (candidates,).
    ZeRO 2 and 3 over more than one rank reduce gradients behind every microbatch; ZeRO 3 shards parameters.
    """

    schedule: str
    pp: int
    vpp: int
    microbatches: int
    stages: Floats
    places: Floats
    tied: Floats
    reduces_each_microbatch: bool = False
    shards_parameters: bool = False

    def __len__(self) -> int:
        return len(self.tied)

    @property
    def structure(self) -> tuple[object, ...]:
        """What is alike of candidates that can be joined."""
        one = self.schedule, self.pp, self.vpp, self.microbatches
        return *one, self.reduces_each_microbatch, self.shards_parameters

    def some(self, rows: NDArray[np.int64] | slice) -> Candidates:
        """Some of the candidates."""
        stages, places = (np.ascontiguousarray(whole[:, :, rows]) for whole in (self.stages, self.places))
        return replace(self, stages=stages, places=places, tied=self.tied[rows])


def join(candidates: Sequence[Candidates]) -> Candidates:
    """Candidates of one structure, one behind the other."""
    stages = np.concatenate([one.stages for one in candidates], axis=2)
    places = np.concatenate([one.places for one in candidates], axis=2)
    return replace(candidates[0], stages=stages, places=places, tied=np.concatenate([one.tied for one in candidates]))
