"""Section: the fleet as a drawing: every device in the colour of its stage, clusters side by side, trunks between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import TypeAlias

from holmes_sim.charts.fleet import levels_of
from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.markup import chip, number
from sim.hardware.cluster import Cluster, Device, Trunk
from sim.plan.plan import Plan
from sim.units import bytes_per_second_text, rate_text, size_text, time_text

NAME = "placement"
TITLE = "Topology and placement"
ORDER = 20

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

Ranks: TypeAlias = dict[Device, int]


def html(contents: Contents) -> str:
    """Clusters, trunks and legend."""
    plan, clusters = contents.plan, contents.plan.fleet.clusters
    ranks = {device: rank for rank, device in enumerate(plan.placement)}
    nodes = sum(cluster.num_hosts for cluster in clusters)
    look = " condensed" if nodes > MOST_NODES else " large" if nodes > MANY_NODES else ""
    size = 18 if nodes > MANY_NODES else 26
    boxes = "".join(_cluster(plan, cluster, ranks, size, nodes <= MOST_NODES) for cluster in clusters)
    columns = " ".join(f"minmax(0,{width:.3g}fr)" for width in _widths(clusters))
    style = f' style="--columns:{columns}"' if len(clusters) <= MOST_SIDE_BY_SIDE else ""
    folded = "" if nodes <= MOST_NODES else "<p>Neighbouring nodes with the same stages are drawn once, with their number.</p>"
    return (
        f'<figure class="fleet{look}{"" if style else " many"}"{style} role="group" aria-label="{escape(_words(plan))}">'
        f"{boxes}{_trunks(plan)}</figure>{_legend(plan)}{folded}"
    )


def _widths(clusters: Sequence[Cluster]) -> list[float]:
    """Relative widths of the clusters, proportional to their devices but at least `NARROWEST`, to have space for the facts."""
    most = max(cluster.devices for cluster in clusters)
    return [max(cluster.devices / most, NARROWEST) for cluster in clusters]


def _words(plan: Plan) -> str:
    """A text alternative of the drawing."""
    used = {cluster.name: set[int]() for cluster in plan.fleet.clusters}
    for rank, device in enumerate(plan.placement):
        used[device.cluster].add(plan.config.coordinates(rank)[2])
    each = [f"{name}: {'stages ' + ', '.join(map(str, sorted(stages))) if stages else 'idle'}" for name, stages in used.items()]
    return f"Drawing of {plan.fleet.devices} devices and the pipeline stages on them. {'; '.join(each)}."


def _cluster(plan: Plan, cluster: Cluster, ranks: Ranks, size: int, each: bool) -> str:
    """A cluster: its name, nodes and facts."""
    node, at = cluster.node.host, f"plan/topology/clusters/{cluster.name}"
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
        f'device{"s" if node.count > 1 else ""}</p><div class="nodes">{"".join(_nodes(plan, cluster, ranks, size, each))}</div>'
        f'<ul class="facts">{"".join(f"<li>{fact}</li>" for fact in facts)}</ul></div>'
    )


def _nodes(plan: Plan, cluster: Cluster, ranks: Ranks, size: int, each: bool) -> Iterator[str]:
    """Nodes in runs with the same stages: all nodes, or the first of each run with the length of the run."""

    def stages_of_node(node: int) -> tuple[int | None, ...]:
        found = (ranks.get(Device(cluster.name, node, index)) for index in range(cluster.node.count))
        return tuple(None if rank is None else plan.config.coordinates(rank)[2] for rank in found)

    for pp_ranks, run in groupby(range(cluster.nodes), stages_of_node):
        nodes = list(run)
        first = _node(cluster, nodes[0], pp_ranks, ranks, size, "node")
        again = "".join(_node(cluster, node, pp_ranks, ranks, size, "node again") for node in nodes[1:]) if each else ""
        times = f'<span class="times">{len(nodes)} ×</span>' if len(nodes) > 1 else ""
        yield f'<span class="run">{times}{first}{again}</span>'


def _node(cluster: Cluster, node: int, pp_ranks: tuple[int | None, ...], ranks: Ranks, size: int, look: str) -> str:
    """A node as SVG: a square for each device, in two rows from four devices on, at most eight in a row."""
    count = len(pp_ranks)
    rows = 1 if count < 4 else max(2, -(-count // 8))
    columns, pitch = -(-count // rows), size + GAP
    squares = []
    for index, pp_rank in enumerate(pp_ranks):
        x, y = GAP + index % columns * pitch, GAP + index // columns * pitch
        device = Device(cluster.name, node, index)
        words, fill, text = "idle", "var(--idle)", ""
        if pp_rank is not None:
            words, fill = f"rank {ranks[device]}, stage {pp_rank}", f"var(--p{pp_rank})"
            text = f'<text x="{x + size / 2:g}" y="{y + size / 2 + 4:g}" fill="var(--p{pp_rank}-ink)">{pp_rank}</text>'
        square = f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="2" fill="{fill}"/>'
        squares.append(f"<g><title>{escape(str(device))}: {words}</title>{square}{text}</g>")
    area = f'width="{GAP + columns * pitch}" height="{GAP + rows * pitch}"'
    return f'<svg class="{look}" {area} aria-hidden="true">{"".join(squares)}</svg>'


def _trunks(plan: Plan) -> str:
    """Trunks: brackets below the clusters that they join, or a list if there are many clusters."""
    clusters, levels = plan.fleet.clusters, levels_of(plan.fleet)
    column, widths = {cluster.name: index for index, cluster in enumerate(clusters)}, _widths(clusters)
    found = []
    for index, trunk in enumerate(plan.fleet.trunks):
        low, high = sorted(column[name] for name in trunk.between)
        style = f"--wire:var(--n-{escape(trunk.kind)},var(--muted));"
        if len(clusters) <= MOST_SIDE_BY_SIDE:
            whole = sum(widths[low : high + 1])
            style += f"grid-column:{low + 1}/{high + 2};--low:{widths[low] / whole:.3g};--high:{widths[high] / whole:.3g};"
            style += f"--level:{levels[index]}"
        found.append(f'<div class="trunk" style="{style}"><span>{_trunk(trunk)}</span></div>')
    return "".join(found)


def _trunk(trunk: Trunk) -> str:
    """A trunk in words."""
    ends = " – ".join(map(escape, trunk.between))
    words = f"{rate_text(trunk.bandwidth)} · {time_text(trunk.latency)}".replace(" ", "&nbsp;")
    return f"<b>{ends}</b> {escape(trunk.kind)} · {words}"


def _legend(plan: Plan) -> str:
    """The layers of each stage, and the number of idle devices."""
    items = []
    for pp_rank in range(plan.config.pp):
        layers = [f"{plan.stages[s].first}–{plan.stages[s].past_last - 1}" for s in plan.stages_of(pp_rank)]
        items.append(f"<li>{chip(pp_rank)} layers {', '.join(layers)}</li>")
    idle = plan.fleet.devices - plan.config.world_size
    if idle:
        items.append(f'<li><span class="chip" style="background:var(--idle)">&nbsp;</span> idle: {idle:,} devices</li>')
    return f'<ul class="legend" aria-label="Stages">{"".join(items)}</ul>'
