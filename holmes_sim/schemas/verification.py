"""Predictions beside steps that were measured on this machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import ComparedMemory
from holmes_sim.schemas.profile_result import ProfileResultDocument
from sim.formats.fields import StrictModel

NAME = "verification"
FORMAT = "holmes-sim/verification/1"
WRITTEN_BY = ("verify --json", "verify -o FILE")


class VerifiedStep(StrictModel):
    """A plan that ran."""

    model: str
    devices: int = Field(description="number of devices")
    layout: str
    measured_s: float = Field(description="measured seconds of a step")
    spread: float = Field(description="(longest - shortest) / median of the measured steps, a fraction")
    profiled_s: float = Field(description="seconds predicted from the profile")
    profiled_error: float = Field(description="predicted from the profile / measured - 1, a fraction")
    catalogued_s: float | None = Field(description="seconds predicted from the catalogue; null if it has no such device")
    catalogued_error: float | None = Field(description="predicted from the catalogue / measured - 1, a fraction")
    memory: tuple[ComparedMemory, ...] = Field((), description="memory of devices; empty on a CPU")


class MatrixProduct(StrictModel):
    """A product of an m x k matrix and a k x n matrix."""

    m: int = Field(description="number of rows")
    n: int = Field(description="number of columns")
    k: int = Field(description="number of products that each element adds up")
    fastest_s: float = Field(description="least seconds")
    median_s: float = Field(description="median seconds")


class VerificationDocument(StrictModel):
    """All that was measured."""

    format: Literal["holmes-sim/verification/1"]
    date: str
    device: str
    gpus: int = Field(description="number of GPUs")
    software: str
    catalogued: str | None = Field(description="name of the device in the catalogue")
    confirmed: bool = Field(description="whether all ran, steadily, and within `aim` of the prediction from the profile")
    aim: float = Field(description="largest error that counts as confirmed, a fraction")
    steps: tuple[VerifiedStep, ...]
    products: tuple[MatrixProduct, ...]
    nccl: str | None = Field(description="version of NCCL and what it ran on")
    faults: tuple[str, ...] = Field(description="what did not run, and why")
    measured: ProfileResultDocument


MODEL = VerificationDocument
