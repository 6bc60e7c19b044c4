"""The launch files of a plan that were written."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "export"
FORMAT = "holmes-sim/export/1"
WRITTEN_BY = ("export PLAN --to TARGET -o FOLDER --json",)


class ExportDocument(StrictModel):
    """A launch."""

    format: Literal["holmes-sim/export/1"]
    target: str = Field(description="launch target")
    folder: str
    files: tuple[str, ...] = Field(description="paths inside the folder")
    assumed: tuple[str, ...] = Field(description="what the launch assumes, in words")


MODEL = ExportDocument
