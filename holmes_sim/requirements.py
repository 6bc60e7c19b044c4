"""Requirements of a person: from the key `require` of a topology, or from a file of their own, to a planning request.

Nodes that may not be used are removed from the topology (`sim.formats.lost_nodes`), head-room is the topology's, a dimension
with one allowed value is a pin, targets are joined to one; all else is a limit (`planner.limits`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from holmes_sim import exporters, kept_ranks, targets
from holmes_sim.whole_runs import usual_failures
from planner.limits import HOUR, Dimensions, Limits
from planner.request import Request, Wishes
from planner.training_time import TrainingTime
from sim.errors import OptionError
from sim.formats import lost_nodes, require_facts
from sim.formats.documents import Document, KeyPath, check, parse, read_text
from sim.formats.edits import edited
from sim.formats.lost_nodes import Place
from sim.formats.require_facts import ClusterRequirements, NodesFacts, RequireFacts, RequireFile
from sim.formats.suggestions import suggestion
from sim.hardware.topology import Topology
from sim.plan.allowed import Allowed
from sim.units import MEGA, tokens_text
from sim.workload.workload import Workload

DIMENSIONS = tuple(field.name for field in fields(Wishes) if field.name in RequireFacts.model_fields)
"""Dimensions of a plan that may be required."""


def require(where: Topology, given: str | Path | Mapping[str, Any]) -> Topology:
    """The topology with requirements beside its own, from a file, or from a mapping with the keys of such a file, such as
    `{"tp": {"max": 4}, "devices": {"max": 64}}`. They replace those with the same key.

    Raises TopologyError with one line per fault."""
    folder = Path()
    if not isinstance(given, Mapping):
        document, folder = parse(str(given), read_text(given)), Path(given).parent
        check(document, RequireFile, _faults(where, document.value, folder))
        assert isinstance(document.value, dict)
        given = {key: value for key, value in document.value.items() if key != "format"}
    return kept_ranks.read(only(where, {**written(where), **given}), folder)


def _faults(where: Topology, value: object, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    """(path, text) of names in a file of requirements that do not exist: clusters, nodes and targets."""
    yield from require_facts.faults(value, [cluster.name for cluster in where.fleet.clusters])
    given = value if isinstance(value, dict) else {}
    wanted, nodes = given.get("targets"), given.get("nodes")
    yield from _too_many_nodes(where, given.get("clusters"))
    yield from kept_ranks.faults(where, given.get("ranks"), folder)
    least = wanted.get("min") if isinstance(wanted, dict) else None
    if isinstance(least, int) and least > len(exporters.frameworks()):
        yield ("targets", "min"), f"{least} is more than the training frameworks {', '.join(exporters.frameworks())}"
    for index, name in enumerate(wanted if isinstance(wanted, list) else []):
        if name not in exporters.every():
            yield ("targets", index), f"target {name!r} is unknown{suggestion(str(name), exporters.every())}"
    for key, named in nodes.items() if isinstance(nodes, dict) else ():
        with suppress(ValueError):  # the schema reports it
            for name in require_facts.places(named) if key in ("exclude", "only") else ():
                try:
                    _places(where, [name], "")
                except OptionError as error:
                    yield ("nodes", key), str(error).strip()


def _too_many_nodes(where: Topology, clusters: object) -> Iterator[tuple[KeyPath, str]]:
    """(path, text) of numbers of nodes that a cluster does not have."""
    has = {cluster.name: cluster.nodes for cluster in where.fleet.clusters}
    for name, of in clusters.items() if isinstance(clusters, dict) else ():
        nodes = of.get("nodes") if isinstance(of, dict) else None
        least = nodes.get("min") if isinstance(nodes, dict) else min(nodes, default=0) if isinstance(nodes, list) else nodes
        if isinstance(least, int) and least > has.get(name, least):
            yield ("clusters", name, "nodes"), f"at least {least} nodes are more than the {has[name]} of cluster {name}"


def check_file(where: Topology, path: str | Path) -> None:
    """Raise TopologyError for nodes and targets that the requirements in a topology's own file name and that do not exist."""
    if written(where):
        check_document(where, parse(str(path), read_text(path)))


def check_document(where: Topology, document: Document) -> None:
    """Like `check_file`, for the parsed file."""
    if written(where):
        inside = document.inside("require")
        check(inside, RequireFacts, _faults(where, inside.value, Path(document.name).parent))


