"""Charts of the fleet and of the placement of a plan on it. Devices have the colours of their stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

from holmes_sim.charts.palette import NICS, stage_colours
from holmes_sim.charts.style import (
    DARK,
    DPI,
    GREY,
    PALE,
    WIDTH,
    Picture,
    listed,
    numbers,
)
from holmes_sim.idle import idle_label
from sim.engine.rank_plans import RankPlans
from sim.hardware.cluster import Cluster, Device, Fleet, Node, Trunk
from sim.hardware.topology import Topology
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import bytes_per_second_text, flops_text, rate_text, size_text, time_text


@dataclass(frozen=True, slots=True)
class _Glyph:
    """Size of a node's drawing in inches: width and height of a device, gap between devices, rows and columns of devices."""

    wide: float
    high: float
    gap: float
    rows: int
    columns: int

    @property
    def width(self) -> float:
        """Width of a node."""
        return self.columns * (self.wide + self.gap) + max(self.gap, 0.04)

    @property
    def height(self) -> float:
        """Height of a node."""
        return self.rows * (self.high + self.gap) + max(self.gap, 0.04)


def topology(topology: Topology) -> Figure:
    """The fleet: clusters with their nodes, devices, interconnect and NICs, and the trunks between them."""
    return _picture(topology.fleet, None, f"{topology.name}: {_totals(topology)}", [])


def placement(plan: Plan | PipelinesPlan) -> Figure:
    """The fleet with every device in the colour and with the number of its pipeline rank; idle devices are grey.

    Of unlike pipelines, pipeline ranks are numbered one pipeline after the other."""
    plans, fleet, world = RankPlans(plan), plan.fleet, len(plan.placement)
    every = [(index, pp_rank) for index, one in enumerate(plans.plans) for pp_rank in range(one.config.pp)]
    colours = stage_colours(len(every))
    labels = [
        (f"{number}: pipeline {index}, " if len(plans.plans) > 1 else "") + _stage_words(plans.plans[index], pp_rank)
        for number, (index, pp_rank) in enumerate(every)
    ]
    handles = [Patch(facecolor=colour, label=label) for colour, label in zip(colours, labels, strict=True)]
    if fleet.devices > world:
        handles.append(Patch(facecolor=GREY, label=idle_label(fleet.devices - world)))
    title = f"{plan.topology.name} · {plan.workload.model.name}: {world:,} of {fleet.devices:,} devices used · {_degrees(plan)}"
    stage_of = {device: plans.stage_number(rank) for rank, device in enumerate(plan.placement)}
    paint = {device: (number, colours[number]) for device, number in stage_of.items()}
    return _picture(fleet, paint, title, handles)


def _degrees(plan: Plan | PipelinesPlan) -> str:
    """Parallel degrees, for the title."""
    if isinstance(plan, PipelinesPlan):
        return f"{len(plan.pipelines)} unlike pipelines"
    config = plan.config
    more = "".join(f" · {key} {degree}" for key, degree in config.further_degrees.items())
    return f"tp {config.tp_text} · pp {config.pp} · dp {config.dp_text}{more}"


Paint: TypeAlias = dict[Device, tuple[int, str]]
"""Pipeline rank and colour of the devices that are used."""


def _totals(topology: Topology) -> str:
    """Totals of the fleet, for the title."""
    fleet = topology.fleet
    nodes = sum(cluster.num_hosts for cluster in fleet.clusters)
    memory = sum(cluster.devices * cluster.node.device.memory for cluster in fleet.clusters)
    wished = [topology.workload.precision] if topology.workload else ["bf16", "fp16", "fp32"]
    peaks = [dict(cluster.node.device.peak) for cluster in fleet.clusters]
    precision = next((name for name in wished if all(name in peak for peak in peaks)), None)
    flops = sum(c.devices * peak[precision] for c, peak in zip(fleet.clusters, peaks, strict=True)) if precision else 0.0
    words = [_count(fleet.devices, "device"), f"{_count(nodes, 'node')} in {_count(len(fleet.clusters), 'cluster')}"]
    words += [size_text(memory), f"{flops_text(flops)} {precision}"] if precision else [size_text(memory)]
    return " · ".join(words)


