"""Reader and writer of plan.json, a self-contained plan that can be simulated, exported and run.

Equal plans give equal bytes. A wrong file raises an error with one line per fault (`sim.formats.documents`). The docstrings of
the pydantic models are descriptions in the JSON Schema.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field

from sim.errors import HolmesError, PlanError, TopologyError
from sim.formats.config_facts import BY_STAGE, ConfigFacts, config_facts, config_values
from sim.formats.documents import Document, KeyPath, check, key_text, parse, read_text
from sim.formats.fields import StrictModel
from sim.formats.proofs import CertificateFacts, UnlikePipelinesFacts, certificate_facts, certificate_from
from sim.formats.stage_facts import StageFacts, stage_facts
from sim.formats.topology import from_document, workload_facts, workload_fault, workload_from
from sim.formats.topology_facts import TopologyFacts, WorkloadFacts
from sim.hardware.cluster import Device, parse_device
from sim.hardware.stack import software_facts
from sim.hardware.topology import Topology
from sim.plan.groups import Group
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan
from sim.plan.prediction import Prediction
from sim.workload import launch_facts
from sim.workload.workload import Workload

PLAN_FORMAT, UNLIKE_STAGES_FORMAT = FORMATS = "holmes-sim/plan/1", "holmes-sim/plan/2"
"""Format of a plan whose stages are alike, which older versions read, and of one with keys by stage (`BY_STAGE`), which they
would refuse. Both are read with the same keys: until plan/2, plan/1 had the keys by stage, too."""
KINDS = {
    "topology": ("topology", "a plan is expected (`holmes-sim plan {name} -o plan.json` makes one)"),
    "islands": ("plan of islands", "a plan of one island is expected"),
    "disaggregated": ("plan with two sets of ranks", "a plan with one set of ranks is expected"),
    "pipelines": ("plan of unlike pipelines", "a plan of alike replicas is expected"),
}
"""Formats of other files that a person may give in place of a plan -> (what they are, what is expected)."""


class GroupFacts(StrictModel):
    """A group of ranks that communicate, in ring order, with its NIC type, transport and collective algorithm."""

    kind: Literal["tp", "pp", "dp", "cp", "ep", "etp"]
    ranks: list[int]
    nic: str
    transport: Literal["intra_node", "rdma", "tcp"]
    collective: str


class PredictionFacts(StrictModel):
    """Results of the plan's simulation."""

    step_s: float = Field(description="seconds of a step")
    samples_per_s: float = Field(description="sequences per second")
    tokens_per_s: float = Field(description="tokens per second")
    tflops_per_device: float = Field(description="model TFLOP/s of a device")
    mfu: float = Field(description="model FLOPs utilisation, a fraction")
    peak_memory_bytes: list[float] = Field(description="peak memory of a device of each pipeline rank, in bytes")
    bubble_fraction: float = Field(description="fraction of the step in which a rank waits for work, mean over the ranks")
    exposed_communication_s: float = Field(description="seconds of communication that does not overlap compute, mean")
    upper_bound_fraction: float = Field(description="throughput over that of devices that compute all the time")
    usd_per_token: float | None = Field(None, description="rent for each token in USD; null if a price is unknown")
    joules_per_token: float | None = Field(None, description="energy for each token in joules; null if a power is unknown")


class MadeByFacts(StrictModel):
    """Strategy that made the plan, and its version."""

    strategy: str
    version: str


class PlanFacts(StrictModel):
    """A plan: topology, workload, parallel configuration, layers of each stage, device of each rank, and communication groups.
    `stages` are in pipeline order, `placement[rank]` is the device of a rank. A plan whose `config` has a key with a value for
    each stage, such as stage_tp, is written as plan/2, any other as plan/1. `step_range_s` and `guessed_rates` describe the
    prediction, and `unlike_pipelines` other plans; they are not read, since each command computes them anew."""

    format: Literal["holmes-sim/plan/1", "holmes-sim/plan/2"]
    topology: TopologyFacts
    workload: WorkloadFacts
    config: ConfigFacts
    stages: list[StageFacts]
    placement: list[str]
    groups: list[GroupFacts]
    prediction: PredictionFacts | None = None
    step_range_s: tuple[float, float] | None = None
    guessed_rates: tuple[str, ...] = ()
    unlike_pipelines: UnlikePipelinesFacts | None = None
    certificate: CertificateFacts | None = None
    made_by: MadeByFacts


