"""Drafts that wait to be simulated, in the order of what the engine is expected to say of them.

The evaluator prices a pipeline on an idle network. What is added where messages meet is learned from drafts that have been
simulated: another draft of the same kind (degrees and number of stages) is expected to wait for the same share of what its
messages take on the fullest link, and a kind of which none has been simulated for nothing. That is a guess at an order, and no
bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from planner.drafts import Draft
from planner.shapes import Shape
from sim.units import Seconds

Kind: TypeAlias = tuple[object, ...]
Pipeline: TypeAlias = tuple[Shape, tuple[tuple[str, int], ...]]


@dataclass(slots=True)
class Pool:
    """Drafts by their pipeline, and the least share of its messages that a draft of a kind has waited for."""

    drafts: dict[Pipeline, Draft] = field(default_factory=dict)
    waits: dict[Kind, float] = field(default_factory=dict)

    def add(self, found: Iterable[Draft], cutoff: Seconds) -> None:
        """Keep drafts that take less than `cutoff` on an idle network."""
        self.drafts |= {(draft.shape, draft.stages): draft for draft in found if draft.seconds < cutoff}

    def expected(self, draft: Draft, unknown: float = 0.0) -> Seconds:
        """What the engine may say of a draft; `unknown` is the share of its messages where none of its kind was simulated."""
        return draft.seconds + self.waits.get(_kind(draft), unknown) * draft.through

    def take(self, cutoff: Seconds) -> Draft | None:
        """The draft of which least is expected, of those below `cutoff` on an idle network; it waits no longer."""
        self.drafts = {pipeline: draft for pipeline, draft in self.drafts.items() if draft.seconds < cutoff}
        least = min(self.drafts, key=lambda pipeline: self.expected(self.drafts[pipeline]), default=None)
        return self.drafts.pop(least) if least is not None else None

    def learn(self, draft: Draft, seconds: Seconds) -> None:
        """Remember what the engine said of a draft."""
        if draft.through > 0:
            share = max(seconds - draft.seconds, 0.0) / draft.through
            self.waits[_kind(draft)] = min(share, self.waits.get(_kind(draft), share))


def _kind(draft: Draft) -> Kind:
    shape = draft.shape
    return shape.tp, shape.dp, shape.cp, shape.ep, shape.zero_stage, shape.overlap_param_gather, len(draft.row)
