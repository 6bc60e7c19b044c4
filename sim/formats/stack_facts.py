"""Pydantic models of a fitted software stack (`sim/catalog/stacks`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from sim.formats.fields import Factor, Flag, RelativeError, StrictModel, Time
from sim.hardware.stack import DEFAULT, Stack


class StackNumbers(StrictModel):
    """Fitted numbers of a software stack. A missing number has the value of the default stack."""

    gemm: Factor = DEFAULT.gemm
    attention: Factor = DEFAULT.attention
    elementwise: Factor = DEFAULT.elementwise
    communication: Factor = DEFAULT.communication
    launch: Time = DEFAULT.launch
    step: Time = DEFAULT.step

    def stack(self) -> Stack:
        """The stack of the simulator."""
        return Stack(**self.model_dump())


class StackErrors(StrictModel):
    """Mean absolute relative errors of the step: with the default stack, with the fit, and on cases that a fit did not see."""

    default: RelativeError
    fitted: RelativeError
    held_out: RelativeError


class HeldOutFacts(StrictModel):
    """A fit without the cases of one group, and the names of these cases."""

    group: str
    fitted: StackNumbers
    cases: list[str]


class StackFacts(StrictModel):
    """A software stack that `holmes-sim calibrate` fitted to `cases`. `blocking` is a property of the runs, not fitted."""

    format: Literal["holmes-sim/stack/1"]
    name: str
    blocking: Flag = False
    fitted: StackNumbers
    error: StackErrors
    cases: list[str]
    held_out: list[HeldOutFacts] = Field([])

    def stack(self, numbers: StackNumbers) -> Stack:
        """The stack of the simulator with the given numbers and the `blocking` of this entry."""
        return replace(numbers.stack(), blocking=self.blocking)
