"""HeterMoE (arXiv 2504.03871): speedups of attention and experts on unlike devices over plain expert parallelism.

`hetermoe.yaml` has the paper's clusters, models and results. Each setting is simulated with the devices of the catalogue, and
once more with older devices that are as much slower than the newer ones as the paper measured on modules of Mixtral 8x7B
(figure 2): their shares of the peak in products and in attention are set to that. No speedup of the paper is fitted.

Not published, and guessed here: 32,768 tokens a device and step (the paper: as many as memory allows), one device and one NIC a
node, all activations recomputed (the paper: activation checkpointing), and that plain expert parallelism hides 0.6 of its
exchange (the paper: the overlap of Tutel and Lina). Plain expert parallelism is timed even where it does not fit the memory.

EP: one ep group of all devices, equal batches, simulated as any plan. DistEP: attention on the newer and experts on the older
devices, without overlap. Ideal: EP on each type of device by itself, throughputs added. Split: the best stage with attention on
the newer devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from planner.disaggregation import search
from planner.placement.simulation import fits
from sim.disaggregation.costs import step_seconds
from sim.disaggregation.stage import DisaggregatedStage
from sim.engine.engine import simulate
from sim.formats import catalog, documents, topology
from sim.hardware.cluster import Device
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.stack import software_facts
from sim.hardware.topology import Topology
from sim.kernels.formulas import kernel_seconds
from sim.network.routes import Devices
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.workload.kernels import Attention, Kernel, LayerSharding
from sim.workload.model import Model
from sim.workload.workload import Workload

LENGTHS = (4096, 8192, 16384, 32768)
"""Tokens of a sequence; the paper has 4K to 32K."""
TOKENS = 32768
"""Tokens of a step for each device (a guess): one sequence of the longest kind, which barely fits on a V100 of 16 GB."""
PRECISION = "fp16"
LONGEST = 65536
"""Tokens at which figure 2 has its largest ratio of attention."""
EXPERT_TOKENS = 8192
"""Tokens of the expert whose ratio is set (a guess; figure 2 has one ratio for all lengths)."""


@cache
def facts() -> dict[str, Any]:
    """The settings and results of the paper."""
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("hetermoe.yaml").read_text(encoding="utf-8"))
    return found


def model(name: str) -> Model:
    """A model of table 2: Mixtral's heads of 128, four queries to a key, and MLP of 3.5 x hidden."""
    shape = facts()["models"][name]
    hidden = shape["hidden"]
    return Model(
        name, shape["layers"], hidden, hidden // 128, hidden // 512, hidden * 7 // 2, 32000, "swiglu", 128,
        experts=shape["experts"], experts_per_token=2,
    )  # fmt: skip


def where(name: str, measured: bool = False) -> Topology:
    """A cluster of table 1: clusters `new` and `old` on one switch; `measured`: with the older device as in figure 2."""
    one = facts()["clusters"][name]
    nics = [{"type": "roce", "bandwidth": one["rate"], "count": 1}]
    clusters = {
        side: {
            "nodes": one[f"{side}_devices"],
            "node": {"devices": {"type": one[side], "count": 1}, "intra_node": "pcie4", "nics": nics},
        }
        for side in ("new", "old")
    }
    switch = {"between": ["new", "old"], "type": "roce", "bandwidth": "10000 Gbit/s", "latency": "0 us"}
    document = {"format": "holmes-sim/topology/1", "name": name, "source": "arXiv 2504.03871", "clusters": clusters}
    found = topology.from_document(documents.parse(name, documents.to_yaml(document | {"links": [switch]})))
    if not measured:
        return found
    new, old = found.fleet.clusters
    device = as_measured(new.node.device, old.node.device)
    older = replace(old, node=replace(old.node, device=device))
    return replace(found, fleet=replace(found.fleet, clusters=(new, older)))


def as_measured(newer: DeviceSpec, older: DeviceSpec) -> DeviceSpec:
    """The older device with the shares of its peak in products and in attention that give the ratios of figure 2."""
    ratios = facts()["measured"][newer.name]
    for _ in range(20):  # a fixed point, because passes over memory take a part of the time
        wanted = module_seconds(newer, EXPERT_TOKENS, False) * ratios["experts"]
        factor = module_seconds(older, EXPERT_TOKENS, False) / wanted
        gemm = replace(older.gemm, compute_efficiency=older.gemm.compute_efficiency * factor)
        older = replace(older, gemm=gemm)
    whole = module_seconds(older, LONGEST, True)
    core = sum(_seconds(kernel, older) for kernel in _module(LONGEST, True) if isinstance(kernel, Attention))
    left = module_seconds(newer, LONGEST, True) * ratios[f"attention_{LONGEST}"] - (whole - core)
    return replace(older, attention=older.attention.scaled(core / left))


def module_seconds(device: DeviceSpec, tokens: int, attention: bool) -> float:
    """Seconds of the attention module, or of one expert, of Mixtral 8x7B on a sequence, forward and backward."""
    return sum(_seconds(kernel, device) for kernel in _module(tokens, attention))


def _module(tokens: int, attention: bool) -> tuple[Kernel, ...]:
    workload = Workload(replace(catalog.model("mixtral-8x7b"), experts_per_token=1), 1, tokens, PRECISION)
    kernels = workload.kernels(1, LayerSharding(ep=workload.model.experts))
    names = ("qkv", "heads", "attention", "projection") if attention else ("up", "activation", "down")
    return tuple(kernel for kernel in kernels if kernel.name in names)


def _seconds(kernel: Kernel, device: DeviceSpec) -> float:
    workload = Workload(catalog.model("mixtral-8x7b"), 1, LONGEST, PRECISION)
    return sum(kernel_seconds(kernel, device, workload, ParallelConfig(gradient_precision=PRECISION)))


