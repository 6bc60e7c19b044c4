"""Seconds of raw gloo in the lab compared with the model of the same links, for single and for concurrent operations.

Six nodes, four on InfiniBand and two on RoCE, joined by an Ethernet trunk with half the bandwidth of a NIC. Measurements depend
on this machine and its load. Needs root or user namespaces, and torch.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from holmes_sim.lab.lab import Lab
from holmes_sim.lab.payload_rates import as_wired
from sim.formats.topology import load
from sim.hardware.cluster import Device
from sim.network.alpha_beta import alpha_beta_cost
from sim.network.paths import Capacities
from sim.network.routes import Route, by_host, collective_route, message_route
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage

SCALE = 1000.0
"""Scale of the lab: 200 Gbit/s become 200 Mbit/s. A case uses at most four of the eleven NICs."""
REPEATS = 3

TOPOLOGY = """
format: holmes-sim/topology/1
name: lab
clusters:
  ib:
    nodes: 4
    node:
      devices: {type: a100-sxm4-80gb, count: 2}
      intra_node: nvlink3
      nics: [{type: infiniband, bandwidth: 200 Gbit/s, count: 1}, {type: ethernet, bandwidth: 200 Gbit/s, count: 1}]
  roce:
    nodes: 2
    node:
      devices: {type: a100-sxm4-80gb, count: 2}
      intra_node: nvlink3
      nics: [{type: roce, bandwidth: 200 Gbit/s, count: 1}, {type: ethernet, bandwidth: 200 Gbit/s, count: 1}]
links:
  - {between: [ib, roce], type: ethernet, bandwidth: 100 Gbit/s, latency: 50 us}
workload: {model: gpt-1.7b, global_batch_size: 4, seq_len: 2048, precision: bf16}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """Groups that run an operation at the same time, `times` times on `nbytes` each. Ranks 2n and 2n + 1 share a node."""

    name: str
    operation: str
    nic: str
    groups: tuple[tuple[int, ...], ...]
    nbytes: int = 3_000_000
    times: int = 2


CASES = (
    Case("a message", "send_recv", "infiniband", ((0, 2),)),
    Case("30 small messages", "send_recv", "infiniband", ((0, 2),), 96_000, 30),
    Case("all_reduce of 3", "all_reduce", "infiniband", ((0, 2, 4),)),
    Case("all_reduce of 4", "all_reduce", "infiniband", ((0, 2, 4, 6),)),
    Case("all_gather of 4", "all_gather", "infiniband", ((0, 2, 4, 6),), times=4),
    Case("reduce_scatter of 4", "reduce_scatter", "infiniband", ((0, 2, 4, 6),), times=4),
    Case("two messages out of a NIC", "send_recv", "infiniband", ((0, 2), (1, 4))),
    Case("two messages into a NIC", "send_recv", "infiniband", ((2, 0), (4, 1))),
    Case("two all_reduces share NICs", "all_reduce", "infiniband", ((0, 2, 4), (1, 3, 5))),
    Case("a message over the trunk", "send_recv", "ethernet", ((0, 8),)),
    Case("two messages share the trunk", "send_recv", "ethernet", ((0, 8), (2, 10))),
    Case("two messages, opposite ways", "send_recv", "ethernet", ((0, 8), (10, 2))),
    Case("all_reduce over the trunk", "all_reduce", "ethernet", ((0, 2, 8),)),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of a case in the lab: modelled (times the scale), and the median of the measurements."""

    name: str
    modelled: float
    measured: float


def plan(folder: Path) -> Plan:
    """A plan of three stages with two nodes each: InfiniBand, InfiniBand, RoCE."""
    path = folder / "topology.yaml"
    path.write_text(TOPOLOGY, encoding="utf-8")
    found = load(path)
    assert found.workload is not None
    config = ParallelConfig(pp=3, dp=4, num_microbatches=(1,) * 4)
    nodes = [(cluster.name, node) for cluster in found.fleet.clusters for node in range(cluster.nodes)]
    placement = tuple(Device(*node, index) for node in nodes for index in range(2))
    layers = found.workload.model.layers
    stages = tuple(Stage(stage * layers // 3, (stage + 1) * layers // 3) for stage in range(3))
    return Plan(
        found, found.workload, config, stages, placement, groups_of(found.fleet, config, placement), MadeBy("benchmark", "")
    )


def modelled(given: Plan, case: Case) -> float:
    """Modelled seconds of a case on the links of a plan, without other traffic."""

    def route(ranks: tuple[int, ...]) -> Route:
        devices = tuple(given.placement[rank] for rank in ranks)
        if case.operation == "send_recv":
            return message_route(given.fleet, *devices, case.nic)
        return collective_route(given.fleet, by_host(devices), case.nic, "ring", case.operation)

    cost = alpha_beta_cost(tuple(route(ranks) for ranks in case.groups), Capacities(given.fleet))
    return cost.seconds(case.nbytes, case.times)


def measure(cases: tuple[Case, ...] = CASES, scale: float = SCALE, repeats: int = REPEATS) -> list[Row]:
    """Start the lab once and run every case `repeats` times; rank 0 has the rendezvous and must take part in some case."""
    with tempfile.TemporaryDirectory() as folder:
        given = plan(Path(folder))
    requests = json.dumps([asdict(case) for case in cases for _ in range(repeats)])
    playing = {rank for case in cases for group in case.groups for rank in group}
    flows = [sys.executable, "-m", "benchmarks.flows", requests, str(len(playing))]
    with Lab(given, scale) as lab:
        said = lab.run(lambda seat: flows if seat.rank in playing else ["true"])
        wired = as_wired(given, lab.has_latency)
    found = [json.loads(rank.output) for rank in said if rank.rank in playing]
    longest = [max(seconds for seconds in ranks if seconds is not None) for ranks in zip(*found, strict=True)]
    medians = [statistics.median(longest[first : first + repeats]) for first in range(0, len(longest), repeats)]
    return [Row(case.name, modelled(wired, case) * scale, median) for case, median in zip(cases, medians, strict=True)]
