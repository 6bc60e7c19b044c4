"""Tables of a topology, of shipped topologies, of entries of the catalogue, and of the modules of a registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.guesses import origin
from holmes_sim.printing.stacks import add_stack, families, stack_table
from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.schemas import Schema, formats, what
from sim.formats import catalog, profile
from sim.hardware.topology import Topology
from sim.units import GIGA, bytes_per_second_text, flops_text, rate_text, size_text, time_text


def topology(shown: Topology) -> Group:
    """Tables of a topology: clusters, links between clusters, workload."""
    clusters = grid("Clusters", "cluster", "nodes", "device", "each", "memory", "interconnect", "NICs")
    for cluster in shown.fleet.clusters:
        nics = "\n".join(f"{nic.count} x {rate_text(nic.bandwidth)} {nic.kind}" for nic in cluster.node.host.nics) or "-"
        clusters.add_row(
            cluster.name, str(cluster.num_hosts), cluster.node.device.name, str(cluster.node.host.count),
            size_text(cluster.node.device.memory), cluster.node.inside, nics,
        )  # fmt: skip
    parts: list[Text | Table] = [Text(f"{shown.name}: {shown.fleet.devices} devices", style=STYLE)]
    parts += [Text(shown.source)] if shown.source else []
    parts += [Text(), clusters]
    if shown.fleet.trunks:
        links = grid("Links between clusters", "cluster", "NIC", "rate", "latency")
        for trunk in shown.fleet.trunks:
            links.add_row(" - ".join(trunk.between), trunk.kind, rate_text(trunk.bandwidth), time_text(trunk.latency))
        parts += [Text(), links]
    if shown.workload is not None:
        w = shown.workload
        parts += [Text(), Text(f"Workload: {w.model.name}, batch {w.global_batch_size} x {w.seq_len} tokens, {w.precision}")]
    return Group(*parts)


def catalogue(kind: str) -> Table:
    """Table of the catalogue entries of one kind, with their main facts."""
    if kind == "devices":
        table = grid("Devices", "name", "fp16 or bf16", "memory", "bandwidth", "GEMM curve")
        for name in catalog.names(kind):
            spec, facts = catalog.device(name), catalog.device_facts(name)
            peaks = dict(spec.peak)
            peak = flops_text(peaks.get("bf16") or peaks["fp16"])
            table.add_row(name, peak, size_text(spec.memory), bytes_per_second_text(spec.memory_bandwidth), origin(facts))
        return table
    if kind == "models":
        table = grid("Models", "name", "parameters", "layers", "hidden", "heads", "vocabulary")
        for name in catalog.names(kind):
            model = catalog.model(name)
            size = f"{model.parameters / GIGA:.4g} B"
            table.add_row(name, size, str(model.layers), str(model.hidden), str(model.heads), str(model.vocab))
        return table
    if kind == "stacks":
        table = stack_table()
        for name in catalog.names(kind):
            known = catalog.stack_facts(name)
            errors = (known.error.default, known.error.fitted, known.error.held_out) if known.error else None
            fitted = tuple(known.fitted.model_fields_set)
            add_stack(table, name, known.stack(known.fitted), fitted, len(known.cases), families(known.held_out), errors)
        return table
    if kind == "profiles":
        table = grid("Profiles", "name", "rows", "precision", "models", "devices")
        for name in catalog.names(kind):
            measured = profile.load(name)
            rows, devices = str(len(measured.layer_profiles)), ", ".join(measured.devices.values())
            table.add_row(name, rows, str(measured.precision), ", ".join(measured.models), devices)
        return table
    table = grid("Interconnects" if kind == "links" else "NIC types", "name", "rate", "all_reduce", "send_recv", "latency")
    for name in catalog.names(kind):
        link = catalog.link(name) if kind == "links" else catalog.nic(name)
        rate = bytes_per_second_text(link.bandwidth) if kind == "links" else "in topology"
        share = [f"{link.efficiency_of(operation):.0%}" for operation in ("all_reduce", "send_recv")]
        table.add_row(name, rate, *share, time_text(link.latency))
    return table


NAMED_CLUSTERS = 3
"""Up to this many clusters, a row of the list of topologies names each one; above, it gives their number."""


def topologies(shown: Iterable[tuple[str, Topology]]) -> Table:
    """Table of shipped topologies by the names that load them: devices, clusters and workload."""
    table = grid("Topologies", "name", "devices", "cluster", "device", "layout")
    table.columns[2].header, table.columns[4].header = "nodes x devices", "workload"
    for name, one in shown:
        each = [f"{c.name} {c.num_hosts} x {c.node.host.count}" for c in one.fleet.clusters]
        clusters = ", ".join(each) if len(each) <= NAMED_CLUSTERS else f"{len(each)} clusters"
        kinds = "\n".join(dict.fromkeys(c.node.device.name for c in one.fleet.clusters))
        workload = f"{one.workload.model.name}, batch {one.workload.global_batch_size}" if one.workload else "-"
        table.add_row(name, str(one.fleet.devices), clusters, kinds, workload)
    return table


def modules(title: str, names: Iterable[tuple[str, str]]) -> Table:
    """Table of the modules of a registry: name, and one line that describes it."""
    table = grid(title, "name", "layout")
    table.columns[1].header = ""
    for name, line in names:
        table.add_row(name, line)
    return table


PROPERTY_WORDS = {
    "degrees": "degrees above 1",
    "schedules": "schedules",
    "zero_stages": "ZeRO without a pipeline",
    "zero_stages_in_pipelines": "ZeRO in a pipeline",
    "recompute": "recompute, no pipeline",
    "recompute_in_pipelines": "recompute in a pipeline",
    "offload": "host memory keeps",
    "unlike_stages": "stages may differ in",
    "unlike_replicas": "replicas may differ in",
    "precisions": "precisions",
    "models": "models with",
}
"""Property of a launch target (`holmes_sim.capabilities`) -> its name in tables."""


def frameworks(takes: Mapping[str, Mapping[str, tuple[str | int, ...]]]) -> Table:
    """Table of what training frameworks can express, a row for each property: framework -> property -> values."""
    table = grid("What training frameworks can express", "name", *takes)
    table.columns[0].header = ""
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "left", False
    for name, words in PROPERTY_WORDS.items():
        table.add_row(words, *(", ".join(map(str, found[name])) or "-" for found in takes.values()))
    return table


def schemas(entries: Iterable[Schema]) -> Table:
    """Table of files and documents that have a schema: format, commands that write it, and what it is."""
    table = grid("Files and documents", "name", "layout", "plan", "why")
    for column, header in zip(table.columns[1:], ("format", "written by", ""), strict=True):
        column.header = header
    for entry in entries:
        table.add_row(entry.NAME, "\n".join(formats(entry)), "\n".join(entry.WRITTEN_BY) or "-", what(entry))
    return table
