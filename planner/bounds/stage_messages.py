"""Messages that a stage of a pipeline sends, and those that it waits for because the stage before holds them.

Under schedules that receive first (DeepSpeed), stage s - 1 holds the activations of a forward until it has received a gradient
from stage s (`sim.plan.round_trips.held_forwards`). So between the end e of its own message of activations to stage s + 1 and
the begin of the next one, stage s has its backward B, sends the gradient back in g seconds, waits for the activations, which
take a seconds, and has its forward F: no less than

    B + g + a + F

For its next message, stage s also waits for the gradient of stage s + 1, which begins no sooner than u seconds after e: behind
the forward of that stage, its own held message and its backward. Both messages end at the same device. If their links need c
seconds for both (`planner.costs.joint_arrivals`), the last one arrives no sooner than c seconds after the first one begins:

    min(B + g, u) + c

Beside F, B and g, which a stage has for every microbatch anyway, it thus waits for max(a, c - F - B + min(B, u - g)) seconds
between each two such messages. Together with F and B of all microbatches, which are more than these messages, that never falls
as F or B grows, or u. So least F, B and u give a lower bound."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sim.analytic.candidates import Floats
from sim.plan import schedules
from sim.plan.round_trips import held_forwards
from sim.units import Seconds


class Held(NamedTuple):
    """Messages of activations that the stage before holds: their `number` in a step, seconds of one (`message`, a above) and of
    the gradient back before it (`back`, g). both: c above, 0 where it is not known; until: u."""

    number: int = 0
    message: Seconds = 0.0
    back: Seconds = 0.0
    both: Seconds = 0.0
    until: Seconds = 0.0

    def seconds(self, passes: Seconds, backward: Seconds) -> Seconds:
        """Seconds of a step for which a stage waits for them; passes: of forward and backward together, and of the backward."""
        longest = max(self.message, self.both - passes + min(backward, self.until - self.back)) if self.both else self.message
        return self.number * longest

    def of_many(self, passes: Floats, backward: Floats) -> Floats:
        """`seconds` of many stages."""
        more = self.both - passes + np.minimum(backward, self.until - self.back) if self.both else np.zeros_like(passes)
        found: Floats = self.number * np.maximum(self.message, more)
        return found


NOT_HELD = Held()
"""No message is held."""


class Sends(NamedTuple):
    """Seconds of the messages of a stage to the next stage and to the previous one, and those that the previous one holds."""

    ahead: Seconds
    back: Seconds
    held: Held = NOT_HELD


@dataclass(frozen=True)
class HeldForwards:
    """How many forwards of a stage behind the first one the previous stage holds until it has received a gradient, with so many
    microbatches, in pipelines of at most `most` stages."""

    schedule: str
    microbatches: int
    most: int

    @functools.cached_property
    def are_some(self) -> bool:
        """Whether the schedule holds any."""
        return schedules.get(self.schedule).RECEIVES_FIRST

    def number(self, stage: int | None, stages: int) -> int:
        """Of a stage of a pipeline with so many stages; None: the fewest of any stage of any pipeline."""
        return self._fewest if stage is None else held_forwards(self.schedule, stage, stages, self.microbatches)

    @functools.cached_property
    def _fewest(self) -> int:
        every = ((stage, stages) for stages in range(2, self.most + 1) for stage in range(1, stages))
        return min((held_forwards(self.schedule, *one, self.microbatches) for one in every), default=0) if self.are_some else 0
