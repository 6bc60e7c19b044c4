"""Reader and writer of plans of unlike pipelines (`sim.plan.pipelines`), self-contained and short enough to write by hand.

Groups follow from the pipelines and are not listed. Equal plans give equal bytes. A wrong file raises an error with one line
per fault (`sim.formats.documents`). The docstrings of the pydantic models are descriptions in the JSON Schema.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sim.errors import HolmesError, PlanError, TopologyError
from sim.formats import planfile
from sim.formats.documents import Document, check, parse, read_text
from sim.formats.fields import Count, Flag, StrictModel, Whole, Wholes
from sim.formats.planfile import MadeByFacts, PredictionFacts
from sim.formats.proofs import SpaceBoundFacts, space_bound
from sim.formats.stage_facts import StageFacts
from sim.formats.topology import workload_facts
from sim.formats.topology_facts import TopologyFacts, WorkloadFacts
from sim.hardware.cluster import Device, parse_device
from sim.hardware.stack import software_facts
from sim.hardware.topology import Topology
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import COMMON, PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan, Stage
from sim.workload.workload import Workload

PIPELINES_FORMAT = "holmes-sim/pipelines/1"
KEY, ENTRY = re.compile(r"([\w\[\]]+(?:\.[\w\[\]]+)*): (.*)", re.DOTALL), re.compile(r"pipelines\[\d+\]")
"""A key in front of an error's text, and a pipeline in front of a key."""


DIVIDED = ("cp", "ep", "etp")
"""Degrees of an entry that are written only where they are not the default, as in files before entries had them."""


class CommonConfigFacts(StrictModel):
    """Options of the training run that all pipelines have in common, as in the configuration of a plan."""

    schedule: str
    zero_stage: Whole = Field(1, description="0, or 1: all replicas share the optimizer state of the weights that they hold")
    sequence_parallel: Flag = False
    overlap_grad_reduce: Flag = True
    overlap_param_gather: Flag = True
    attention: str = "flash"
    gradient_precision: str = "fp32"


class PipelineFacts(StrictModel):
    """Alike replicas: `stages` are in pipeline order, `placement` has the device of each rank, numbered as in a plan. Where
    stages have unlike degrees (`stage_tp`), `tp` is the largest of them. Recomputation as in the configuration of a plan."""

    tp: Count = Field(1, description="tensor-parallel degree")
    stage_tp: tuple[Count, ...] = Field((), description="tensor-parallel degree of each stage, where they differ")
    cp: Count = Field(1, description="context-parallel degree")
    ep: Count = Field(1, description="expert-parallel degree: ranks that divide the routed experts of a stage")
    etp: Count | None = Field(None, description="tensor-parallel degree of each routed expert, where it is not tp")
    microbatch_size: Count = Field(1, description="samples of a microbatch")
    num_microbatches: list[Count] = Field(min_length=1, description="microbatches of a step of each replica")
    recompute: str = "none"
    recompute_layers: Wholes = Field((), description="recomputed layers of all stages, or of each")
    recompute_modules: tuple[str, ...] = ()
    stage_recompute: tuple[str, ...] = Field((), description="recomputation of each stage, where it differs")
    offload: tuple[str, ...] = Field((), description="what hosts keep: optimizer, activations")
    stage_offload: tuple[str, ...] = Field((), description="the same of each stage, where it differs")
    stages: list[StageFacts] = Field(min_length=1)
    placement: list[str]


class PipelinesFacts(StrictModel):
    """A plan of unlike pipelines: topology, workload, what all pipelines have in common, and the stages, microbatches and
    devices of each. Gradients of a layer are summed over the ranks that hold it."""

    format: Literal["holmes-sim/pipelines/1"]
    topology: TopologyFacts
    workload: WorkloadFacts
    config: CommonConfigFacts
    pipelines: list[PipelineFacts]
    prediction: PredictionFacts | None = None
    certificate: SpaceBoundFacts | None = None
    made_by: MadeByFacts


def is_pipelines(text: str) -> bool:
    """Whether a text is that of a plan of unlike pipelines, told by its format key."""
    return re.search(rf"^\W*format\W+{PIPELINES_FORMAT}\b", text, re.MULTILINE) is not None


def facts(plan: PipelinesPlan) -> dict[str, Any]:
    """A plan of unlike pipelines as plain data, with keys in the order of the file."""
    data: dict[str, Any] = {
        "format": PIPELINES_FORMAT,
        "topology": plan.topology.facts(),
        "workload": workload_facts(plan.workload),
        "config": {key: getattr(plan.pipelines[0].config, key) for key in COMMON},
        "pipelines": [_pipeline(pipeline) for pipeline in plan.pipelines],
    }
    if plan.prediction is not None:
        data["prediction"] = asdict(plan.prediction) | {"peak_memory_bytes": list(plan.prediction.peak_memory_bytes)}
    if plan.certificate is not None:
        data["certificate"] = plan.certificate.facts()
    return data | {"made_by": asdict(plan.made_by)}


