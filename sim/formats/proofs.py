"""Certificates of plans in files, and bounds on plans of unlike pipelines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from sim.formats.fields import Flag, StrictModel
from sim.plan.certificate import PIPELINES, UNLIKE, Axis, Certificate, SpaceBound


class AxisFacts(StrictModel):
    """A dimension of the searched space: its values, or a description of them if they follow a rule."""

    axis: str
    values: tuple[str | int, ...]


class SpaceBoundFacts(StrictModel):
    """Seconds below which no plan of a space takes, and how far the step of the plan is from them."""

    objective_s: float = Field(description="seconds of the plan's step")
    lower_bound_s: float = Field(description="no plan of the space takes less")
    gap: float = Field(description="1 - lower_bound_s / objective_s: the part of the step that could be saved at most")
    space: str = Field(description="the plans that the bound holds for, in one line")
    counted: str | None = Field(
        None, description="all that the bound counts of a step, in words; null where it is not one thing"
    )


class CertificateFacts(StrictModel):
    """Proof of how far the plan can be from the best plan of the searched space: lower bound, gap = 1 - bound / objective, the
    dimensions of the space, and what is outside of it."""

    status: Literal["optimal", "feasible"]
    objective_s: float
    lower_bound_s: float
    gap: float
    solver: str
    time_limit_reached: Flag = False
    seconds: float | None = None
    objective: Literal["step-time", "cost", "energy"] = "step-time"
    lower_bound_per_token: float | None = None
    mixed_lower_bound_s: float | None = None
    whole_lower_bound_s: float | None = None
    least_bound_layout: str | None = None
    beside_space: Flag = False
    unlike_degrees: SpaceBoundFacts | None = Field(
        None, description="a bound on plans whose stages have degrees of their own on each cluster; null where none is known"
    )
    space: tuple[AxisFacts, ...] = ()
    outside: tuple[str, ...] = ()


class UnlikePipelinesFacts(StrictModel):
    """What `plan --json` says of plans of unlike pipelines, where it looked at them."""

    step_s: float | None = Field(description="seconds of a faster one that was found; null if none was")
    lower_bound_s: float | None = Field(description="no plan of the space takes less; null where none has room in memory")
    gap: float = Field(description="1 - lower_bound_s / step, of the faster plan, or of the plan of alike replicas")
    space: str = Field(description="the plans that the bound holds for, in one line")
    not_searched: str | None = Field(description="why none was searched; null if one was")
    counted: str | None = Field(description="all that this bound counts of a step, in words; null where there is none")
    both: SpaceBoundFacts = Field(description="one bound for the searched plans of alike replicas and for unlike pipelines")
    held_open: str | None = Field(
        description="the plans that hold the bound for both open, in words; null where its gap is small"
    )


def certificate_facts(found: Certificate) -> dict[str, Any]:
    """A certificate as plain data."""
    space = [{"axis": axis.name, "values": list(axis.values)} for axis in found.space]
    unlike = found.unlike_degrees.facts() if found.unlike_degrees is not None else None
    return asdict(found) | {"unlike_degrees": unlike, "space": space, "outside": list(found.outside)}


def certificate_from(proof: CertificateFacts) -> Certificate:
    """The certificate of a file."""
    space = tuple(Axis(axis.axis, axis.values) for axis in proof.space)
    values = proof.model_dump(exclude={"seconds"})  # the time limit, which plans of version 0.1 and before hold
    unlike = space_bound(proof.unlike_degrees, UNLIKE) if proof.unlike_degrees is not None else None
    return Certificate(**values | {"unlike_degrees": unlike, "space": space})


def space_bound(proof: SpaceBoundFacts, none: str = PIPELINES) -> SpaceBound:
    """The bound of a file; `none` begins its sentence."""
    return SpaceBound(proof.objective_s, proof.lower_bound_s, proof.space, none, proof.counted or "")
