"""Malleus' layouts (`benchmarks.peers.malleus`) as plans of unlike pipelines, and their steps simulated with its slow devices.

The topology, malleus.yaml, says what is assumed. A pair of devices is a stage of tp 2, and the healthy device of a slow pair a
stage of tp 1. Malleus' slowness of a pair is that of its slow device here; every other number (compute, messages, sums of
gradients over InfiniBand) is that of this simulator, which was not fitted to Malleus' runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.peers.malleus import REPORTED, SLOW, Layout, joint, judge, uniform
from sim.engine import symmetry
from sim.engine.engine import simulate
from sim.engine.faults import DrawnFaults
from sim.formats.topology import load
from sim.hardware.cluster import Device
from sim.hardware.topology import Topology
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan, Stage
from sim.units import Seconds

BY = MadeBy("malleus-judged", "1")


def expressed(layout: Layout, slow: tuple[float, ...]) -> tuple[PipelinesPlan, DrawnFaults]:
    """(plan of unlike pipelines of a layout, its slow devices). `slow`: slowness of the slow devices, one on each of the first
    nodes, as in the source. Raises PlanError if a plan cannot express the layout."""
    where = load(Path(__file__).with_name("malleus.yaml"))
    (cluster,) = where.fleet.clusters
    devices = [[Device(cluster.name, node, index) for index in range(cluster.node.count)] for node in range(cluster.nodes)]
    pairs = [(node[index], node[index + 1]) for node in devices for index in range(0, len(node), 2)]
    slow_pairs = {ratio: pairs.pop(index * (cluster.node.count // 2) - index) for index, ratio in enumerate(slow)}
    faults = DrawnFaults(slow=tuple((pair[0], ratio) for ratio, pair in slow_pairs.items()))
    whole = {group.slowness for pipeline, _ in layout for group in pipeline.groups if group.share == 1}
    halves = [pair[1:] for ratio, pair in slow_pairs.items() if ratio not in whole]
    entries = []
    for pipeline, microbatches in layout:
        stages = [
            halves.pop(0) if group.share == 2 else slow_pairs[group.slowness] if group.slowness in slow_pairs else pairs.pop(0)
            for group in pipeline.groups
        ]
        entries.append(_entry(where, stages, pipeline.layers, microbatches))
    return of_plans(entries, BY), faults


def _entry(where: Topology, stages: list[tuple[Device, ...]], layers: tuple[int, ...], microbatches: int) -> Plan:
    degrees = tuple(map(len, stages))
    assert where.workload is not None
    config = ParallelConfig(
        tp=max(degrees), pp=len(stages), dp=1, num_microbatches=(microbatches,), sequence_parallel=True,
        stage_tp=degrees if min(degrees) < max(degrees) else (),
    )  # fmt: skip
    ends = [sum(layers[: index + 1]) for index in range(len(layers))]
    cuts = tuple(Stage(end - own, end) for own, end in zip(layers, ends, strict=True))
    workload = replace(where.workload, global_batch_size=microbatches)
    placement = tuple(device for stage in stages for device in stage)
    return Plan(
        replace(where, workload=workload), workload, config, cuts, placement, groups_of(where.fleet, config, placement), BY
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A layout: seconds under Malleus' model in units of a layer and microbatch, and of the simulated step."""

    case: str
    layout: str
    judged: float
    step_s: Seconds


def measure() -> list[Row]:
    """The layouts of both cases: Malleus' own, the best one under its model, and the best with one split of the layers."""
    rows = []
    for case, slow in SLOW.items():
        layouts = {"Malleus": REPORTED} if case == "two slow" else {}
        layouts |= {"joint": joint(slow), "one split": uniform(slow)}
        for name, layout in layouts.items():
            plan, faults = expressed(layout, slow)
            step = simulate(plan, symmetry.fold(plan, faults), faults).step_s
            rows.append(Row(case, name, judge(layout), step))
    return rows
