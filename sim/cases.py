"""Measured training runs (format holmes-sim/cases/1) -> plans to simulate and seconds to hold them against.

A case is a topology, a workload and a configuration as a published run had them, and the measured seconds of one step.
Ranks stand on the nodes as listed, in Megatron-LM's order; where `replicas` names clusters, each replica of each stage
stands on the next free devices of its own. What the simulator does not model makes the case a reason instead of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sim.cluster import Cluster, Device, Fleet
from sim.documents import Document, check, parse, read_text
from sim.errors import PlanError, TopologyError
from sim.model import Workload
from sim.plan import USUAL_GRADIENTS, MadeBy, ParallelConfig, Plan, Stage, groups_of
from sim.schema import CasesFacts, ProfileFacts
from sim.topology import from_document, profiled
from sim.units import GIGA, Bytes

PARTITIONS = ("transformer-only", "embedding-as-layer")
"""How layers are shared among stages: evenly, or with embedding and loss counted as a layer (Megatron-LM's
--account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One measured run: a plan, or why there is none. `measured_bytes` is of its fullest rank, where the source tells it."""

    id: str
    source: str
    stack: str
    measured_s: float
    plan: Plan | None
    reason: str = ""
    measured_bytes: Bytes | None = None


def load(path: str | Path, measured: ProfileFacts | None = None) -> tuple[Case, ...]:
    """All cases of a file, with a measured profile on their devices. Raises TopologyError, a line for every fault."""
    document = parse(str(path), read_text(path))
    facts = check(document, CasesFacts)
    assert isinstance(document.value, dict)
    found = []
    for index, (written, case) in enumerate(zip(document.value["cases"], facts.cases, strict=True)):
        described = {**written["topology"], "workload": written["workload"]}
        inside = {p[3:]: line for p, line in document.lines.items() if p[:3] == ("cases", index, "topology")}
        inside |= {p[2:]: line for p, line in document.lines.items() if p[:3] == ("cases", index, "workload")}
        topology = from_document(Document(document.name, described, inside, [], ("cases", index)), Path(path).parent)
        if measured is not None:
            topology = profiled(topology, measured)
        plan, reason = None, ""
        try:
            assert topology.workload is not None
            config = _config(case.config, topology.workload)
            partition = case.config.get("layer_partition", "transformer-only")
            stages = _stages([stage.layers for stage in case.stages], topology.workload.model.layers, config, partition)
            placement = _placement(topology.fleet, config, case.replicas)
            groups = groups_of(topology.fleet, config, placement)
            plan = Plan(topology, topology.workload, config, stages, placement, groups, MadeBy("published", case.stack))
        except (PlanError, TopologyError) as error:
            reason = str(error)
        if case.wrong:
            plan, reason = None, f"wrong at its source: {case.wrong}"
        gigabytes = case.measured.peak_memory_gb
        peak = None if gigabytes is None else gigabytes * GIGA
        found.append(Case(case.id, Path(path).stem, case.stack, case.measured.step_s, plan, reason, peak))
    return tuple(found)


def _config(written: dict[str, Any], workload: Workload) -> ParallelConfig:
    """The configuration of a case; what it does not say is as Megatron-LM has it by default."""
    values = dict(written)
    values.pop("layer_partition", None)
    shard = values.pop("zero_shard_size", None)
    if shard not in (None, values.get("dp")):
        raise PlanError(f"zero_shard_size {shard} is not modelled where dp is {values.get('dp')}")
    replicas = int(values.get("dp", 1))
    share = workload.global_batch_size // (replicas * int(values.get("microbatch_size", 1)))
    values.setdefault("gradient_precision", USUAL_GRADIENTS.get(workload.precision, "fp32"))
    values.setdefault("overlap_grad_reduce", False)
    values.setdefault("overlap_param_gather", False)
    try:
        return ParallelConfig(**values, num_microbatches=(share,) * replicas)
    except TypeError as error:
        raise PlanError(f"config: {str(error).split('__init__() ')[-1]}") from None


def _stages(written: list[tuple[int, int]], layers: int, config: ParallelConfig, partition: str) -> tuple[Stage, ...]:
    """Stages as written, or even ones; "embedding-as-layer" counts embedding and loss as one layer each."""
    if written:
        return tuple(Stage(first, past) for first, past in written)
    if partition not in PARTITIONS:
        raise PlanError(f"layer_partition {partition!r} is unknown; known: {', '.join(PARTITIONS)}")
    ends = int(partition == "embedding-as-layer")
    cuts = [(layers + 2 * ends) * index // config.num_stages - ends for index in range(config.num_stages + 1)]
    cuts[0], cuts[-1] = 0, layers
    return tuple(Stage(first, past) for first, past in pairwise(cuts))


def _placement(fleet: Fleet, config: ParallelConfig, replicas: list[list[str]]) -> tuple[Device, ...]:
    if not replicas:
        everything = [device for cluster in fleet.clusters for device in _devices(cluster)]
        if len(everything) < config.world_size:
            raise PlanError(f"{config.world_size} ranks on {len(everything)} devices")
        return tuple(everything[: config.world_size])
    free = {cluster.name: iter(_devices(cluster)) for cluster in fleet.clusters}
    try:
        return tuple(next(free[name]) for stage in replicas for name in stage for _ in range(config.tp * config.cp))
    except StopIteration:
        raise PlanError("replicas ask for more devices than a cluster has") from None


def _devices(cluster: Cluster) -> list[Device]:
    return [Device(cluster.name, node, index) for node in range(cluster.nodes) for index in range(cluster.node.count)]
