"""Reader of topology files: YAML or JSON -> Topology."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.errors import TopologyError
from sim.formats import adapter_facts, catalog, huggingface, profile, require_facts, routing_facts, stacks
from sim.formats.catalog_facts import DeviceFacts, LinkFacts
from sim.formats.documents import MISSING, Document, KeyPath, check, parse, read_text
from sim.formats.model_facts import ModelFacts
from sim.formats.profile_facts import ProfileFacts
from sim.formats.stack_facts import StackConstants
from sim.formats.suggestions import suggestion
from sim.formats.topology_facts import ClusterFacts, FabricFacts, NicFacts, TopologyFacts, TrunkFacts, WorkloadFacts
from sim.hardware.cluster import Cluster, Fabric, Fleet, Nic, Node, Trunk
from sim.hardware.link_spec import LinkSpec
from sim.hardware.stack import DEFAULT, applied
from sim.hardware.topology import Topology
from sim.workload.model import Model
from sim.workload.workload import Workload

OTHERS = {"plan": "plan", "islands": "plan of islands", "disaggregated": "plan with two sets of ranks"}
"""Formats of other files that a person may give in place of a topology -> what they are."""
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def load(path: str | Path) -> Topology:
    """The topology of a file. Raises TopologyError with one line per fault."""
    return from_document(parse(str(path), read_text(path)), Path(path).parent)


def from_document(document: Document, folder: Path = Path()) -> Topology:
    """The topology of a parsed document; paths in it are relative to `folder`. Raises TopologyError."""
    written_format = str(_mapping(document.value).get("format", ""))
    for kind, what in OTHERS.items():
        if written_format.startswith(f"holmes-sim/{kind}/"):
            raise TopologyError(document.fault(("format",), f"this is a {what}; a topology is expected"))
    facts = check(document, TopologyFacts, _faults(document.value, folder))
    clusters = tuple(_cluster(name, cluster) for name, cluster in facts.clusters.items())
    trunks = tuple(_trunk(link) for link in facts.links)
    workload = None
    if facts.workload is not None:
        try:
            workload = workload_from(facts.workload, folder)
        except TopologyError as error:
            raise TopologyError(document.fault(*workload_fault(error))) from None
    written = dict(document.value) if isinstance(document.value, dict) else {}
    written.pop("workload", None)
    fleet, stack = Fleet(facts.name, clusters, trunks, facts.communicator), DEFAULT
    if facts.stack is not None:
        software = _software(document, facts.stack, folder)
        stack, written["stack"] = software.stack(), stacks.kept(software)
    found = Topology(
        facts.name, facts.source, applied(stack, fleet), workload, json.dumps(written), stack, facts.memory_headroom
    )
    given = profile.load(facts.profile, folder) if isinstance(facts.profile, str) else facts.profile
    return found if given is None else profiled(found, given)


def _trunk(link: TrunkFacts) -> Trunk:
    tcp = link.window or 0.0, link.loss, link.connections
    return Trunk(link.between, link.type, link.bandwidth, link.latency, link.price, *tcp)


def _software(document: Document, given: str | StackConstants, folder: Path) -> StackConstants:
    if not isinstance(given, str):
        return given
    try:
        return stacks.load(given, folder)
    except TopologyError as error:
        raise TopologyError(document.fault(("stack",), str(error))) from None


def profiled(topology: Topology, facts: ProfileFacts) -> Topology:
    """The topology with a measured profile on its devices and in its document; it replaces an earlier one."""
    written = topology.facts()
    rows = profile.kept(facts, topology.fleet)
    written.pop("profile", None)
    if rows:
        written["profile"] = rows
    return replace(topology, fleet=profile.put_on(topology.fleet, facts), document=json.dumps(written))


def load_model(name: str, folder: Path = Path()) -> Model:
    """A model of the catalogue, or of the path of a Hugging Face config.json; raises TopologyError if it is neither."""
    for _, fault in _unknown_model(name, folder):
        raise TopologyError(fault)
    if name in catalog.names("models"):
        return catalog.model(name)
    return huggingface.read(folder / name if (folder / name).exists() else name)


def _unknown_model(name: str, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    if name not in catalog.names("models") and not (folder / name).exists() and not Path(name).exists():
        near = suggestion(name, catalog.names("models"))
        yield ("workload", "model"), f"model {name!r} is neither in the catalogue nor a path to a config.json{near}"


def workload_fault(error: TopologyError) -> tuple[KeyPath, str]:
    """(path in the document, text) of an error of `workload_from`, which begins with its key where that is not `model`."""
    key, _, text = str(error).partition(": ")
    if key.startswith("routing"):
        return ("workload", *key.split(".")), text
    return ("workload", "adapter" if key.startswith("adapter") else "model"), str(error)


def workload_from(facts: WorkloadFacts, folder: Path = Path()) -> Workload:
    """The workload of the simulator. Raises TopologyError if its model is not found, or adapters or a routing do not fit it."""
    model = facts.model.model() if isinstance(facts.model, ModelFacts) else load_model(facts.model, folder)
    adapter = facts.adapter.adapter() if facts.adapter else None
    adapter_facts.check(adapter, model, facts.precision)
    routing = routing_facts.routing_of(facts.routing, model)
    routing_facts.check(routing, model)
    return Workload(model, facts.global_batch_size, facts.seq_len, facts.precision, (), facts.optimizer, adapter, routing)


def workload_facts(workload: Workload) -> dict[str, Any]:
    """A workload as plain data for plan.json, with the shape of the model instead of its name."""
    model = workload.model
    shape: dict[str, Any] = {
        "name": model.name, "layers": model.layers, "hidden": model.hidden, "heads": model.heads,
        "kv_heads": model.kv_heads, "head_dim": model.head_dim, "ffn_hidden": model.ffn_hidden, "vocab": model.vocab,
        "mlp": model.mlp, "tied_embeddings": model.tied_embeddings, "learned_positions": model.learned_positions,
    }  # fmt: skip
    if model.experts:
        shape |= {key: getattr(model, key) for key in ("experts", "experts_per_token", "shared_ffn_hidden")}
    shape |= model.special | model.launch.known()
    return {
        "model": shape,
        "global_batch_size": workload.global_batch_size,
        "seq_len": workload.seq_len,
        "precision": workload.precision,
        **({"optimizer": workload.optimizer} if workload.optimizer != "adam" else {}),
        **({"adapter": adapter_facts.written(workload.adapter)} if workload.adapter else {}),
        **({"routing": routing} if (routing := routing_facts.written(workload.routing)) else {}),
    }


def written(topology: Topology) -> dict[str, Any]:
    """A topology as plain data, workload included, as in its file; a model of the catalogue is given by name."""
    if topology.workload is None:
        return topology.facts()
    workload, model = workload_facts(topology.workload), topology.workload.model
    if model.name in catalog.names("models") and catalog.model(model.name) == model:
        workload["model"] = model.name
    return topology.facts() | {"workload": workload}


def _cluster(name: str, facts: ClusterFacts) -> Cluster:
    node = facts.node
    own = node.devices.type
    device = catalog.completed(own).spec() if isinstance(own, DeviceFacts) else catalog.device(own)
    if node.devices.price is not None:
        device = replace(device, price=node.devices.price)
    if node.host_memory_bandwidth is not None:
        device = replace(device, host_memory_bandwidth=node.host_memory_bandwidth / node.devices.count)
    intra = node.intra_node.spec() if isinstance(node.intra_node, LinkFacts) else catalog.link(node.intra_node)
    nics = tuple(map(_nic, node.nics))
    hosts = (facts.nvlink_domain or node.devices.count) // node.devices.count
    fabric = _fabric(facts.fabric, hosts) if facts.fabric else None
    one = Node(device, node.devices.count, intra, nics, 1, node.socket_link or 0.0, node.host_memory, node.uplink_devices or 0)
    return Cluster(name, facts.nodes // hosts, one.joined(hosts), fabric, tuple(facts.hosts))


def _fabric(facts: FabricFacts, hosts: int) -> Fabric:
    share = catalog.routings()[facts.routing] if facts.routing else 1.0
    return Fabric(facts.nodes_per_leaf // hosts, facts.oversubscription, share)


def _nic(facts: NicFacts) -> Nic:
    others = facts.gid_index, facts.price, facts.sharp, facts.socket, facts.send_limit or 0.0
    return Nic(_nic_type(facts), facts.bandwidth, facts.count, tuple(facts.names), *others)


def _nic_type(facts: NicFacts) -> LinkSpec:
    """The NIC type of the catalogue, with the share of the wire rate that was measured on these NICs where one was."""
    found = catalog.nic(facts.type)
    if facts.efficiency is None:
        return found
    return replace(found, efficiency=tuple((operation, facts.efficiency) for operation, _ in found.efficiency), host_limit=0.0)


def _faults(value: object, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    """(path, text) of faults beyond the schema: names that do not exist, links that join nothing.

    Reads the raw document, so that these faults are reported together with those of the schema; skips malformed parts.
    """
    clusters = _mapping(_mapping(value).get("clusters"))
    for name, cluster in clusters.items():
        if isinstance(name, str):
            yield from _cluster_faults(name, _mapping(cluster))
        else:
            yield ("clusters", str(name)), f"cluster name {name!r} is not text; put it in quotes"
    model = _mapping(_mapping(value).get("workload")).get("model")
    if isinstance(model, str):
        yield from _unknown_model(model, folder)
    for path, fault in require_facts.faults(_mapping(value).get("require"), clusters):
        yield ("require", *path), fault
    inside = _mapping(value).get("profile")
    for path, fault in profile.faults(inside) if isinstance(inside, dict) else ():
        yield ("profile", *path), fault
    links = _mapping(value).get("links")
    for index, link in enumerate(links if isinstance(links, list) else []):
        yield from _link_faults(("links", index), _mapping(link), clusters)


def _mapping(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _nic_types(cluster: object) -> list[Any]:
    nics = _mapping(_mapping(cluster).get("node")).get("nics")
    return [_mapping(nic).get("type") for nic in nics] if isinstance(nics, list) else []


def _cluster_faults(name: str, cluster: dict[Any, Any]) -> Iterator[tuple[KeyPath, str]]:
    at: KeyPath = ("clusters", name)
    if not _CLUSTER_NAME.fullmatch(name):
        yield at, f"cluster name {name!r} may have letters, digits, '.', '_' and '-' only"
    node = _mapping(cluster.get("node"))
    device: Any = _mapping(node.get("devices")).get("type")
    yield from _unknown("devices", (*at, "node", "devices", "type"), device)
    yield from _unknown("links", (*at, "node", "intra_node"), node.get("intra_node"))
    if "intra_node" not in node and device in catalog.names("devices"):
        joins = catalog.device_facts(device).intra_node
        how = f"usually have {joins.usual}" if joins.usual else joins.pcie and f"have {joins.pcie} where no bridge joins them"
        yield (*at, "node", "intra_node"), MISSING + (f"; nodes of {device} {how}" if how else "")
    types = _nic_types(cluster)
    for index, kind in enumerate(types):
        path = (*at, "node", "nics", index, "type")
        yield from _unknown("nics", path, kind)
        if kind in types[:index]:
            yield path, f"NIC type {kind!r} is listed twice; write it once with its count"
    yield from _routing_faults((*at, "fabric", "routing"), _mapping(cluster.get("fabric")).get("routing"), types)
    nodes, count = cluster.get("nodes"), _mapping(node.get("devices")).get("count")
    domain = cluster.get("nvlink_domain", count)
    if isinstance(nodes, int) and nodes > 1 and node and not types and domain != nodes * (count or 0):
        yield (*at, "node"), f"{nodes} nodes without NICs cannot communicate; give nics"
    if isinstance(nodes, int) and isinstance(count, int) and isinstance(domain, int) and min(nodes, count, domain) > 0:
        for key, fault in _domain_faults(cluster, nodes, count, domain):
            yield (*at, *key), fault


def _routing_faults(path: KeyPath, name: object, types: list[Any]) -> Iterator[tuple[KeyPath, str]]:
    """Faults of a fabric's routing: it must be known, and the nodes need RoCE NICs."""
    if isinstance(name, str) and name not in catalog.routings():
        near = suggestion(name, catalog.routings()) or f"; known: {', '.join(catalog.routings())}"
        yield path, f"routing {name!r} is not in the catalogue{near}"
    elif name is not None and "roce" not in types:
        yield path, "routing is for RoCE flows, and the nodes have no roce NIC; leave it out"


