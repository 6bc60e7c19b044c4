"""Seconds, step and gap of `holmes-sim plan`, and the steps of other strategies: `python -m benchmarks planning [FLEET ...]`.

Without a name all shipped topologies are planned, and three generated fleets: `mixed-age` (H100, A100 and V100 of 17 nodes),
`1024-devices` (four device types, Llama 3 70B) and `102400-devices` (four device types on InfiniBand and four on RoCE, Llama 3
405B). A search ends by its budgets of work or after the default time limit. Each fleet is planned in a separate process, and by
the other strategies in another one; all use the same costs, memory model and engine."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import scale
from holmes_sim.commands import shipped_topologies
from sim.errors import Infeasible

OTHERS = ("metis", "amp", "alpa", "dt_fm")
"""Strategies whose steps are compared with the plan's."""
Class = tuple[str, int, str, str, str]
"""Name, number of nodes of eight devices, device type, interconnect, NICs."""


def fleets() -> dict[str, str]:
    """Name -> text of the topology file of every generated fleet."""
    slow = "{type: ethernet, bandwidth: 25 Gbit/s, count: 1}"
    ages = (("h", 3, "h100-sxm5-80gb", 4, 400, 8), ("a", 6, "a100-sxm4-80gb", 3, 200, 4), ("v", 8, "v100-sxm2-32gb", 2, 100, 4))
    mixed_age = [
        (name, nodes, device, f"nvlink{nvlink}", f"{_nic('infiniband', rate, count)}, {slow}")
        for name, nodes, device, nvlink, rate, count in ages
    ]
    ethernet = _nic("ethernet", 100, 1)
    four = [
        (f"c{i}", 32, device, inside, _nic(nic, rate, 8) + ("" if nic == "ethernet" else f", {ethernet}"))
        for i, (device, inside, nic, rate) in enumerate((*kind[:3], int(kind[3].split()[0])) for kind in scale.MIXED)
    ]
    inside = {"a100-sxm4": "nvlink3", "h100-sxm5": "nvlink4", "h800-sxm5": "nvlink4-h800", "a800-sxm4": "nvlink3-a800"}
    eight = [
        (f"{device[:4]}-{nic}", 1600, f"{device}-80gb", inside[device], f"{_nic(nic, rate, count)}, {ethernet}")
        for device in inside
        for nic, rate, count in (("infiniband", 400, 8), ("roce", 200, 4))
    ]
    return {
        "mixed-age": topology("mixed-age", mixed_age, 100, "llama-2-13b", 1024, "fp16"),
        "1024-devices": topology("1024-devices", four, 6400, "llama-3-70b", 1024, "bf16"),
        "102400-devices": topology("102400-devices", eight, 3200, "llama-3-405b", 16384, "bf16"),
    }


def _nic(kind: str, gbit: int, count: int) -> str:
    return f"{{type: {kind}, bandwidth: {gbit} Gbit/s, count: {count}}}"


def topology(name: str, classes: Sequence[Class], gbit: int, model: str, batch: int, precision: str) -> str:
    """The text of a topology file whose clusters are joined in pairs by Ethernet of so many Gbit/s."""
    lines = ["format: holmes-sim/topology/1", f"name: {name}", "clusters:"]
    for cluster, nodes, device, inside, nics in classes:
        lines += [f"  {cluster}:", f"    nodes: {nodes}", "    node:", f"      devices: {{type: {device}, count: 8}}"]
        lines += [f"      intra_node: {inside}", f"      nics: [{nics}]"]
    lines.append("links:")
    for (a, *_), (b, *_) in itertools.combinations(classes, 2):
        lines.append(f"  - {{between: [{a}, {b}], type: ethernet, bandwidth: {gbit} Gbit/s, latency: 20 us}}")
    lines.append(f"workload: {{model: {model}, global_batch_size: {batch}, seq_len: 4096, precision: {precision}}}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Row:
    """Planning of one fleet. `first_s`: seconds until the first plan; `seconds` and `cpu_seconds` of the whole command; step of
    the plan in seconds; peak memory in bytes; step of each other strategy divided by the plan's, None where it has no plan."""

    fleet: str
    first_s: float
    seconds: float
    cpu_seconds: float
    step_s: float
    gap: float
    peak_bytes: float
    ratios: tuple[float | None, ...]


def measure(names: Sequence[str], others: Sequence[str] = OTHERS) -> Iterator[Row]:
    """Plan the named fleets, or all without a name, with the command line; each row when it is known."""
    generated = fleets()
    with tempfile.TemporaryDirectory() as folder:
        for name in names or (*shipped_topologies(), *generated):
            given = name
            if name in generated:
                given = str(Path(folder) / f"{name}.yaml")
                Path(given).write_text(generated[name], encoding="utf-8")
            yield _row(name, given, others, Path(folder))


def _row(name: str, given: str, others: Sequence[str], folder: Path) -> Row:
    begun = time.perf_counter()
    lines, used = _ran(("plan", given, "--json-lines"), folder)
    seconds = time.perf_counter() - begun
    found = lines[-1]
    step = found["prediction"]["step_s"]
    ratios: tuple[float | None, ...] = ()
    if others:
        compared, _ = _ran(("compare", given, "--strategies", ",".join(others), "--json"), folder)
        rows = compared[0]["rows"] if compared else [{"step_s": None}] * len(others)
        ratios = tuple(row["step_s"] and row["step_s"] / step for row in rows)
    peak = used.ru_maxrss * 1024.0  # kibibytes on Linux
    cpu = used.ru_utime + used.ru_stime
    return Row(name, lines[0]["seconds"], seconds, cpu, step, found["certificate"]["gap"], peak, ratios)


def _ran(command: Iterable[str], folder: Path) -> tuple[list[dict[str, Any]], Any]:
    """The JSON documents that a command prints, none where no plan is feasible, and the resources that it used."""
    arguments = [sys.executable, "-m", "holmes_sim.cli", *command]
    with (folder / "result.json").open("w+", encoding="utf-8") as result:
        process = subprocess.Popen(arguments, stdout=result)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode == Infeasible.exit_code:
            return [], used
        if status:
            raise SystemExit(f"{' '.join(arguments[3:])} failed")
        result.seek(0)
        text = result.read()
    return [json.loads(line) for line in (text.splitlines() if "--json-lines" in arguments else [text])], used


def show(names: list[str]) -> None:
    """Print a row for each fleet when it is known: seconds, step, gap, memory, and steps of other strategies by the plan's."""
    unknown = sorted(set(names) - {*shipped_topologies(), *fleets()})
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; known: {', '.join((*shipped_topologies(), *fleets()))}")
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    head = f"{'fleet':<30}{'first':>8}{'seconds':>10}{'CPU':>10}{'step':>11}{'gap':>8}{'memory':>10}"
    print(head + "".join(f"{name:>8}" for name in OTHERS), flush=True)
    for row in measure(names):
        times = f"{row.first_s:>6.1f} s{row.seconds:>8.1f} s{row.cpu_seconds:>8.1f} s"
        found = f"{row.step_s:>9.4g} s{row.gap:>8.1%}{row.peak_bytes / 2**20:>6.0f} MiB"
        ratios = "".join("       -" if ratio is None else f"{ratio:>8.2f}" for ratio in row.ratios)
        print(f"{row.fleet:<30}{times}{found}{ratios}", flush=True)
