"""A fleet as a drawing in HTML and SVG: clusters with their nodes, devices and NICs, and the trunks between them.

The devices of a plan have the colours and numbers of their stages, those of a plan of islands of their islands. Narrow screens
get the clusters below each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from holmes_sim.charts.fleet import levels_of
from holmes_sim.reporting.markup import number
from sim.disaggregation.plan import DisaggregatedPlan
from sim.hardware.cluster import Cluster, Device, Fleet, Trunk
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.units import bytes_per_second_text, rate_text, size_text, time_text

MANY_NODES, MOST_NODES = 24, 160
"""Number of nodes above which neighbouring nodes with the same stages are drawn once: `MANY_NODES` on a phone, `MOST_NODES` on
every screen.
"""
MOST_SIDE_BY_SIDE = 4
"""Largest number of clusters that are drawn side by side on a wide screen, with trunks as brackets below. With more clusters,
trunks are a list.
"""
NARROWEST = 0.4
"""Least width of a cluster, as a share of the width of the largest cluster."""
GAP = 3
"""Pixels between two devices."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How a device is drawn: a number on a colour of the page (`p0` of stage 0, `i0` of island 0), and what it is in words."""

    number: int
    colour: str
    words: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn: a fleet, and the plan on it if there is one.

    `at`: path of the fleet's document in references of numbers. `side_by_side`: largest number of clusters with brackets below
    them. `below(path)`: HTML below a cluster (`clusters.ib`) or a trunk (`links[0]`); empty for none."""

    fleet: Fleet
    plan: Plan | IslandsPlan | DisaggregatedPlan | None = None
    at: str = "plan/topology"
    side_by_side: int = MOST_SIDE_BY_SIDE
    below: Callable[[str], str] = lambda path: ""

    @property
    def hosts(self) -> int:
        """Number of nodes of all clusters."""
        return sum(cluster.num_hosts for cluster in self.fleet.clusters)

    @property
    def is_side_by_side(self) -> bool:
        """Whether trunks are brackets below the clusters."""
        return len(self.fleet.clusters) <= self.side_by_side

    @property
    def is_folded(self) -> bool:
        """Whether neighbouring nodes with the same stages are drawn once on every screen."""
        return self.hosts > MOST_NODES


def figure(drawing: Drawing) -> str:
    """Clusters and trunks."""
    clusters, hosts = drawing.fleet.clusters, drawing.hosts
    look = " condensed" if drawing.is_folded else " large" if hosts > MANY_NODES else ""
    marks = _marks(drawing.plan)
    boxes = "".join(_cluster(drawing, cluster, marks) for cluster in clusters)
    columns = " ".join(f"minmax(0,{width:.3g}fr)" for width in _widths(clusters))
    style = f' style="--columns:{columns}"' if drawing.is_side_by_side else ""
    words = escape(_words(drawing, marks))
    return (
        f'<figure class="fleet{look}{"" if style else " many"}"{style} role="group" aria-label="{words}">'
        f"{boxes}{_trunks(drawing)}</figure>"
    )


def _widths(clusters: Sequence[Cluster]) -> list[float]:
    """Relative widths of the clusters, proportional to their devices but at least `NARROWEST`, to have space for the facts."""
    most = max(cluster.devices for cluster in clusters)
    return [max(cluster.devices / most, NARROWEST) for cluster in clusters]


def _marks(plan: Plan | IslandsPlan | DisaggregatedPlan | None) -> dict[Device, Mark]:
    """How the devices of a plan are drawn."""
    if plan is None:
        return {}
    if isinstance(plan, DisaggregatedPlan):
        sets = (("attention", plan.stage.attention), ("experts", plan.stage.experts))
        return {device: Mark(n, f"i{n}", f"rank of {name}") for n, (name, own) in enumerate(sets) for device in own}
    if isinstance(plan, IslandsPlan):
        return {
            device: Mark(index, f"i{index}", f"island {index}, {mark.words}")
            for index, island in enumerate(plan.islands)
            for device, mark in _marks(island).items()
        }
    stages = (plan.config.coordinates(rank)[2] for rank in range(plan.config.world_size))
    return {
        device: Mark(stage, f"p{stage}", f"rank {rank}, stage {stage}")
        for rank, (device, stage) in enumerate(zip(plan.placement, stages, strict=True))
    }


def _words(drawing: Drawing, marks: Mapping[Device, Mark]) -> str:
    """A text alternative of the drawing."""
    fleet, kinds = drawing.fleet, {IslandsPlan: "islands", DisaggregatedPlan: "sets of ranks"}
    what = kinds.get(type(drawing.plan), "stages")
    if drawing.plan is None:
        return f"Drawing of {fleet.devices} devices in {len(fleet.clusters)} clusters."
    used = {cluster.name: set[int]() for cluster in fleet.clusters}
    for device, mark in marks.items():
        used[device.cluster].add(mark.number)
    each = [f"{name}: {f'{what} ' + ', '.join(map(str, sorted(found))) if found else 'idle'}" for name, found in used.items()]
    whole = "pipeline stages" if what == "stages" else what
    return f"Drawing of {fleet.devices} devices and the {whole} on them. {'; '.join(each)}."


def _cluster(drawing: Drawing, cluster: Cluster, marks: Mapping[Device, Mark]) -> str:
    """A cluster: its name, nodes and facts."""
    node, at = cluster.node.host, f"{drawing.at}/clusters/{cluster.name}"
    hosts = cluster.num_hosts
    nodes = number(f"{at}/nodes", hosts, f"{hosts:,}")
    devices = number(f"{at}/node/devices/count", node.count, str(node.count))
    facts = [f"{escape(node.device.name)} · {size_text(node.device.memory)}"]
    facts.append(
        f"inside a node: {escape(cluster.node.inside)} · {bytes_per_second_text(node.intra_node.bandwidth)} per device"
    )
    for nic in node.nics:
        mark = f'<i class="nic" style="background:var(--n-{escape(nic.kind)},var(--muted))"></i>'
        facts.append(f"{mark}{nic.count} × {rate_text(nic.bandwidth)} {escape(nic.kind)} per node")
    if cluster.fabric:
        below = cluster.fabric.nodes_per_leaf * cluster.node.hosts
        facts.append(f"{below} nodes per leaf · oversubscription {cluster.fabric.oversubscription:g}:1")
    return (
        f'<div class="cluster"><h3>{escape(cluster.name)}</h3><p>{nodes} node{"s" if hosts > 1 else ""} × {devices} '
        f'device{"s" if node.count > 1 else ""}</p><div class="nodes">{"".join(_nodes(drawing, cluster, marks))}</div>'
        f'<ul class="facts">{"".join(f"<li>{fact}</li>" for fact in facts)}</ul>'
        f"{drawing.below(f'clusters.{cluster.name}')}</div>"
    )


def _nodes(drawing: Drawing, cluster: Cluster, marks: Mapping[Device, Mark]) -> Iterator[str]:
    """Nodes in runs with the same numbers: all nodes, or the first of each run with the length of the run."""
    size = 18 if drawing.hosts > MANY_NODES else 26
    for nodes in _runs(cluster, marks):
        first = _node(cluster, nodes[0], marks, size, "node")
        others = () if drawing.is_folded else nodes[1:]
        again = "".join(_node(cluster, node, marks, size, "node again") for node in others)
        times = f'<span class="times">{len(nodes)} ×</span>' if len(nodes) > 1 else ""
        yield f'<span class="run">{times}{first}{again}</span>'


def _runs(cluster: Cluster, marks: Mapping[Device, Mark]) -> Iterator[Sequence[int]]:
    """Runs of consecutive nodes whose devices have the same numbers; all nodes without a plan."""
    if not marks:
        yield range(cluster.nodes)
        return

    def numbers_of_node(node: int) -> tuple[int | None, ...]:
        found = (marks.get(Device(cluster.name, node, index)) for index in range(cluster.node.count))
        return tuple(None if mark is None else mark.number for mark in found)

    for _, run in groupby(range(cluster.nodes), numbers_of_node):
        yield list(run)


def _node(cluster: Cluster, node: int, marks: Mapping[Device, Mark], size: int, name: str) -> str:
    """A node as SVG: a square for each device, in two rows from four devices on, at most eight in a row.

    `size` of a square in pixels, `name` of the class of the drawing."""
    count = cluster.node.count
    rows = 1 if count < 4 else max(2, -(-count // 8))
    columns, pitch = -(-count // rows), size + GAP
    squares = []
    for index in range(count):
        x, y = GAP + index % columns * pitch, GAP + index // columns * pitch
        device = Device(cluster.name, node, index)
        words, fill, text = "idle" if marks else cluster.node.device.name, "var(--idle)", ""
        if (mark := marks.get(device)) is not None:
            words, fill = mark.words, f"var(--{mark.colour})"
            text = f'<text x="{x + size / 2:g}" y="{y + size / 2 + 4:g}" fill="var(--{mark.colour}-ink)">{mark.number}</text>'
        square = f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="2" fill="{fill}"/>'
        squares.append(f"<g><title>{escape(str(device))}: {escape(words)}</title>{square}{text}</g>")
    area = f'width="{GAP + columns * pitch}" height="{GAP + rows * pitch}"'
    return f'<svg class="{name}" {area} aria-hidden="true">{"".join(squares)}</svg>'


def _trunks(drawing: Drawing) -> str:
    """Trunks: brackets below the clusters that they join, or a list if there are many clusters."""
    clusters, levels = drawing.fleet.clusters, levels_of(drawing.fleet)
    column, widths = {cluster.name: index for index, cluster in enumerate(clusters)}, _widths(clusters)
    found = []
    for index, trunk in enumerate(drawing.fleet.trunks):
        low, high = sorted(column[name] for name in trunk.between)
        style = f"--wire:var(--n-{escape(trunk.kind)},var(--muted));"
        if drawing.is_side_by_side:
            whole = sum(widths[low : high + 1])
            style += f"grid-column:{low + 1}/{high + 2};--low:{widths[low] / whole:.3g};--high:{widths[high] / whole:.3g};"
            style += f"--level:{levels[index]}"
        below = drawing.below(f"links[{index}]")
        found.append(f'<div class="trunk" style="{style}"><span>{_trunk(trunk)}</span>{below}</div>')
    listed = "".join(found)
    return listed if drawing.is_side_by_side or not listed else f'<div class="trunks">{listed}</div>'


def _trunk(trunk: Trunk) -> str:
    """A trunk in words."""
    ends = " – ".join(map(escape, trunk.between))
    words = f"{rate_text(trunk.bandwidth)} · {time_text(trunk.latency)}".replace(" ", "&nbsp;")
    return f"<b>{ends}</b> {escape(trunk.kind)} · {words}"
