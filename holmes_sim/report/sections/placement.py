"""The fleet as a picture: every device in the colour of its pipeline place, clusters side by side, trunks between them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import TypeAlias

from holmes_sim.report.markup import chip, number
from holmes_sim.report.study import Study
from sim.cluster import Cluster, Device, Trunk
from sim.plan import Plan
from sim.units import bytes_per_second_text, rate_text, size_text, time_text

NAME = "placement"
TITLE = "Topology and placement"
ORDER = 20

DRAWN = 160
"""Nodes of a fleet that are drawn one by one; of more, neighbours that hold the same places are drawn once."""
ABREAST = 4
"""Clusters that stand side by side on a wide screen, with their trunks as brackets below; of more, trunks are a list."""
SIZE, GAP = 18, 3
"""Pixels of a device and between two."""

Ranks: TypeAlias = dict[Device, int]


def html(study: Study) -> str:
    """Clusters, trunks, and what the colours mean."""
    plan = study.plan
    ranks = {device: rank for rank, device in enumerate(plan.placement)}
    each = sum(cluster.nodes for cluster in plan.fleet.clusters) <= DRAWN
    boxes = "".join(_cluster(plan, cluster, ranks, each) for cluster in plan.fleet.clusters)
    many = len(plan.fleet.clusters)
    style = f' style="--columns:{many}"' if many <= ABREAST else ""
    folded = "" if each else "<p>Neighbouring nodes that hold the same stages are drawn once, with their number.</p>"
    return (
        f'<figure class="fleet{"" if style else " many"}"{style} role="group" aria-label="{escape(_words(plan))}">'
        f"{boxes}{_trunks(plan)}</figure>{_legend(plan)}{folded}"
    )


def _words(plan: Plan) -> str:
    """The picture for those who do not see it."""
    held = {cluster.name: set[int]() for cluster in plan.fleet.clusters}
    for rank, device in enumerate(plan.placement):
        held[device.cluster].add(plan.config.place(rank)[2])
    each = [f"{name}: {'stages ' + ', '.join(map(str, sorted(stages))) if stages else 'idle'}" for name, stages in held.items()]
    return f"Picture of {plan.fleet.devices} devices and the pipeline stages on them. {'; '.join(each)}."


def _cluster(plan: Plan, cluster: Cluster, ranks: Ranks, each: bool) -> str:
    node, at = cluster.node, f"plan/topology/clusters/{cluster.name}"
    nodes = number(f"{at}/nodes", cluster.nodes, f"{cluster.nodes:,}")
    devices = number(f"{at}/node/devices/count", node.count, str(node.count))
    facts = [f"{escape(node.device.name)} · {size_text(node.device.memory)}"]
    facts.append(f"in a node: {escape(node.intra_node.name)} · {bytes_per_second_text(node.intra_node.bandwidth)} a device")
    for nic in node.nics:
        mark = f'<i class="nic" style="background:var(--n-{escape(nic.kind)},var(--muted))"></i>'
        facts.append(f"{mark}{nic.count} × {rate_text(nic.bandwidth)} {escape(nic.kind)} a node")
    if cluster.fabric:
        facts.append(f"{cluster.fabric.nodes_per_leaf} nodes a leaf · {cluster.fabric.oversubscription:g} : 1 above it")
    return (
        f'<div class="cluster"><h3>{escape(cluster.name)}</h3><p>{nodes} node{"s" if cluster.nodes > 1 else ""} × {devices} '
        f'device{"s" if node.count > 1 else ""}</p><div class="nodes">{"".join(_nodes(plan, cluster, ranks, each))}</div>'
        f'<ul class="facts">{"".join(f"<li>{fact}</li>" for fact in facts)}</ul></div>'
    )


def _nodes(plan: Plan, cluster: Cluster, ranks: Ranks, each: bool) -> Iterator[str]:
    def held(node: int) -> tuple[int | None, ...]:
        found = (ranks.get(Device(cluster.name, node, index)) for index in range(cluster.node.count))
        return tuple(None if rank is None else plan.config.place(rank)[2] for rank in found)

    if each:
        for node in range(cluster.nodes):
            yield _node(plan, cluster, node, held(node), ranks)
        return
    for places, run in groupby(range(cluster.nodes), held):
        nodes = list(run)
        words = f"{len(nodes)} × " if len(nodes) > 1 else ""
        yield f'<span class="run">{words}{_node(plan, cluster, nodes[0], places, ranks)}</span>'


def _node(plan: Plan, cluster: Cluster, node: int, places: tuple[int | None, ...], ranks: Ranks) -> str:
    """A node as a small picture: a square for each device, in one row or two of up to eight."""
    count = len(places)
    columns = count if count <= 4 else -(-count // (2 if count <= 16 else -(-count // 8)))
    rows, pitch = -(-count // columns), SIZE + GAP
    squares = []
    for index, place in enumerate(places):
        x, y = GAP + index % columns * pitch, GAP + index // columns * pitch
        device = Device(cluster.name, node, index)
        words = "idle" if place is None else f"rank {ranks[device]}, stage {place}"
        fill = "var(--idle)" if place is None else f"var(--p{place})"
        text = "" if place is None else (
            f'<text x="{x + SIZE / 2:g}" y="{y + SIZE / 2 + 4:g}" fill="var(--p{place}-ink)">{place}</text>'
        )
        square = f'<rect x="{x}" y="{y}" width="{SIZE}" height="{SIZE}" rx="2" fill="{fill}"/>'
        squares.append(f"<g><title>{escape(str(device))}: {words}</title>{square}{text}</g>")
    size = f'width="{GAP + columns * pitch}" height="{GAP + rows * pitch}"'
    return f'<svg class="node" {size} aria-hidden="true">{"".join(squares)}</svg>'


def _trunks(plan: Plan) -> str:
    """Links between clusters: brackets below the clusters that they join, or a list where the clusters are many."""
    column = {cluster.name: index for index, cluster in enumerate(plan.fleet.clusters, 1)}
    brackets = len(column) <= ABREAST
    found = []
    for trunk in plan.fleet.trunks:
        low, high = sorted(column[name] for name in trunk.between)
        where = f"grid-column:{low}/{high + 1};" if brackets else ""
        style = f"--from:{low};--span:{high - low + 1};{where}--wire:var(--n-{escape(trunk.kind)},var(--muted))"
        found.append(f'<div class="trunk" style="{style}"><span>{_trunk(trunk)}</span></div>')
    return "".join(found)


def _trunk(trunk: Trunk) -> str:
    ends = " – ".join(map(escape, trunk.between))
    return f"<b>{ends}</b> {escape(trunk.kind)} · {rate_text(trunk.bandwidth)} · {time_text(trunk.latency)}"


def _legend(plan: Plan) -> str:
    items = []
    for place in range(plan.config.pp):
        layers = [f"{plan.stages[s].first}–{plan.stages[s].past_last - 1}" for s in plan.stages_of(place)]
        items.append(f"<li>{chip(place)} layers {', '.join(layers)}</li>")
    idle = plan.fleet.devices - plan.config.world_size
    if idle:
        items.append(f'<li><span class="chip" style="background:var(--idle)"></span> idle: {idle:,} devices</li>')
    return f'<ul class="legend" aria-label="Stages">{"".join(items)}</ul>'
