"""Reader and writer of plans whose attention and experts are on two sets of ranks; a file contains its topology.

Equal plans give equal bytes. A wrong file raises an error with one line per fault (`sim.formats.documents`)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sim.disaggregation.plan import DisaggregatedPlan, DisaggregatedPrediction
from sim.disaggregation.stage import DisaggregatedStage
from sim.errors import HolmesError, PlanError, TopologyError
from sim.formats import planfile
from sim.formats.documents import Document, check, parse, read_text
from sim.formats.fields import Count, StrictModel, Whole
from sim.formats.planfile import MadeByFacts
from sim.formats.topology import workload_facts
from sim.formats.topology_facts import TopologyFacts, WorkloadFacts
from sim.plan.plan import MadeBy

DISAGGREGATED_FORMAT = "holmes-sim/disaggregated/1"
SETS = ("attention", "experts")


class DisaggregatedPredictionFacts(StrictModel):
    """Results of a simulated step. Pairs are of an attention rank and of an expert rank."""

    step_s: float = Field(description="seconds of a step")
    tokens_per_s: float = Field(description="tokens per second")
    mfu: float = Field(description="model FLOPs utilisation of the devices of both sets, a fraction")
    compute_s: tuple[float, float] = Field(description="seconds in which a rank computes layers")
    exchange_s: tuple[float, float] = Field(description="seconds of all dispatches, and of all combines")
    closing_s: tuple[float, float] = Field(description="seconds of the sum of gradients and of the optimizer, at the end")
    peak_memory_bytes: tuple[float, float] = Field(description="peak memory in bytes")


class DisaggregatedFacts(StrictModel):
    """A plan with attention and routed experts on two sets of ranks. `groups` equal groups have consecutive devices of both
    sets, and all experts once; `microbatches` pass the layers side by side, `rounds` times a step."""

    format: Literal["holmes-sim/disaggregated/1"]
    topology: TopologyFacts
    workload: WorkloadFacts
    attention: list[str] = Field(description="device of each attention rank, group by group")
    experts: list[str] = Field(description="device of each expert rank, group by group")
    groups: Count = Field(1, description="equal groups of ranks that train as data-parallel replicas")
    microbatches: Count = Field(description="microbatches of an attention rank that pass the layers side by side")
    rounds: Count = Field(1, description="times that this happens in a step")
    kept: list[Whole] = Field(
        [], description="routed experts of each layer that the attention ranks of a group keep together; empty: none"
    )
    recompute: Literal["none", "full"] = "none"
    prediction: DisaggregatedPredictionFacts | None = None
    lower_bound_s: float | None = Field(
        None, description="seconds below which no stage of the search takes that found this one; null if unknown"
    )
    made_by: MadeByFacts


def is_disaggregated(text: str) -> bool:
    """Whether a text is that of a plan with two sets of ranks, told by its format key."""
    return f'"{DISAGGREGATED_FORMAT}"' in text[:200]


def facts(plan: DisaggregatedPlan) -> dict[str, Any]:
    """A plan as plain data, with keys in the order of the file."""
    data = _inputs(plan)
    if plan.prediction is not None:
        data["prediction"] = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(plan.prediction).items()}
    if plan.lower_bound_s is not None:
        data["lower_bound_s"] = plan.lower_bound_s
    data["made_by"] = asdict(plan.made_by)
    return data


def _inputs(plan: DisaggregatedPlan) -> dict[str, Any]:
    """What a simulation of the plan depends on."""
    stage = plan.stage
    return {
        "format": DISAGGREGATED_FORMAT,
        "topology": stage.topology.facts(),
        "workload": workload_facts(stage.workload),
        "attention": [str(device) for device in stage.attention],
        "experts": [str(device) for device in stage.experts],
        "groups": stage.groups,
        "microbatches": stage.microbatches,
        "rounds": stage.rounds,
        "kept": list(stage.kept),
        "recompute": stage.recompute,
    }


def digest(plan: DisaggregatedPlan) -> str:
    """Hash of what a simulation of the plan depends on, as 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(_inputs(plan), sort_keys=True).encode()).hexdigest()[:16]


def to_json(plan: DisaggregatedPlan) -> str:
    """Text of the file: one line per top-level key."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in facts(plan).items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load(path: str | Path) -> DisaggregatedPlan:
    """The plan of a file. Raises PlanError with one line per fault."""
    return from_text(str(path), read_text(path, PlanError))


def from_text(name: str, text: str) -> DisaggregatedPlan:
    """The plan of a text; `name` is the file in error messages. Raises PlanError with one line per fault."""
    try:
        document = parse(name, text)
        data = check(document, DisaggregatedFacts)
    except TopologyError as error:
        raise PlanError(str(error)) from None
    topology, workload = planfile.machines_and_workload(document, data.workload)
    attention, experts = (planfile.placed(document, key, getattr(data, key)) for key in SETS)
    with _named(document):
        stage = DisaggregatedStage(
            topology, workload, attention, experts, data.groups, data.microbatches, data.rounds,
            tuple(data.kept), data.recompute,
        )  # fmt: skip
    prediction = None if data.prediction is None else DisaggregatedPrediction(**data.prediction.model_dump())
    return DisaggregatedPlan(stage, MadeBy(**data.made_by.model_dump()), prediction, data.lower_bound_s)


@contextmanager
def _named(document: Document) -> Iterator[None]:
    """Add file and line to errors of a stage, which begin with a key: `kept: ...`, `attention[2]: ...`."""
    try:
        yield
    except HolmesError as error:
        words = re.findall(r"\w+", str(error).partition(": ")[0])
        path = [int(word) if word.isdigit() else word for word in words]
        raise PlanError(f"{document.name}:{document.line(path)}: {error}") from None