def _domain_faults(cluster: dict[Any, Any], nodes: int, count: int, domain: int) -> Iterator[tuple[KeyPath, str]]:
    """Faults of an NVLink domain of `domain` devices: it must be whole nodes below one leaf, joined by a switch."""
    hosts = domain // count
    leaf = _mapping(cluster.get("fabric")).get("nodes_per_leaf")
    if domain % count:
        yield ("nvlink_domain",), f"{domain} devices are not whole nodes of {count} devices; write a multiple of {count}"
    elif nodes % hosts:
        yield (
            ("nvlink_domain",),
            f"{nodes} nodes are not whole domains of {hosts} nodes ({domain} devices); write another cluster for the rest",
        )
    elif isinstance(leaf, int) and leaf % hosts:
        where: KeyPath = ("fabric", "nodes_per_leaf")
        yield where, f"{leaf} nodes are not whole NVLink domains of {hosts} nodes; write a multiple of {hosts}"
    inside = _mapping(cluster.get("node")).get("intra_node")
    if isinstance(inside, str):
        inside = catalog.document("links", inside).value if inside in catalog.names("links") else {}
    if hosts > 1 and "socket_link" in _mapping(cluster.get("node")):
        yield ("nvlink_domain",), "sockets are not modelled in NVLink domains of several nodes; leave out socket_link"
    if hosts > 1 and any(key in _mapping(inside) for key in ("pair_bandwidth", "group_bandwidth")):
        yield ("nvlink_domain",), "intra_node has no switch between all devices, only inside a node; use a link such as nvlink5"


def _unknown(folder: str, path: KeyPath, name: object) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(name, str) and name not in catalog.names(folder):
        near = suggestion(name, catalog.names(folder))
        yield path, f"{catalog.KINDS[folder]} {name!r} is not in the catalogue{near}"


def _link_faults(at: KeyPath, link: dict[Any, Any], clusters: dict[Any, Any]) -> Iterator[tuple[KeyPath, str]]:
    kind, between = link.get("type"), link.get("between")
    yield from _unknown("nics", (*at, "type"), kind)
    ends = between if isinstance(between, list) else []
    if len(ends) == 2 and ends[0] == ends[1]:
        yield (*at, "between"), f"a link joins two different clusters, not {ends[0]!r} to itself"
    for end, name in enumerate(ends):
        if isinstance(name, str) and name not in clusters:
            yield (*at, "between", end), f"cluster {name!r} does not exist{suggestion(name, map(str, clusters))}"
        elif name in clusters and kind in catalog.names("nics") and kind not in _nic_types(clusters[name]):
            types = ", ".join(sorted(map(str, _nic_types(clusters[name])))) or "none"
            yield (*at, "type"), f"the nodes of cluster {name!r} have no {kind} NIC, which this link needs; they have: {types}"
