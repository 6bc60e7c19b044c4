"""What is odd in a topology."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "check"
FORMAT = "holmes-sim/check/1"
WRITTEN_BY = ("check TOPO --json",)


class OddKey(StrictModel):
    """A finding."""

    check: str = Field(description="name of the check")
    line: int = Field(description="line number in the file, from 1")
    key: str
    odd: str = Field(description="what is odd")
    means: str = Field(description="what it means for plans")
    better: str = Field(description="what would be right")


class CheckDocument(StrictModel):
    """The findings in the order of lines, those that concern launches alone last."""

    format: Literal["holmes-sim/check/1"]
    topology: str
    file: str
    findings: tuple[OddKey, ...]


MODEL = CheckDocument
