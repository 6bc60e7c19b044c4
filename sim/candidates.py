"""Many candidates of one schedule at once: seconds of their stages and places, as arrays.

A candidate is what `sim.costs` says of one pipeline: of each stage, of each place, of the messages between them.
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
    "gather", "reduce", "parts", "ahead", "back",
)  # fmt: skip
"""Of a (virtual) stage. forward, inputs (B; all of the backward unless the schedule splits it), weight (W): seconds of a turn
behind the gather of its message; *_compute: what of it other communication slows; *_received: that gather; gather: of weights
ahead of the first forward; reduce: of gradients behind the last backward; both in `parts` buckets; ahead, back: its messages to
the stages behind and before it."""
PLACE = ("reduced", "updated", "gather_slows", "reduce_slows")
"""Of a pipeline place. reduced: collectives before the sum of a tied embedding; updated: optimizer and collectives behind it;
*_slows: by what share gathers and reductions slow the compute beside them."""
UNTIED = -np.inf
"""Seconds of the sum of a tied embedding's gradient where there is none."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is alike of many candidates, and their seconds as arrays.

    `stages` has the shape (len(STAGE), stages, candidates), `places` (len(PLACE), places, candidates), `tied` (candidates,).
    """

    schedule: str
    pp: int
    vpp: int
    microbatches: int
    stages: Floats
    places: Floats
    tied: Floats

    def __len__(self) -> int:
        return len(self.tied)

    def some(self, rows: NDArray[np.int64] | slice) -> Candidates:
        """Some of the candidates."""
        stages, places = (np.ascontiguousarray(whole[:, :, rows]) for whole in (self.stages, self.places))
        return replace(self, stages=stages, places=places, tied=self.tied[rows])


def join(candidates: Sequence[Candidates]) -> Candidates:
    """Candidates of one schedule, pp, vpp and number of microbatches, one behind the other."""
    stages = np.concatenate([one.stages for one in candidates], axis=2)
    places = np.concatenate([one.places for one in candidates], axis=2)
    return replace(candidates[0], stages=stages, places=places, tied=np.concatenate([one.tied for one in candidates]))
