"""Reader and writer of islands.json, a self-contained plan of islands: the sync strategy and a whole plan of each island.

Equal plans give equal bytes. A wrong file raises an error with one line per fault (`sim.formats.documents`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sim.errors import HolmesError, PlanError, TopologyError
from sim.formats import planfile
from sim.formats.documents import Document, KeyPath, check, parse, read_text
from sim.formats.fields import StrictModel
from sim.formats.planfile import MadeByFacts
from sim.formats.proofs import CertificateFacts, certificate_facts, certificate_from
from sim.plan.islands import IslandsPlan, IslandsPrediction
from sim.plan.plan import MadeBy
from sim.sync import Sync

ISLANDS_FORMAT = "holmes-sim/islands/1"


class SyncFacts(StrictModel):
    """How the islands keep one model: the sync strategy and its settings. An exchange of the same parameters begins after every
    `inner_steps` steps; `overlap_steps` inner steps run beside it; the model is exchanged in `fragments`."""

    strategy: str
    inner_steps: int = Field(1, description="optimizer steps of an island between exchanges of the same parameters")
    overlap_steps: int = Field(0, description="inner steps that run beside an exchange before its result is used")
    fragments: int = Field(1, description="parts of the model that are exchanged one after the other")
    compression: str = "none"
    aggregation: str = "mean"


class IslandsPredictionFacts(StrictModel):
    """Results of a simulated outer period in steady state."""

    period_s: float = Field(description="seconds of an outer period: all inner steps and exchanges")
    inner_step_s: list[float] = Field(description="seconds of an inner step of each island, without exchanges")
    exchange_s: float = Field(description="seconds of the exchanges of one outer period on the network")
    exposed_s: float = Field(description="seconds of an outer period in which the slowest island waits for exchanges, updates")
    waiting_s: list[float] = Field(description="seconds of an outer period in which each island waits for slower islands")
    tokens_per_s: float = Field(description="tokens of all islands per second")
    mfu: float = Field(description="model FLOPs utilisation of the devices of all islands, a fraction")


class IslandsFacts(StrictModel):
    """A plan of islands: the sync strategy between them, and a plan of each island (holmes-sim/plan/1 or plan/2) on the same
    topology, with its own share of the batch."""

    format: Literal["holmes-sim/islands/1"]
    sync: SyncFacts
    islands: list[dict[str, Any]] = Field(description="a plan of each island, as plan.json")
    prediction: IslandsPredictionFacts | None = None
    certificate: CertificateFacts | None = None
    made_by: MadeByFacts


def is_islands(text: str) -> bool:
    """Whether a text is that of a plan of islands, told by its format key."""
    return f'"{ISLANDS_FORMAT}"' in text[:200]


def facts(plan: IslandsPlan) -> dict[str, Any]:
    """A plan of islands as plain data, with keys in the order of the file."""
    data: dict[str, Any] = {
        "format": ISLANDS_FORMAT,
        "sync": asdict(plan.sync),
        "islands": [planfile.facts(island) for island in plan.islands],
    }
    if plan.prediction is not None:
        data["prediction"] = {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(plan.prediction).items()
        }
    if plan.certificate is not None:
        data["certificate"] = certificate_facts(plan.certificate)
    data["made_by"] = asdict(plan.made_by)
    return data


def to_json(plan: IslandsPlan) -> str:
    """Text of islands.json: each island as in plan.json, indented."""
    data, lines = facts(plan), []
    for key, value in data.items():
        if key == "islands":
            rows = (planfile.to_json(island).rstrip("\n").replace("\n", "\n    ") for island in plan.islands)
            body = "[\n    " + ",\n    ".join(rows) + "\n  ]"
        else:
            body = json.dumps(value)
        lines.append(f"  {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load(path: str | Path) -> IslandsPlan:
    """The plan of islands of a file. Raises PlanError with one line per fault."""
    return from_text(str(path), read_text(path, PlanError))


def from_text(name: str, text: str) -> IslandsPlan:
    """The plan of islands of a text; `name` is the file in error messages. Raises PlanError with one line per fault."""
    try:
        document = parse(name, text)
        data = check(document, IslandsFacts)
        islands = tuple(planfile.of_document(document.inside("islands", index)) for index in range(len(data.islands)))
    except TopologyError as error:
        raise PlanError(str(error)) from None
    certificate = certificate_from(data.certificate) if data.certificate else None
    with _at(document, ("sync",)):
        sync = Sync(**data.sync.model_dump())
    with _at(document, ("islands",)):
        return IslandsPlan(sync, islands, MadeBy(**data.made_by.model_dump()), _prediction(data), certificate)


def _prediction(data: IslandsFacts) -> IslandsPrediction | None:
    if data.prediction is None:
        return None
    values = data.prediction.model_dump()
    lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return IslandsPrediction(**values | lists)


@contextmanager
def _at(document: Document, path: KeyPath) -> Iterator[None]:
    """Add file, line and key to errors."""
    try:
        yield
    except HolmesError as error:
        raise PlanError(document.fault(path, str(error))) from None