def side(found: Topology, name: str) -> Devices:
    """All devices of a cluster."""
    return tuple(Device(name, node, 0) for node in range(found.fleet.cluster(name).nodes))


def ep_step(found: Topology, workload: Workload, devices: Devices) -> float:
    """Seconds of a step of plain expert parallelism over devices, with the fastest microbatch size that fits, or one."""
    ranks = len(devices)
    own = workload.global_batch_size // ranks
    plans = []
    for size in (size for size in range(1, own + 1) if own % size == 0):
        config = ParallelConfig(
            dp=ranks, ep=ranks, microbatch_size=size, num_microbatches=(own // size,) * ranks, recompute="full",
            gradient_precision=PRECISION, overlap_expert_communication=True, **software_facts(found.stack, found.fleet, 1),
        )  # fmt: skip
        stages = (Stage(0, workload.model.layers),)
        groups = groups_of(found.fleet, config, devices)
        plans.append(Plan(replace(found, workload=workload), workload, config, stages, devices, groups, MadeBy("by hand", "1")))
    return min(simulate(plan).step_s for plan in [plan for plan in plans if fits(plan)] or plans[:1])


def split(found: Topology, workload: Workload, overlapped: bool = True) -> DisaggregatedStage | None:
    """The fastest stage with attention on the newer devices; without overlap as DistEP. Memory is checked."""
    best: search.Found | None = None
    for start in search.starts(found, workload, side(found, "new"), side(found, "old"), ("full",)):
        if start.groups == 1 and overlapped:
            best = search.with_kept_experts(start, best) or best
        elif start.groups == start.microbatches == 1 and (best is None or step_seconds(start) < best.step):
            best = search.Found(start, step_seconds(start))
    return best.stage if best else None


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of a step of one setting; `ideal` is that of the added throughputs."""

    cluster: str
    model: str
    length: int
    ep: float
    dist: float
    ideal: float
    split: float
    stage: DisaggregatedStage

    @property
    def newer(self) -> str:
        """The newer type of device."""
        return str(facts()["clusters"][self.cluster]["new"])


def rows(measured: bool, clusters: Iterable[str] = (), lengths: Iterable[int] = LENGTHS) -> Iterator[Row]:
    """All settings, or those of some clusters."""
    for name in clusters or facts()["clusters"]:
        found = where(name, measured)
        new, old = side(found, "new"), side(found, "old")
        for title in facts()["clusters"][name]["models"]:
            for length in lengths:
                own = TOKENS // length
                whole, *parts = (Workload(model(title), own * len(d), length, PRECISION) for d in (new + old, new, old))
                rates = (own * len(d) / ep_step(found, part, d) for d, part in zip((new, old), parts, strict=True))
                # the step of a batch that divides among the attention ranks, for as many samples
                best, dist = split(found, fitted := _divided(whole, len(new))), split(found, fitted, overlapped=False)
                if best is None or dist is None:
                    continue
                scale = whole.global_batch_size / fitted.global_batch_size
                yield Row(
                    name, title, length, ep_step(found, whole, new + old), scale * step_seconds(dist),
                    whole.global_batch_size / sum(rates), scale * step_seconds(best), best,
                )  # fmt: skip


def _divided(workload: Workload, ranks: int) -> Workload:
    """The workload with the next larger batch that `ranks` attention ranks divide into an even number of sequences each."""
    return replace(workload, global_batch_size=-(-workload.global_batch_size // (2 * ranks)) * 2 * ranks)


def speedups(found: Iterable[Row]) -> Iterator[str]:
    """Lines of a Markdown table of speedups, beside the paper's where its text has them."""
    listed = list(found)
    yield "| devices | tokens | over EP | paper | over DistEP | paper | over EP (Ideal) | paper |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for newer in dict.fromkeys(row.newer for row in listed):
        published = facts()["published"][newer]
        own = [row for row in listed if row.newer == newer]
        for length in (*dict.fromkeys(row.length for row in own), 0):
            some = [row for row in own if length in (row.length, 0)]
            cells = [mean(getattr(row, name) / row.split for row in some) for name in ("ep", "dist", "ideal")]
            paper = [_published(published[name], length) for name in ("EP", "DistEP", "Ideal")]
            numbers = " | ".join(f"{cell:.2f} | {known}" for cell, known in zip(cells, paper, strict=True))
            yield f"| {newer} | {f'{length:,}' if length else 'all'} | {numbers} |"


def _published(value: Any, length: int) -> str:
    """The published speedup at a length, or (0) over all lengths."""
    found = value.get(length) if isinstance(value, dict) else None if length else value
    return "" if found is None else f"{found:.2f}"


def settings(found: Iterable[Row]) -> Iterator[str]:
    """Lines of a Markdown table of all settings."""
    yield "| cluster | model | tokens | EP | DistEP | EP (Ideal) | split | over EP | microbatches | kept |"
    yield "| --- " * 10 + "|"
    for row in found:
        times = " | ".join(f"{seconds:.2f} s" for seconds in (row.ep, row.dist, row.ideal, row.split))
        stage = row.stage
        own = f"{stage.microbatches} x {stage.microbatch_size} | {mean(stage.kept):.3g} of {stage.workload.model.experts}"
        yield f"| {row.cluster} | {row.model} | {row.length:,} | {times} | {row.ep / row.split:.2f} | {own} |"


def show() -> None:
    """Print both tables, with the devices of the catalogue and with the measured ratios of modules."""
    for measured in (False, True):
        print("with the ratios of figure 2:" if measured else "with the devices of the catalogue:")
        found = list(rows(measured))
        for line in (*speedups(found), "", *settings(found), ""):
            print(line, flush=True)
