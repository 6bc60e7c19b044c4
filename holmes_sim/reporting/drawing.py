"""A fleet as a drawing in HTML and SVG: clusters with their nodes, devices and NICs, and the trunks between them.

The devices of a plan have the colours and numbers of their stages. Narrow screens get the clusters below each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from holmes_sim.charts.fleet import levels_of
from holmes_sim.reporting.markup import number
from sim.hardware.cluster import Cluster, Device, Fleet, Trunk
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
class Drawing:
    """What is drawn: a fleet, and the plan on it if there is one.

    `at`: path of the fleet's document in references of numbers. `side_by_side`: largest number of clusters with brackets below
    them. `below(path)`: HTML below a cluster (`clusters.ib`) or a trunk (`links[0]`); empty for none."""

    fleet: Fleet
    plan: Plan | None = None
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
    ranks = {device: rank for rank, device in enumerate(drawing.plan.placement)} if drawing.plan else {}
    boxes = "".join(_cluster(drawing, cluster, ranks) for cluster in clusters)
    columns = " ".join(f"minmax(0,{width:.3g}fr)" for width in _widths(clusters))
    style = f' style="--columns:{columns}"' if drawing.is_side_by_side else ""
    return (
        f'<figure class="fleet{look}{"" if style else " many"}"{style} role="group" aria-label="{escape(_words(drawing))}">'
        f"{boxes}{_trunks(drawing)}</figure>"
    )


def _widths(clusters: Sequence[Cluster]) -> list[float]:
    """Relative widths of the clusters, proportional to their devices but at least `NARROWEST`, to have space for the facts."""
    most = max(cluster.devices for cluster in clusters)
    return [max(cluster.devices / most, NARROWEST) for cluster in clusters]


def _words(drawing: Drawing) -> str:
    """A text alternative of the drawing."""
    plan, fleet = drawing.plan, drawing.fleet
    if plan is None:
        return f"Drawing of {fleet.devices} devices in {len(fleet.clusters)} clusters."
    used = {cluster.name: set[int]() for cluster in fleet.clusters}
    for rank, device in enumerate(plan.placement):
        used[device.cluster].add(plan.config.coordinates(rank)[2])
    each = [f"{name}: {'stages ' + ', '.join(map(str, sorted(stages))) if stages else 'idle'}" for name, stages in used.items()]
    return f"Drawing of {fleet.devices} devices and the pipeline stages on them. {'; '.join(each)}."


def _cluster(drawing: Drawing, cluster: Cluster, ranks: Mapping[Device, int]) -> str:
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
        f'device{"s" if node.count > 1 else ""}</p><div class="nodes">{"".join(_nodes(drawing, cluster, ranks))}</div>'
        f'<ul class="facts">{"".join(f"<li>{fact}</li>" for fact in facts)}</ul>'
        f"{drawing.below(f'clusters.{cluster.name}')}</div>"
    )


def _nodes(drawing: Drawing, cluster: Cluster, ranks: Mapping[Device, int]) -> Iterator[str]:
    """Nodes in runs with the same stages: all nodes, or the first of each run with the length of the run."""
    size = 18 if drawing.hosts > MANY_NODES else 26
    for pp_ranks, nodes in _runs(drawing.plan, cluster, ranks):
        first = _node(cluster, nodes[0], pp_ranks, ranks, (size, "node"))
        others = () if drawing.is_folded else nodes[1:]
        again = "".join(_node(cluster, node, pp_ranks, ranks, (size, "node again")) for node in others)
        times = f'<span class="times">{len(nodes)} ×</span>' if len(nodes) > 1 else ""
        yield f'<span class="run">{times}{first}{again}</span>'


def _runs(
    plan: Plan | None, cluster: Cluster, ranks: Mapping[Device, int]
) -> Iterator[tuple[tuple[int | None, ...], Sequence[int]]]:
    """(stage of each device of a node, or None if it is idle; consecutive nodes with these stages)."""
    if plan is None:
        yield (None,) * cluster.node.count, range(cluster.nodes)
        return
    config = plan.config

    def stages_of_node(node: int) -> tuple[int | None, ...]:
        found = (ranks.get(Device(cluster.name, node, index)) for index in range(cluster.node.count))
        return tuple(None if rank is None else config.coordinates(rank)[2] for rank in found)

    for pp_ranks, run in groupby(range(cluster.nodes), stages_of_node):
        yield pp_ranks, list(run)


def _node(
    cluster: Cluster, node: int, pp_ranks: tuple[int | None, ...], ranks: Mapping[Device, int], look: tuple[int, str]
) -> str:
    """A node as SVG: a square for each device, in two rows from four devices on, at most eight in a row.

    `look`: size of a square in pixels, class of the drawing."""
    (size, name), count = look, len(pp_ranks)
    rows = 1 if count < 4 else max(2, -(-count // 8))
    columns, pitch = -(-count // rows), size + GAP
    squares = []
    for index, pp_rank in enumerate(pp_ranks):
        x, y = GAP + index % columns * pitch, GAP + index // columns * pitch
        device = Device(cluster.name, node, index)
        words, fill, text = "idle" if ranks else cluster.node.device.name, "var(--idle)", ""
        if pp_rank is not None:
            words, fill = f"rank {ranks[device]}, stage {pp_rank}", f"var(--p{pp_rank})"
            text = f'<text x="{x + size / 2:g}" y="{y + size / 2 + 4:g}" fill="var(--p{pp_rank}-ink)">{pp_rank}</text>'
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
    return "".join(found)


def _trunk(trunk: Trunk) -> str:
    """A trunk in words."""
    ends = " – ".join(map(escape, trunk.between))
    words = f"{rate_text(trunk.bandwidth)} · {time_text(trunk.latency)}".replace(" ", "&nbsp;")
    return f"<b>{ends}</b> {escape(trunk.kind)} · {words}"
