"""The keys of a pipeline stage in plans."""

from __future__ import annotations

from typing import Any

from sim.formats.fields import Flag, StrictModel
from sim.plan.plan import Stage


class StageFacts(StrictModel):
    """Layers of a virtual stage: [first, first of the next stage]. `head`: it has the head (final norm, logits and loss),
    although it is not the last stage; the stages after it have nothing."""

    layers: tuple[int, int]
    head: Flag = False

    def stage(self) -> Stage:
        """The stage."""
        return Stage(*self.layers, self.head)


def stage_facts(stage: Stage) -> dict[str, Any]:
    """A stage as plain data."""
    return {"layers": [stage.first, stage.past_last]} | ({"head": True} if stage.head else {})
