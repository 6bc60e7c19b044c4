"""Removal of lost nodes from a topology, and the new numbers of the remaining nodes.

A cluster of n nodes that loses one has nodes 0 to n - 2: the last node takes the number of the lost one, so that all others
keep their numbers and their leaf switch. Host names stay with the machines: no host gets the name of a lost one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sim.errors import Infeasible, OptionError
from sim.formats.edits import edited
from sim.formats.suggestions import suggestion
from sim.hardware.cluster import Cluster, Device, Fleet, parse_device
from sim.hardware.topology import Topology

Place: TypeAlias = tuple[str, int]
"""A node: (name of its cluster, number in the cluster)."""

_NODE = re.compile(r"([^/]+)/node(\d+)")


@dataclass(frozen=True, slots=True)
class Surviving:
    """The remaining topology; `previous` maps each of its nodes to the node's number before the loss."""

    topology: Topology
    previous: dict[Place, Place]

    @property
    def renumbered(self) -> dict[Place, Place]:
        """Old node -> new node, of the nodes whose number changed."""
        return {old: new for new, old in self.previous.items() if old != new}

    @property
    def displaced(self) -> tuple[Place, ...]:
        """New nodes whose leaf switch in the model differs from the one the node is really connected to."""
        fleet = self.topology.fleet
        return tuple(new for new, old in self.previous.items() if leaf(fleet, new) != leaf(fleet, old))


def leaf(fleet: Fleet, node: Place) -> int:
    """Number of the leaf switch of a node; 0 in a cluster without a fabric."""
    fabric = fleet.cluster(node[0]).fabric
    return node[1] // fabric.nodes_per_leaf if fabric else 0


def place_text(node: Place) -> str:
    """Text of a node: `ib/node3`."""
    return f"{node[0]}/node{node[1]}"


def parse_node(fleet: Fleet, text: str, key: str = "--lost", others: tuple[str, ...] = ()) -> Place:
    """The node of a text `ib/node3` or of a host name; `key` gave it. Raises OptionError, also for one host of an NVLink
    domain; it suggests a host, or one of `others`, which the caller takes, too."""
    for cluster in fleet.clusters:
        for node in range(cluster.nodes):
            place, own = place_text((cluster.name, node)), cluster.hosts_of(node)
            if text == place or own == (text,):
                return cluster.name, node
            if text in own:
                raise OptionError(
                    f"{key} {text}: this host is in the NVLink domain {place} of {len(own)} hosts, and all domains of a "
                    f"cluster are equal; name the whole domain ({place}), or write a topology of smaller domains"
                )
    match = _NODE.fullmatch(text)
    names = [cluster.name for cluster in fleet.clusters]
    if match is not None and match[1] in names:
        raise OptionError(f"{key} {text}: cluster {match[1]} has nodes {_node_numbers(fleet.cluster(match[1]))}")
    hosts = [cluster.host(number) for cluster in fleet.clusters for number in range(cluster.num_hosts)]
    near = suggestion(match[1], names) if match is not None else suggestion(text, [*hosts, *others])
    raise OptionError(f"{key} {text!r} is neither a node such as {names[0]}/node0 nor a host of {fleet.name}{near}")


def _node_numbers(cluster: Cluster) -> str:
    last, hosts = cluster.nodes - 1, cluster.num_hosts
    numbers = f"0 to {last}" if last else "0"
    return f"{numbers} (" + (
        f"hosts {cluster.host(0)} to {cluster.host(hosts - 1)})" if hosts > 1 else f"host {cluster.host(0)})"
    )


def without(topology: Topology, lost: Iterable[Place]) -> Surviving:
    """The topology without the lost nodes. Raises Infeasible if no node is left."""
    gone, previous, clusters = set(lost), dict[Place, Place](), topology.fleet.clusters
    if len(gone) == sum(cluster.nodes for cluster in clusters):
        raise Infeasible(f"no node of {topology.name} is left; remedy: one more node than were lost")
    for cluster in clusters:
        name = cluster.name
        left = [node for node in range(cluster.nodes) if (name, node) not in gone]
        if not left:
            topology = _without_cluster(topology, name)
        elif len(left) < cluster.nodes:
            numbers = [node if (name, node) not in gone else -1 for node in range(len(left))]
            movers = iter([node for node in left if node >= len(left)])
            numbers = [next(movers) if node < 0 else node for node in numbers]
            previous |= {(name, new): (name, old) for new, old in enumerate(numbers)}
            topology = _with_hosts(topology, name, [host for old in numbers for host in cluster.hosts_of(old)])
        else:
            previous |= {(name, node): (name, node) for node in left}
    return Surviving(_with_kept_ranks(topology, previous), previous)


def _with_kept_ranks(topology: Topology, previous: Mapping[Place, Place]) -> Topology:
    """The topology with the new names of the devices of kept ranks (`sim.formats.kept_facts`); None where one is gone."""
    kept = ((topology.facts().get("require") or {}).get("ranks") or {}).get("keep")
    if not isinstance(kept, dict):
        return topology
    new = {old: now for now, old in previous.items()}
    placement = [str(device) if device else None for device in (_moved(text, new) for text in kept["placement"])]
    return edited(topology, {"require.ranks.keep.placement": placement})


def _moved(text: str | None, new: Mapping[Place, Place]) -> Device | None:
    device = parse_device(text) if text is not None else None
    place = new.get((device.cluster, device.node)) if device is not None else None
    return Device(*place, device.index) if device is not None and place is not None else None


def _without_cluster(topology: Topology, name: str) -> Topology:
    required = topology.facts().get("require") or {}
    for key in ("first_stage", "last_stage"):
        if required.get(key) == name:
            raise Infeasible(f"no node of cluster {name} is left, on which require.{key} wants a stage")
    if any(one["cluster"] == name for one in required.get("stages", [])):
        raise Infeasible(f"no node of cluster {name} is left, on which require.stages wants a stage")
    links = topology.facts().get("links", [])
    if links:
        topology = edited(topology, {"links": [link for link in links if name not in link["between"]]})
    if name in required.get("clusters", {}):
        topology = edited(topology, {f"require.clusters.{name}": None})
    return edited(topology, {f"clusters.{name}": None})


def _with_hosts(topology: Topology, name: str, hosts: list[str]) -> Topology:
    if "hosts" in topology.facts()["clusters"][name]:
        topology = edited(topology, {f"clusters.{name}.hosts": None})
    return edited(topology, {f"clusters.{name}.nodes": len(hosts), f"clusters.{name}.hosts": hosts})
