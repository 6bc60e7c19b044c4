"""Seconds and memory of `holmes-sim simulate` on a thousand to a hundred thousand devices, of one type and of four.

GPT-3 175B with tp 8, pp 16, and as many replicas as the devices allow, 192 microbatches each: 1,024 devices train a batch of
1,536 as in Narayanan et al., arXiv 2104.04473. The uniform fleet has A100s on InfiniBand. The mixed fleets have four device
types on InfiniBand, RoCE and Ethernet; each type has a quarter of the stages of every pipeline ("stages"), or a quarter of the
replicas ("replicas"). Each size runs in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sim.formats import planfile
from sim.formats.topology import load
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage

TP, PP, MICROBATCHES = 8, 16, 192
SIZES = (1024, 8192, 32768, 131072)
UNIFORM = (("a100-sxm4-80gb", "nvlink3", "infiniband", "200 Gbit/s"),)
MIXED = (
    *UNIFORM,
    ("h100-sxm5-80gb", "nvlink4", "infiniband", "400 Gbit/s"),
    ("h200-sxm-141gb", "nvlink4", "roce", "400 Gbit/s"),
    ("a800-sxm4-80gb", "nvlink3", "ethernet", "200 Gbit/s"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One simulation: classes of ranks, its seconds, CPU seconds and peak memory (bytes) of its process, simulated step."""

    fleet: str
    devices: int
    classes: int
    seconds: float
    process_seconds: float
    peak_bytes: float
    step_s: float


def topology(kinds: tuple[tuple[str, str, str, str], ...], devices: int) -> str:
    """The text of a topology file with equal numbers of devices of each type."""
    lines = ["format: holmes-sim/topology/1", "name: scale", "clusters:"]
    for index, (device, inside, nic, bandwidth) in enumerate(kinds):
        ethernet = "" if nic == "ethernet" else ", {type: ethernet, bandwidth: 100 Gbit/s, count: 1}"
        lines += [
            f"  c{index}:",
            f"    nodes: {devices // 8 // len(kinds)}",
            "    node:",
            f"      devices: {{type: {device}, count: 8}}",
            f"      intra_node: {inside}",
            f"      nics: [{{type: {nic}, bandwidth: {bandwidth}, count: 8}}{ethernet}]",
        ]
    if len(kinds) > 1:
        lines.append("links:")
        for index in range(len(kinds) - 1):
            between, wide = f"[c{index}, c{index + 1}]", devices * 25 // len(kinds)
            lines.append(f"  - {{between: {between}, type: ethernet, bandwidth: {wide} Gbit/s, latency: 20 us}}")
    batch = max(devices // (TP * PP), 1) * MICROBATCHES
    lines.append(f"workload: {{model: gpt-175b, global_batch_size: {batch}, seq_len: 2048, precision: bf16}}")
    return "\n".join(lines) + "\n"


def plan(kinds: tuple[tuple[str, str, str, str], ...], devices: int, folder: Path, by_replica: bool = False) -> Plan:
    """A plan on all devices, placed stage by stage or replica by replica; a tensor-parallel group fills a node."""
    path = folder / "topology.yaml"
    path.write_text(topology(kinds, devices), encoding="utf-8")
    found = load(path)
    assert found.workload is not None
    dp = devices // (TP * PP)
    config = ParallelConfig(tp=TP, pp=PP, dp=dp, num_microbatches=(MICROBATCHES,) * dp, sequence_parallel=True)
    layers = found.workload.model.layers
    stages = tuple(Stage(pp_rank * layers // PP, (pp_rank + 1) * layers // PP) for pp_rank in range(PP))
    nodes = [(cluster.name, node) for cluster in found.fleet.clusters for node in range(cluster.nodes)]
    numbers = (r * PP + pp_rank if by_replica else pp_rank * dp + r for pp_rank in range(PP) for r in range(dp))
    placement = tuple(Device(*nodes[number], index) for number in numbers for index in range(TP))
    groups = groups_of(found.fleet, config, placement)
    return Plan(found, found.workload, config, stages, placement, groups, MadeBy("benchmark", ""))


def measure(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    """Simulate every size and fleet with the command line, each in a new process."""
    rows = []
    for fleet, kinds in (("uniform", UNIFORM), ("stages", MIXED), ("replicas", MIXED)):
        for devices in sizes:
            with tempfile.TemporaryDirectory() as folder:
                given = Path(folder) / "plan.json"
                made = plan(kinds, devices, Path(folder), by_replica=fleet == "replicas")
                given.write_text(planfile.to_json(made), encoding="utf-8")
                rows.append(_row(fleet, devices, given))
    return rows


def _row(fleet: str, devices: int, given: Path) -> Row:
    command = [sys.executable, "-m", "holmes_sim.cli", "simulate", str(given), "--json"]
    with (given.parent / "result.json").open("w+", encoding="utf-8") as result:
        process = subprocess.Popen(command, stdout=result)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            raise SystemExit(f"simulating {devices} {fleet} devices failed")
        result.seek(0)
        answer = json.load(result)
    simulation = answer["simulation"]
    seconds = used.ru_utime + used.ru_stime
    peak = used.ru_maxrss * 1024.0  # kibibytes on Linux
    return Row(fleet, devices, simulation["classes"], simulation["seconds"], seconds, peak, answer["report"]["step_s"])
