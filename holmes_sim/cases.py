"""Read measured training runs (format holmes-sim/cases/1): plans to simulate, and the measurements to compare with.

A case has the topology, workload and configuration of a published run, and the measured seconds of one step, or whether the run
ended for want of memory. Ranks are placed on the nodes as listed, in Megatron-LM's order; if `replicas` names clusters, each
replica of each stage takes the next free devices of its cluster. A case that the simulator cannot model has a reason instead of
a plan.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from sim.errors import PlanError, TopologyError
from sim.formats import catalog
from sim.formats.config_facts import ConfigFacts, config_values
from sim.formats.documents import Document, KeyPath, check, parse, read_text
from sim.formats.fields import Count, Flag, Measured, StrictModel
from sim.formats.profile_facts import ProfileFacts
from sim.formats.stack_facts import UsualFacts
from sim.formats.stage_facts import StageFacts
from sim.formats.topology import from_document, profiled
from sim.formats.topology_facts import WorkloadFacts
from sim.hardware.cluster import Cluster, Device, Fleet
from sim.hardware.stack import overlaps_tensor_parallel
from sim.hardware.topology import Topology
from sim.plan.groups import groups_of
from sim.plan.layer_partitions import divided
from sim.plan.parallel_config import USUAL_GRADIENTS, ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.units import GIGA, Bytes, Seconds
from sim.workload.workload import Workload


class CaseConfigFacts(ConfigFacts):
    """Configuration of a case; missing keys have Megatron-LM's defaults, or what `usual` of its stack says."""

    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    microbatch_size: Count = 1
    num_microbatches: list[Count] = Field(default=[])
    schedule: str = "1f1b"
    recompute: str = "none"
    sequence_parallel: Flag = False
    overlap_grad_reduce: Flag = False
    overlap_param_gather: Flag = False
    gradient_precision: str = ""
    layer_partition: str = ""


class MeasuredFacts(StrictModel):
    """Measurements of a run: seconds of one optimizer step, or the outcome: it ran, or failed for want of memory.

    Peak memory in GB (1e9 bytes), if the source reports it, is that of the fullest rank, or of a rank of the first stage."""

    step_s: Measured | None = None
    outcome: Literal["ran", "failed"] | None = None
    peak_memory_gb: Measured | None = None
    first_rank_memory_gb: Measured | None = None

    @model_validator(mode="after")
    def _measures_something(self) -> MeasuredFacts:
        if (self.step_s is None) == (self.outcome is None):
            raise ValueError("give either step_s or outcome (ran or failed)")
        if self.peak_memory_gb is not None and self.first_rank_memory_gb is not None:
            raise ValueError("give either peak_memory_gb or first_rank_memory_gb")
        return self


class CaseFacts(StrictModel):
    """One measured training run. `wrong`: why the measurement cannot be right; such a case is listed, but not simulated."""

    id: str
    topology: dict[str, Any]
    workload: WorkloadFacts
    config: CaseConfigFacts
    stages: tuple[StageFacts, ...] = ()
    replicas: tuple[list[str], ...] = ()
    stack: str
    measured: MeasuredFacts
    certainty: Literal["read", "derived", "digitised", "memory"] = "read"
    assumed: tuple[str, ...] = ()
    wrong: str = ""


class CasesFacts(StrictModel):
    """Measured training runs of one source.

    Peak memory is all used memory of a device (nvidia-smi); if `memory` of the source begins with "torch", it is the memory
    that torch reserved, as the memory of the first rank always is.
    """

    format: Literal["holmes-sim/cases/1"]
    source: dict[str, str]
    notes: tuple[str, ...] = ()
    cases: list[CaseFacts]


@dataclass(frozen=True, slots=True)
class Case:
    """One measured run with its plan, or the `reason` why it has no plan.

    Either `measured_s` is the measured step, or `outcome` says whether the run "ran" or "failed" for want of memory.
    `measured_bytes` is the peak memory of the fullest rank, or of a rank of the first stage (`on_first`), if the source reports
    it: the memory that torch reserved if `inside_torch`, else all used memory of the device.
    """

    id: str
    source: str
    stack: str
    measured_s: Seconds | None
    plan: Plan | None
    reason: str = ""
    measured_bytes: Bytes | None = None
    inside_torch: bool = False
    on_first: bool = False
    outcome: str = ""


def load(path: str | Path, measured: ProfileFacts | None = None) -> tuple[Case, ...]:
    """Read all cases of a file, with an optional profile for their devices. Raises TopologyError with one line per fault."""
    document = parse(str(path), read_text(path))
    faults: list[str] = []
    topologies = tuple(_topologies(document, Path(path).parent, faults))
    try:
        facts = check(document, CasesFacts)
    except TopologyError as error:
        faults = [str(error), *faults]
    if faults:
        raise TopologyError("\n".join(dict.fromkeys("\n".join(faults).splitlines())))
    known = topologies if measured is None else tuple(profiled(topology, measured) for topology in topologies)
    in_torch = facts.source.get("memory", "").startswith("torch")
    return tuple(_case(case, topology, Path(path).stem, in_torch) for case, topology in zip(facts.cases, known, strict=True))