def _pipeline(plan: Plan) -> dict[str, Any]:
    unused = (key for key in DIVIDED if getattr(plan.config, key) == PipelineFacts.model_fields[key].default)
    left_out = ("stages", "placement", *unused)
    values = {key: getattr(plan.config, key) for key in PipelineFacts.model_fields if key not in left_out}
    found = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value != ()}
    stages = [{"layers": [one.first, one.past_last]} | ({"head": True} if one.head else {}) for one in plan.stages]
    return found | {"stages": stages, "placement": [str(device) for device in plan.placement]}


def digest(plan: PipelinesPlan) -> str:
    """Hash of what a simulation of the plan depends on, as 16 hexadecimal digits."""
    data = {key: value for key, value in facts(plan).items() if key not in ("prediction", "certificate", "made_by")}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def to_json(plan: PipelinesPlan) -> str:
    """Text of a plan of unlike pipelines: one line per top-level key and pipeline."""
    lines = []
    for key, value in facts(plan).items():
        rows = ",\n".join(f"    {json.dumps(row)}" for row in value) if key == "pipelines" else ""
        lines.append(f"  {json.dumps(key)}: " + (f"[\n{rows}\n  ]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load(path: str | Path) -> PipelinesPlan:
    """The plan of unlike pipelines of a file. Raises PlanError with one line per fault."""
    return from_text(str(path), read_text(path, PlanError))


def from_text(name: str, text: str) -> PipelinesPlan:
    """The plan of unlike pipelines of a text; `name` is the file in errors. Raises PlanError with one line per fault."""
    try:
        document = parse(name, text)
        data = check(document, PipelinesFacts)
    except TopologyError as error:
        raise PlanError(str(error)) from None
    topology, workload = planfile.machines_and_workload(document, data.workload)
    common = {key: getattr(data.config, key) for key in COMMON}
    pipelines = []
    for index, one in enumerate(data.pipelines):
        with _at(document, f"pipelines[{index}]"):
            pipelines.append(_plan(one, common, topology, workload, MadeBy(**data.made_by.model_dump())))
    with _at(document):
        made_by, certificate = MadeBy(**data.made_by.model_dump()), data.certificate
        proved = space_bound(certificate) if certificate is not None else None
        prediction = planfile.prediction_from(data.prediction)
        found = replace(of_plans(pipelines, made_by), prediction=prediction, certificate=proved)
    if (samples := found.workload.global_batch_size) != workload.global_batch_size:
        raise PlanError(
            document.fault(
                ("workload", "global_batch_size"),
                f"{workload.global_batch_size}, but the microbatches of all pipelines have {samples} samples",
            )
        )
    return found


def _plan(given: PipelineFacts, common: dict[str, Any], topology: Topology, workload: Workload, made_by: MadeBy) -> Plan:
    """One entry of a file as a plan by itself: alike replicas, with their share of the batch."""
    numbers, devices = tuple(given.num_microbatches), list[Device]()
    own = replace(workload, global_batch_size=sum(numbers) * given.microbatch_size)
    for number, text in enumerate(given.placement):
        try:
            devices.append(parse_device(text))
        except PlanError as error:
            raise PlanError(f"placement[{number}]: {error}") from None
    config = ParallelConfig(
        tp=given.tp, pp=len(given.stages), dp=len(numbers), stage_tp=given.stage_tp, cp=given.cp, ep=given.ep, etp=given.etp,
        microbatch_size=given.microbatch_size, num_microbatches=numbers, recompute=given.recompute,
        recompute_layers=given.recompute_layers, recompute_modules=given.recompute_modules, offload=given.offload,
        stage_recompute=given.stage_recompute, stage_offload=given.stage_offload,
        **common, **workload.routing.of_config(given.ep),
        **software_facts(topology.stack, topology.fleet, given.tp),
    )  # fmt: skip
    if len(devices) != config.world_size:
        raise PlanError(f"placement: {len(devices)} devices for {config.world_size} ranks; one for each is needed")
    for device in devices:
        topology.fleet.check(device)
    stages = tuple(Stage(*stage.layers, stage.head) for stage in given.stages)
    groups = groups_of(topology.fleet, config, tuple(devices))
    return Plan(replace(topology, workload=own), own, config, stages, tuple(devices), groups, made_by)


@contextmanager
def _at(document: Document, entry: str = "") -> Iterator[None]:
    """Add file, line and key to errors; `entry` is that of the pipeline that is made (`pipelines[0]`)."""
    try:
        yield
    except HolmesError as error:
        found = KEY.fullmatch(str(error))
        raise PlanError(_fault(document, entry, *(found.groups() if found else ("", str(error))))) from None


def _fault(document: Document, entry: str, key: str, text: str) -> str:
    """One line with the key in the file: that of an entry, or of `config`, which all pipelines have in common."""
    if found := ENTRY.match(key):
        entry, key = found.group(), key[found.end() :].removeprefix(".")
    name = key.removeprefix("config.")
    if (name or text).split()[0] in COMMON:
        whole = f"config.{name}" if name else "config"
    else:
        whole = ".".join(filter(None, (entry, name)))
    path = tuple(int(part) if part.isdigit() else part for part in re.findall(r"\w+", whole))
    return f"{document.name}:{document.line(path)}: {whole}: {text}"