def facts(plan: Plan, beside: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """A plan as plain data, with keys in the order of the file; `beside` are keys about the prediction that are not read."""
    data: dict[str, Any] = {
        "format": format_of(plan.config),
        "topology": plan.topology.facts(),
        "workload": workload_facts(plan.workload),
        "config": config_facts(plan.config, plan.workload.routing),
        "stages": [stage_facts(stage) for stage in plan.stages],
        "placement": [str(device) for device in plan.placement],
        "groups": [_group(group) for group in plan.groups],
    }
    if plan.prediction is not None:
        data["prediction"] = asdict(plan.prediction) | {"peak_memory_bytes": list(plan.prediction.peak_memory_bytes)}
    data |= beside
    if plan.certificate is not None:
        data["certificate"] = certificate_facts(plan.certificate)
    data["made_by"] = asdict(plan.made_by)
    return data


def format_of(config: ParallelConfig) -> str:
    """The format of a plan with this configuration."""
    return UNLIKE_STAGES_FORMAT if any(getattr(config, name) for name in BY_STAGE) else PLAN_FORMAT


def _group(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in ("kind", "ranks", "nic", "transport", "collective")}


def simulation_inputs(plan: Plan) -> str:
    """Canonical JSON text of what a simulation of the plan depends on: without prediction, certificate, made_by, and
    facts of the model that only launches need."""
    data = facts(plan) | {"format": PLAN_FORMAT}  # one format for all: hashes of unlike stages are older than plan/2
    for key in ("prediction", "certificate", "made_by"):
        data.pop(key, None)
    for key in launch_facts.KEYS:
        data["workload"]["model"].pop(key, None)
    return json.dumps(data, sort_keys=True)


def digest(plan: Plan) -> str:
    """Hash of what a simulation of the plan depends on, as 16 hexadecimal digits."""
    return hashlib.sha256(simulation_inputs(plan).encode()).hexdigest()[:16]


def to_json(plan: Plan, beside: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Text of plan.json: one line per top-level key, stage, group, axis and entry of the configuration (`facts`)."""
    return text_of(facts(plan, beside))


def text_of(data: Mapping[str, Any]) -> str:
    """Text of a plan as plain data (`to_json`)."""
    lines = []
    for key, value in data.items():
        if key in ("stages", "groups"):
            rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
            body = f"[\n{rows}\n  ]" if value else "[]"
        elif isinstance(value, dict) and key != "topology":
            rows = ",\n".join(f"    {json.dumps(name)}: {_text(item)}" for name, item in value.items())
            body = f"{{\n{rows}\n  }}"
        else:
            body = json.dumps(value)
        lines.append(f"  {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _text(item: object) -> str:
    """JSON text of a value below a top-level key; each object of a list of objects, such as axes, has its own line."""
    if not isinstance(item, list) or not item or not isinstance(item[0], dict):
        return json.dumps(item)
    rows = ",\n".join(f"      {json.dumps(row)}" for row in item)
    return f"[\n{rows}\n    ]"


def load(path: str | Path) -> Plan:
    """The plan of a file. Raises PlanError with one line per fault."""
    return from_text(str(path), read_text(path, PlanError))


def from_text(name: str, text: str) -> Plan:
    """The plan of a text of plan.json; `name` is the file in error messages. Raises PlanError with one line per fault."""
    try:
        document = parse(name, text)
        written = str(document.value.get("format", "")) if isinstance(document.value, dict) else ""
        for kind, (what, right) in KINDS.items():
            if written.startswith(f"holmes-sim/{kind}/"):
                raise PlanError(document.fault(("format",), f"this is a {what}; {right.format(name=name)}"))
        return of_document(document)
    except TopologyError as error:
        raise PlanError(str(error)) from None


def of_document(document: Document) -> Plan:
    """The plan of a parsed document. Raises PlanError or TopologyError with one line per fault."""
    data = check(document, PlanFacts)
    topology, workload = machines_and_workload(document, data.workload)
    certificate = certificate_from(data.certificate) if data.certificate is not None else None
    placement = placed(document, "placement", data.placement)
    with _at(document, ("config",)):
        values = config_values(data.config, workload.routing, workload.model)
        facts = software_facts(topology.stack, topology.fleet, values["tp"], values["own_tp_overlap"], placement)
        config = ParallelConfig(**values | facts)
    with _at(document, ()):
        return Plan(
            topology=topology,
            workload=workload,
            config=config,
            stages=tuple(stage.stage() for stage in data.stages),
            placement=placement,
            groups=tuple(Group(g.kind, tuple(g.ranks), g.nic, g.transport, g.collective) for g in data.groups),
            prediction=prediction_from(data.prediction),
            certificate=certificate,
            made_by=MadeBy(**data.made_by.model_dump()),
        )


def prediction_from(given: PredictionFacts | None) -> Prediction | None:
    """The prediction of a file; None where it has none."""
    values = {} if given is None else given.model_dump()
    return Prediction(**values | {"peak_memory_bytes": tuple(values["peak_memory_bytes"])}) if values else None


def machines_and_workload(document: Document, given: WorkloadFacts) -> tuple[Topology, Workload]:
    """The topology of a plan's file, with the plan's workload, and that workload. Raises PlanError with one line per fault."""
    try:
        topology = from_document(document.inside("topology"), Path(document.name).parent)
    except TopologyError as error:
        raise PlanError(str(error)) from None
    try:
        workload = workload_from(given, Path(document.name).parent)
    except TopologyError as error:
        raise PlanError(document.fault(*workload_fault(error))) from None
    return replace(topology, workload=workload), workload


def placed(document: Document, key: str, texts: Sequence[str]) -> tuple[Device, ...]:
    """The devices of a list of a file, `cluster/node/index` each. Raises PlanError with the line of a faulty one."""
    found: list[Device] = []
    try:
        for text in texts:
            found.append(parse_device(text))
    except PlanError as error:
        raise PlanError(document.fault((key, len(found)), str(error))) from None
    return tuple(found)


@contextmanager
def _at(document: Document, path: KeyPath) -> Iterator[None]:
    """Add file, line and key to errors; with an empty path the key is the start of the message (`stages[2].layers: ...`)."""
    try:
        yield
    except HolmesError as error:
        key, _, text = str(error).partition(": ")
        top = re.split(r"[.\[]", key)[0]
        if not path and (top,) in document.lines:
            outer = f"{key_text(document.outer)}." if document.outer else ""
            raise PlanError(f"{document.name}:{document.line((top,))}: {outer}{key}: {text}") from None
        raise PlanError(document.fault(path, str(error))) from None
