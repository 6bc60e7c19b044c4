"""TODO sim.formats.stack_facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from sim.formats.fields import Door, Error, Factor, Flag, Time
from sim.hardware.stack import DEFAULT, Stack


class StackNumbers(Door):
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


class StackErrors(Door):
    """Mean absolute relative errors: with the default numbers, fitted, and on groups of cases that the fit did not see."""

    default: Error
    fitted: Error
    held_out: Error


class HeldOutFacts(Door):
    """A fit that never saw the cases of one group."""

    group: str
    fitted: StackNumbers
    cases: list[str]


class StackFacts(Door):
    """A software stack, fitted to named runs by `holmes-sim calibrate`; `blocking` is known of its runs, not fitted."""

    format: Literal["holmes-sim/stack/1"]
    name: str
    blocking: Flag = False
    fitted: StackNumbers
    error: StackErrors
    cases: list[str]
    held_out: list[HeldOutFacts] = Field([])

    def under(self, numbers: StackNumbers) -> Stack:
        """The stack as the simulator knows it, under its fitted numbers or other ones."""
        return replace(numbers.stack(), blocking=self.blocking)