def _count(number: int, noun: str) -> str:
    """A number with its noun, in singular or plural."""
    return f"{number:,} {noun}" + ("s" if number != 1 else "")


def _stage_words(plan: Plan, pp_rank: int) -> str:
    """Stages and layers of a pipeline rank."""
    stages = plan.stages_of(pp_rank)
    layers = [numbers(plan.stages[stage].first, plan.stages[stage].past_last) for stage in stages]
    return f"stage{'s' if len(stages) > 1 else ''} {listed(stages)}: layers {listed(layers)}"


def _glyph(node: Node, most: int) -> _Glyph:
    """Size of a node's drawing if the largest cluster draws `most` nodes: devices are squares, or strips of a small box."""
    if most > 32:
        return _Glyph(0.32 / node.count, 0.28, 0.0, 1, node.count)
    rows = max(r for r in range(1, node.count + 1) if node.count % r == 0 and (r == 1 or 2 * r * r <= node.count))
    size, gap = (0.24, 0.04) if most <= 8 else (0.17, 0.03)
    return _Glyph(size, size, gap, rows, node.count // rows)


@dataclass(frozen=True, slots=True)
class _Box:
    """Drawing of a cluster: left edge and width in inches, size of a node, nodes drawn, nodes in a row, lines of facts."""

    cluster: Cluster
    left: float
    wide: float
    glyph: _Glyph
    drawn: int
    columns: int
    facts: tuple[tuple[str, str], ...]

    @property
    def area(self) -> float:
        """Height of the nodes, with the gaps between and below them."""
        return math.ceil(self.drawn / self.columns) * (self.glyph.height + 0.1) + 0.05


def _boxes(fleet: Fleet, total: float, condense: bool) -> list[_Box]:
    """The boxes of all clusters, side by side; with `condense`, clusters of more than eight nodes draw one node."""
    drawn = [1 if condense and cluster.nodes > 8 else cluster.nodes for cluster in fleet.clusters]
    available = (total - 0.5) / len(drawn) - 0.5
    glyphs = [_glyph(cluster.node, max(drawn)) for cluster in fleet.clusters]
    fits = [max(1, int((available - 0.3) / (glyph.width + 0.1))) for glyph in glyphs]
    columns = [_even(count, fit) for count, fit in zip(drawn, fits, strict=True)]
    wide = min(available, max(4.2, *(n * (glyph.width + 0.1) + 0.4 for n, glyph in zip(columns, glyphs, strict=True))))
    left = (total - len(drawn) * (wide + 0.5) + 0.5) / 2
    return [
        _Box(cluster, left + index * (wide + 0.5), wide, glyphs[index], drawn[index], columns[index], _facts(cluster))
        for index, cluster in enumerate(fleet.clusters)
    ]


def _even(count: int, fit: int) -> int:
    """Nodes in a row: the largest number up to `fit` that gives full rows, unless that needs many more rows."""
    full = max(n for n in range(1, fit + 1) if count % n == 0)
    return full if 2 * full > fit or full == count else min(fit, count)


def _facts(cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Lines below the nodes of a cluster: (text, colour of the mark before it, or "")."""
    node, hosts = cluster.node.host, cluster.node.hosts
    peak = next(((name, rate) for name, rate in node.device.peak if name in ("bf16", "fp16")), node.device.peak[0])
    lines = [(f"{node.device.name} · {size_text(node.device.memory)} · {flops_text(peak[1])} {peak[0]}", "")]
    lines.append((f"inside a node: {cluster.node.inside} · {bytes_per_second_text(node.intra_node.bandwidth)} per device", ""))
    lines += [(f"{nic.count} × {rate_text(nic.bandwidth)} {nic.kind} per node", NICS.get(nic.kind, DARK)) for nic in node.nics]
    if fabric := cluster.fabric:
        lines.append((f"{fabric.nodes_per_leaf * hosts} nodes per leaf · oversubscription {fabric.oversubscription:g}:1", ""))
    return tuple(lines)


def _picture(fleet: Fleet, paint: Paint | None, title: str, handles: Sequence[Patch]) -> Figure:
    """Clusters side by side, trunks as brackets below them, the legend at the bottom. Axes are in inches, y points down."""
    total = max(WIDTH, 0.5 + len(fleet.clusters) * 3.9)
    boxes, levels = _boxes(fleet, total, condense=paint is None), levels_of(fleet)
    area = max(box.area for box in boxes)
    bottom = 1.45 + area + 0.26 * max(len(box.facts) for box in boxes) + 0.1
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    in_a_row = max(1, int((total - 0.5) / (0.7 + 0.085 * longest)))
    foot = 0.3 + 0.25 * math.ceil(len(handles) / in_a_row) if handles else 0.1
    height = bottom + (0.5 + 0.42 * max(levels.values()) if levels else 0.1) + foot
    figure = Picture(figsize=(total, height), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, total), ylim=(height, 0))
    axes.set_axis_off()
    axes.text(total / 2, 0.32, title, ha="center", va="center", fontsize=12)
    for box in boxes:
        _draw_box(axes, box, 0.6, bottom, 1.45 + area)
        _draw_nodes(axes, box, 1.4, paint)
    _draw_trunks(axes, boxes, fleet.trunks, levels, bottom)
    if handles:
        figure.legend(handles=handles, loc="lower center", ncol=in_a_row, frameon=False, fontsize=9, handlelength=1.2)
    return figure


def _draw_box(axes: Axes, box: _Box, top: float, bottom: float, facts_at: float) -> None:
    """The frame of a cluster, its name, and its facts."""
    axes.add_patch(_rounded(box.left, top, box.wide, bottom - top, PALE, GREY, 0.1))
    cluster, x = box.cluster, box.left + 0.2
    axes.text(x, top + 0.25, cluster.name, fontsize=13, fontweight="bold", va="center")
    words = f"{_count(cluster.num_hosts, 'node')} × {_count(cluster.node.host.count, 'device')} = {cluster.devices:,}"
    axes.text(x, top + 0.53, words, fontsize=10, va="center", color=DARK)
    for index, (text, mark) in enumerate(box.facts):
        y = facts_at + 0.1 + 0.26 * index
        if mark:
            axes.add_patch(Rectangle((x, y - 0.06), 0.12, 0.12, facecolor=mark))
        axes.text(x + (0.2 if mark else 0), y, text, fontsize=10, va="center")


def _rounded(x: float, y: float, wide: float, high: float, face: str, edge: str, corner: float) -> FancyBboxPatch:
    """A rectangle with rounded corners."""
    style = f"round,pad=0,rounding_size={corner}"
    return FancyBboxPatch((x, y), wide, high, boxstyle=style, facecolor=face, edgecolor=edge, linewidth=0.8)


def _draw_nodes(axes: Axes, box: _Box, top: float, paint: Paint | None) -> None:
    """The nodes of a cluster, or one node as a stack with the number of nodes."""
    glyph, start = box.glyph, box.left + 0.2
    if box.drawn < box.cluster.nodes:
        axes.text(start, top + glyph.height / 2, f"{box.cluster.nodes} ×", fontsize=16, va="center")
        start += 0.2 + 0.14 * len(f"{box.cluster.nodes} ×")
        for shift in (0.1, 0.05):  # a stack of nodes
            axes.add_patch(_rounded(start + shift, top - shift, glyph.width, glyph.height, "white", GREY, 0.03))
    for node in range(box.drawn):
        x = start + node % box.columns * (glyph.width + 0.1)
        y = top + node // box.columns * (glyph.height + 0.1)
        axes.add_patch(_rounded(x, y, glyph.width, glyph.height, "white", DARK, 0.03))
        if paint is None:
            _draw_ports(axes, box, x, y + glyph.height)
        marks = [(paint or {}).get(Device(box.cluster.name, node, index)) for index in range(box.cluster.node.count)]
        _draw_devices(axes, glyph, marks, GREY if paint is not None else DARK, x, y)


def _draw_ports(axes: Axes, box: _Box, x: float, y: float) -> None:
    """The NICs of a node, as ports at its lower edge."""
    kinds = [nic.kind for nic in box.cluster.node.nics for _ in range(nic.count)]
    pitch = box.glyph.width / (len(kinds) + 1)
    for index, kind in enumerate(kinds):
        wide = min(0.07, 0.7 * pitch)
        left = x + pitch * (index + 1) - wide / 2
        axes.add_patch(Rectangle((left, y - 0.02), wide, 0.07, facecolor=NICS.get(kind, DARK), linewidth=0))


def _draw_devices(axes: Axes, glyph: _Glyph, marks: Sequence[tuple[int, str] | None], blank: str, x: float, y: float) -> None:
    """The devices of a node with their pipeline ranks; adjacent narrow devices of one pipeline rank form one strip."""
    edge = (glyph.width - glyph.columns * (glyph.wide + glyph.gap) + glyph.gap) / 2
    runs = [(mark, 1) for mark in marks] if glyph.gap else [(mark, len(list(run))) for mark, run in groupby(marks)]
    index = 0
    for mark, length in runs:
        row, column = divmod(index, glyph.columns)
        left, top = x + edge + column * (glyph.wide + glyph.gap), y + edge + row * (glyph.high + glyph.gap)
        wide, index = length * glyph.wide, index + length
        axes.add_patch(Rectangle((left, top), wide, glyph.high, facecolor=mark[1] if mark else blank, linewidth=0))
        if mark and wide >= 0.15:
            middle = left + wide / 2, top + glyph.high / 2
            size = 8 if wide >= 0.24 else 6
            axes.text(*middle, str(mark[0]), fontsize=size, ha="center", va="center_baseline", color=_ink(mark[1]))


def _ink(colour: str) -> str:
    """Black or white, whichever has more contrast with a colour."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.45 else "white"


def levels_of(fleet: Fleet) -> dict[int, int]:
    """Trunk by index -> depth of its bracket. Short trunks are higher, and overlapping brackets have different depths."""
    index_of = {cluster.name: index for index, cluster in enumerate(fleet.clusters)}
    ends = [tuple(sorted(index_of[name] for name in trunk.between)) for trunk in fleet.trunks]
    levels: dict[int, int] = {}
    for index in sorted(range(len(ends)), key=lambda index: (ends[index][1] - ends[index][0], ends[index], index)):
        low, high = ends[index]
        taken = {levels[other] for other in levels if ends[other][0] < high and low < ends[other][1]}
        levels[index] = next(level for level in range(len(ends)) if level not in taken)
    return levels


def _draw_trunks(axes: Axes, boxes: Sequence[_Box], trunks: Sequence[Trunk], levels: Mapping[int, int], bottom: float) -> None:
    """Brackets between boxes. Deeper brackets start nearer to the middle of a box, so that lines do not cross."""
    boxed = {box.cluster.name: index for index, box in enumerate(boxes)}
    for index, trunk in enumerate(trunks):
        low, high = sorted(boxed[name] for name in trunk.between)
        inward = 0.9 + 0.25 * levels[index]
        start, end = boxes[low].left + boxes[low].wide - inward, boxes[high].left + inward
        y, colour = bottom + 0.35 + 0.42 * levels[index], NICS.get(trunk.kind, DARK)
        axes.plot([start, start, end, end], [bottom, y, y, bottom], color=colour, linewidth=2.5, solid_joinstyle="round")
        words = f"{trunk.kind} · {rate_text(trunk.bandwidth)} · {time_text(trunk.latency)}"
        axes.text((start + end) / 2, y - 0.06, words, fontsize=10, ha="center", va="bottom", color=DARK)