def only(where: Topology, given: Mapping[str, Any]) -> Topology:
    """The topology with these requirements in place of its own."""
    if not given:
        return edited(where, {"require": None}) if written(where) else where
    return edited(where, {"require": dict(given)})


def without(where: Topology, key: str) -> Topology:
    """The topology without one of its requirements."""
    return only(where, {name: value for name, value in written(where).items() if name != key})


def written(where: Topology) -> dict[str, Any]:
    """The requirements of a topology, as in its file; empty without any."""
    return dict(where.facts().get("require") or {})


def request(
    where: Topology,
    workload: Workload,
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    target: str = targets.ANY,
) -> Request:
    """The planning request of a topology with its requirements; `target`, or a word of
    `holmes_sim.targets`, is required as well.

    Raises OptionError for a node or target that does not exist, or where a rent is limited and a price is not known."""
    whole, where = RequireFacts.model_validate(written(where)), applied(where)
    facts = RequireFacts.model_validate(written(where))
    found = Request(where, workload, wishes or Wishes(), time_limit)
    for key in ("rent", "cost"):
        if getattr(facts, key) is not None:
            _check_prices(where, key)
    found = replace(
        found,
        wishes=_pinned(found.wishes, facts),
        limits=Limits(
            dimensions=_dimensions(facts),
            on_clusters=tuple((name, _dimensions(of)) for name, of in facts.clusters.items() if _dimensions(of)),
            nodes=tuple((name, of.nodes) for name, of in facts.clusters.items() if of.nodes is not None),
            devices=facts.devices.max if facts.devices is not None else None,
            rent=facts.rent.max if facts.rent is not None else None,
            cost=facts.cost.max if facts.cost is not None else None,
            training=_training_time(facts, where),
            first=facts.first_stage or "",
            last=facts.last_stage or "",
            stages=tuple((one.stage, one.cluster) for one in facts.stages),
            ranks=kept_ranks.of(facts, workload),
            applied=tuple(text(whole, name) for name in ("nodes", "memory_headroom") if getattr(whole, name) is not None),
        ),
    )
    return targets.aimed(found, (*required_targets(where), target))


def required_targets(where: Topology) -> tuple[str, ...]:
    """Names of the targets that the requirements of a topology name, such as `megatron` or `at least 2 frameworks`."""
    given = RequireFacts.model_validate(written(where)).targets
    return (targets.at_least(given.least or 1),) if isinstance(given, Allowed) else tuple(given)


def text(facts: RequireFacts, name: str) -> str:
    """One key of the requirements in words: `tp at most 4`, `nodes without ib/node3`."""
    value = getattr(facts, name)
    if name == "nodes":
        return f"nodes without {', '.join(value.exclude)}" if value.exclude else f"nodes only {', '.join(value.only)}"
    if name == "rent":
        return f"rent at most {value.max * HOUR:.6g} USD/h"
    if name == "cost":
        return f"cost at most {value.max * MEGA:.6g} USD/Mtoken"
    if name == "days":
        return f"days at most {value.max:.6g} for {tokens_text(value.tokens)} tokens"
    if name == "devices":
        return f"devices at most {value.max}"
    if name == "ranks":
        return f"ranks kept as in {value.keep if isinstance(value.keep, str) else value.keep.name}"
    if name == "stages":
        return ", ".join(f"stage {one.stage} on cluster {one.cluster}" for one in value)
    if name == "clusters":
        limits = ((cluster, (("nodes", of.nodes), *_dimensions(of))) for cluster, of in value.items())
        return ", ".join(f"{key} {allowed} on cluster {cluster}" for cluster, of in limits for key, allowed in of if allowed)
    return f"{name} {', '.join(value) if isinstance(value, list) else value}"


def ranges(facts: RequireFacts) -> tuple[str, ...]:
    """The dimensions that are limited by a range, not by listed values."""
    return tuple(name for name, allowed in _dimensions(facts) if not allowed.values)


def applied(where: Topology) -> Topology:
    """The topology without the nodes that may not be used and with the head-room that is required; both are then no longer
    among its requirements."""
    given = written(where)
    facts = RequireFacts.model_validate(given)
    if facts.ranks is not None and isinstance(facts.ranks.keep, str):
        return applied(kept_ranks.read(where, Path()))
    if facts.memory_headroom is not None:
        where = edited(where, {"memory_headroom": facts.memory_headroom})
    if facts.memory_headroom is not None or facts.nodes is not None:
        left = {key: value for key, value in given.items() if key not in ("nodes", "memory_headroom")}
        left |= _on_clusters_left(where, facts, left)
        where = only(where, left)
    return lost_nodes.without(where, _excluded(where, facts.nodes)).topology if facts.nodes is not None else where