def _topologies(document: Document, folder: Path, faults: list[str]) -> Iterator[Topology]:
    """Yield the topology, with workload, of every case, and append an error text to `faults` for each wrong one."""
    written = document.value.get("cases") if isinstance(document.value, dict) else None
    for index, case in enumerate(written if isinstance(written, list) else []):
        if not isinstance(case, dict) or not isinstance(case.get("topology"), dict):
            continue
        described = {**_used_domains(case["topology"]), "workload": case.get("workload")}
        lines = functools.partial(_lines_of, document, index)
        try:
            yield from_document(Document(document.name, described, lines, [], ("cases", index)), folder)
        except TopologyError as error:
            faults.append(str(error))


def _lines_of(document: Document, index: int) -> dict[KeyPath, int]:
    """The line of every key of the topology of a case, and of its workload."""
    lines = {path[3:]: line for path, line in document.lines.items() if path[:3] == ("cases", index, "topology")}
    return lines | {path[2:]: line for path, line in document.lines.items() if path[:3] == ("cases", index, "workload")}


def _used_domains(topology: dict[str, Any]) -> dict[str, Any]:
    """The topology of a case, with the part of each NVLink domain that the run used, where its hosts are not whole domains.

    Runs on GB200 and GB300 use as many hosts of each domain of 18 as divide theirs: 64 hosts are four domains of 16."""
    found = copy.deepcopy(topology)
    clusters = found.get("clusters")
    for cluster in clusters.values() if isinstance(clusters, dict) else ():
        try:
            nodes, count, domain = cluster["nodes"], cluster["node"]["devices"]["count"], cluster["nvlink_domain"]
            hosts = domain // count
            if nodes > hosts and nodes % hosts:
                used = max(divisor for divisor in range(1, hosts + 1) if nodes % divisor == 0)
                cluster["nvlink_domain"] = used * count
        except (KeyError, TypeError, ZeroDivisionError):
            continue  # a wrong topology, which the reader of topologies says
    return found


def _case(case: CaseFacts, topology: Topology, source: str, in_torch: bool) -> Case:
    plan, reason = None, f"wrong in the source: {case.wrong}" if case.wrong else ""
    try:
        plan = None if reason else _plan(case, topology)
    except PlanError as error:
        reason = str(error)
    seen, on_first = case.measured, case.measured.first_rank_memory_gb is not None
    gigabytes = seen.first_rank_memory_gb if on_first else seen.peak_memory_gb
    peak = None if gigabytes is None else gigabytes * GIGA
    return Case(
        case.id, source, case.stack, seen.step_s, plan, reason, peak, in_torch or on_first, on_first, seen.outcome or ""
    )


def _plan(case: CaseFacts, topology: Topology) -> Plan:
    assert topology.workload is not None
    known = catalog.stack_family(case.stack)
    usual = catalog.stack_facts(known).usual if known else UsualFacts()
    config = _config(case.config, topology.workload, usual)
    overlaps = overlaps_tensor_parallel(topology.stack, topology.fleet, config.tp, config.own_tp_overlap)
    config = replace(config, tp_overlap=overlaps) if config.own_tp_overlap else config
    partition = case.config.layer_partition or usual.layer_partition
    written = tuple(Stage(*stage.layers, stage.head) for stage in case.stages)
    stages = written or divided(partition, topology.workload.model.layers, config.num_stages)
    placement = _placement(topology.fleet, config, case.replicas)
    groups = groups_of(topology.fleet, config, placement)
    return Plan(topology, topology.workload, config, stages, placement, groups, MadeBy("published", case.stack))


def _config(written: CaseConfigFacts, workload: Workload, usual: UsualFacts) -> ParallelConfig:
    """Parallel configuration of a case; recomputed modules imply selective recomputation. Raises PlanError for anything that is
    not modelled."""
    values = config_values(written, workload.routing, workload.model)
    if "overlap_grad_reduce" not in written.model_fields_set:
        pure = usual.overlaps_pure_data and written.tp == written.pp == 1
        values["overlap_grad_reduce"] = pure or written.zero_stage >= 2
    if written.recompute_modules and written.recompute == "none":
        values["recompute"] = "selective"
    if written.zero_shard_size == 1:
        values |= {"zero_shard_size": None, "zero_stage": 0}
    share = workload.global_batch_size // (written.dp * written.microbatch_size)
    values["num_microbatches"] = tuple(written.num_microbatches or [share] * written.dp)
    values["gradient_precision"] = written.gradient_precision or USUAL_GRADIENTS.get(workload.precision, "fp32")
    return ParallelConfig(**values)


def _placement(fleet: Fleet, config: ParallelConfig, replicas: tuple[list[str], ...]) -> tuple[Device, ...]:
    """Device of every rank. Raises PlanError if there are not enough devices."""
    if not replicas:
        everything = [device for cluster in fleet.clusters for device in _devices(cluster)]
        if len(everything) < config.world_size:
            raise PlanError(f"{config.world_size} ranks need as many devices; the topology has {len(everything)}")
        return tuple(everything[: config.world_size])
    free = {cluster.name: iter(_devices(cluster)) for cluster in fleet.clusters}
    try:
        widths = [config.tp_of(pp_rank) * config.dp_cp_of(pp_rank) // config.dp for pp_rank in range(config.pp)]
        stages = zip(widths, replicas, strict=True)
        return tuple(next(free[name]) for width, stage in stages for name in stage for _ in range(width))
    except StopIteration:
        raise PlanError("replicas need more devices than a cluster has") from None


def _devices(cluster: Cluster) -> list[Device]:
    return [Device(cluster.name, node, index) for node in range(cluster.nodes) for index in range(cluster.node.count)]
