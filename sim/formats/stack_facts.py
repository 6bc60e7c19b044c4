"""TODO sim.formats.stack_facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from sim.formats.fields import Factor, Flag, RelativeError, StrictModel, Time
from sim.hardware.stack import DEFAULT, Stack


class StackNumbers(StrictModel):
    """Numbers of a software stack that were fitted; what is not named is the default's."""

    gemm: Factor = DEFAULT.gemm
    attention: Factor = DEFAULT.attention
    elementwise: Factor = DEFAULT.elementwise
    communication: Factor = DEFAULT.communication
    launch: Time = DEFAULT.launch
    step: Time = DEFAULT.step

    def stack(self) -> Stack:
        """The stack as the simulator knows it."""
        return Stack(**self.model_dump())


class StackErrors(StrictModel):
    """Mean absolute relative errors: with the default numbers, fitted, and on groups of cases that the fit did not see."""

    default: RelativeError
    fitted: RelativeError
    held_out: RelativeError


class HeldOutFacts(StrictModel):
    """A fit that never saw the cases of one group."""

    group: str
    fitted: StackNumbers
    cases: list[str]


class StackFacts(StrictModel):
    """A software stack, fitted to named runs by `holmes-sim calibrate`; `blocking` is known of its runs, not fitted."""

    format: Literal["holmes-sim/stack/1"]
    name: str
    blocking: Flag = False
    fitted: StackNumbers
    error: StackErrors
    cases: list[str]
    held_out: list[HeldOutFacts] = Field([])

    def stack(self, numbers: StackNumbers) -> Stack:
        """The stack as the simulator knows it, under its fitted numbers or other ones."""
        return replace(numbers.stack(), blocking=self.blocking)