def _on_clusters_left(where: Topology, facts: RequireFacts, left: Mapping[str, Any]) -> dict[str, Any]:
    """The requirements on clusters that keep a node; raises OptionError where a stage is wanted on one that does not."""
    gone = set(_excluded(where, facts.nodes)) if facts.nodes is not None else set[Place]()
    empty = {one.name for one in where.fleet.clusters if all((one.name, node) in gone for node in range(one.nodes))}
    for key in ("first_stage", "last_stage"):
        if getattr(facts, key) in empty:
            raise OptionError(f"require.{key}: no node of cluster {getattr(facts, key)} may be used (require.nodes)")
    for one in facts.stages:
        if one.cluster in empty:
            raise OptionError(f"require.stages: no node of cluster {one.cluster} may be used (require.nodes)")
    for name, of in facts.clusters.items():
        if name in empty and of.nodes is not None and not of.nodes.holds(0):
            raise OptionError(f"require.clusters.{name}.nodes: no node of cluster {name} may be used (require.nodes)")
    return {"clusters": {name: of for name, of in left["clusters"].items() if name not in empty}} if "clusters" in left else {}


def _excluded(where: Topology, nodes: NodesFacts | None) -> tuple[Place, ...]:
    """The nodes that may not be used."""
    if nodes is None:
        return ()
    found = _without(where, nodes)
    if len(found) == sum(cluster.nodes for cluster in where.fleet.clusters):
        raise OptionError(f"require.nodes: no node of {where.name} may be used")
    return found


def _without(where: Topology, nodes: NodesFacts) -> tuple[Place, ...]:
    if nodes.exclude is not None:
        return tuple(dict.fromkeys(_places(where, nodes.exclude, "require.nodes.exclude:")))
    kept = set(_places(where, nodes.only or [], "require.nodes.only:"))
    every = [(cluster.name, node) for cluster in where.fleet.clusters for node in range(cluster.nodes)]
    return tuple(place for place in every if place not in kept)


def _places(where: Topology, names: Iterable[str], key: str) -> list[Place]:
    """The nodes of names of clusters, nodes or hosts."""
    clusters = {cluster.name: cluster for cluster in where.fleet.clusters}
    found: list[Place] = []
    for name in names:
        if name in clusters:
            found += [(name, node) for node in range(clusters[name].nodes)]
        else:
            found.append(lost_nodes.parse_node(where.fleet, name, key, tuple(clusters)))
    return found


def _pinned(wishes: Wishes, facts: RequireFacts) -> Wishes:
    """The wishes with a pin for every dimension of which one value is allowed and none is pinned."""
    allowed = {name: getattr(facts, name) for name in DIMENSIONS if getattr(wishes, name) is None}
    return replace(wishes, **{name: one.values[0] for name, one in allowed.items() if one is not None and len(one.values) == 1})


def _dimensions(facts: RequireFacts | ClusterRequirements) -> Dimensions:
    found = ((name, getattr(facts, name, None)) for name in DIMENSIONS)
    return tuple((name, allowed) for name, allowed in found if isinstance(allowed, Allowed))


def _training_time(facts: RequireFacts, where: Topology) -> TrainingTime | None:
    """The required days of a training run, with the goodput that is given, or that of all devices that may be used."""
    if facts.days is None:
        return None
    share, source = facts.days.goodput, "as required"
    if share is None:
        devices = min(where.fleet.devices, facts.devices.max) if facts.devices is not None else where.fleet.devices
        share, source = usual_failures(devices).goodput, f"Llama 3's failures on {devices:,} devices"
    return TrainingTime(facts.days.max, facts.days.tokens, share, source)


def _check_prices(where: Topology, key: str) -> None:
    """Raise OptionError where a device states no price."""
    for cluster in where.fleet.clusters:
        if cluster.node.device.price is None:
            raise OptionError(
                f"require.{key}: no price known of {cluster.node.device.name} of cluster {cluster.name}; give it in the "
                f"topology, clusters.{cluster.name}.node.devices.price: 2.50 USD/h"
            )
