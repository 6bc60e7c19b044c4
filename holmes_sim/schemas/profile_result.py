"""A measured device, its layers, and a link: the contents of the files that `profile` writes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from sim.formats.catalog_facts import DeviceFacts, LinkFacts
from sim.formats.fields import StrictModel
from sim.formats.profile_facts import ProfileFacts

NAME = "profile-result"
FORMAT = "holmes-sim/profile-result/1"
WRITTEN_BY = ("profile --json",)


class NicMeasurement(StrictModel):
    """Fit of a link between hosts."""

    rates: dict[str, str] = Field(description="collective -> rate of a node, text with its unit")
    latency: str = Field(description="time with its unit")
    overhead: str = Field(description="time with its unit")
    error: float = Field(description="mean error of the fit, a fraction")
    source: str


class MeasuredNics(StrictModel):
    """A link between hosts, for `nics` of a topology."""

    nics: tuple[dict[str, Any], ...]
    measured: NicMeasurement


class ProfileResultDocument(StrictModel):
    """What was measured."""

    format: Literal["holmes-sim/profile-result/1"]
    device: DeviceFacts | None = Field(None, description="the device as an entry of the catalogue")
    profile: ProfileFacts | None = Field(None, description="seconds of layers; null if no model was measured")
    link: LinkFacts | MeasuredNics | None = Field(None, description="a link, as in the catalogue if it is inside a host")


MODEL = ProfileResultDocument
