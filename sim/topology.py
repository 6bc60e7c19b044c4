"""topo.yaml -> Topology: the fleet, the workload, and the document they were read from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sim import catalog, huggingface
from sim.cluster import Cluster, DeviceSpec, Fabric, Fleet, LinkSpec, Nic, Node, Trunk
from sim.documents import Document, Path_, check, parse, read_text, suggestion
from sim.errors import TopologyError
from sim.model import Model, Workload
from sim.schema import ClusterFacts, DeviceFacts, LinkFacts, ModelFacts, TopologyFacts, TrunkFacts, WorkloadFacts

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class Topology:
    """What a topology file says. `document` is its own text as canonical JSON, without the workload."""

    name: str
    source: str
    fleet: Fleet
    workload: Workload | None
    document: str

    def facts(self) -> dict[str, Any]:
        """The document as plain data, as it stands in plan.json."""
        data: dict[str, Any] = json.loads(self.document)
        return data


def load(path: str | Path) -> Topology:
    """Read a topology file. Raises TopologyError with one line for every fault of the file."""
    return from_document(parse(str(path), read_text(path)), Path(path).parent)


def from_document(document: Document, folder: Path = Path(".")) -> Topology:
    """A parsed document as a topology; model paths are looked up beside the file. Raises TopologyError."""
    return _Reader(document, folder).topology(check(document, TopologyFacts))


def load_model(name: str, folder: Path = Path(".")) -> Model:
    """A model of the catalogue, or a Hugging Face config.json; raises TopologyError where it is neither."""
    if name in catalog.names("models"):
        return catalog.model(name)
    for path in (folder / name, Path(name)):
        if path.exists():
            return huggingface.read(path)
    near = suggestion(name, catalog.names("models"))
    raise TopologyError(f"model {name!r} is neither in the catalogue nor a path to a config.json{near}")


def workload_facts(workload: Workload) -> dict[str, Any]:
    """A workload as it stands in plan.json: the model's shape in place."""
    model = workload.model
    shape: dict[str, Any] = {
        "name": model.name, "layers": model.layers, "hidden": model.hidden, "heads": model.heads,
        "kv_heads": model.kv_heads, "head_dim": model.head_dim, "ffn_hidden": model.ffn_hidden, "vocab": model.vocab,
        "mlp": model.mlp, "tied_embeddings": model.tied_embeddings, "learned_positions": model.learned_positions,
    }  # fmt: skip
    if model.experts:
        shape |= {"experts": model.experts, "experts_per_token": model.experts_per_token}
    return {
        "model": shape,
        "global_batch_size": workload.global_batch_size,
        "seq_len": workload.seq_len,
        "precision": workload.precision,
    }


class _Reader:
    """Turns checked facts into values and collects what the schema alone cannot see."""

    def __init__(self, document: Document, folder: Path):
        self.document, self.folder = document, folder
        self.faults: list[str] = []

    def topology(self, facts: TopologyFacts) -> Topology:
        clusters = tuple(c for name, cf in facts.clusters.items() for c in self._cluster(name, cf))
        trunks = tuple(t for index, tf in enumerate(facts.links) for t in self._trunk(index, tf, facts))
        workload = self._workload(facts.workload) if facts.workload else None
        if self.faults:
            raise TopologyError("\n".join(self.faults))
        document = dict(self.document.value) if isinstance(self.document.value, dict) else {}
        document.pop("workload", None)
        fleet = Fleet(facts.name, clusters, trunks, facts.communicator)
        return Topology(facts.name, facts.source, fleet, workload, json.dumps(document))

    def _fault(self, path: Path_, message: str) -> None:
        self.faults.append(self.document.fault(path, message))

    def _known(self, path: Path_, read: Callable[[], Spec]) -> Spec | None:
        try:
            return read()
        except TopologyError as error:
            self._fault(path, str(error))
            return None

    def _cluster(self, name: str, facts: ClusterFacts) -> Iterator[Cluster]:
        at: Path_ = ("clusters", name)
        if not _CLUSTER_NAME.fullmatch(name):
            self._fault(at, f"cluster name {name!r} may hold letters, digits, '.', '_' and '-' only")
        device = self._device((*at, "node", "devices", "type"), facts.node.devices.type)
        intra = self._interconnect((*at, "node", "intra_node"), facts.node.intra_node)
        nics = []
        for index, nic in enumerate(facts.node.nics):
            place = (*at, "node", "nics", index, "type")
            spec = self._known(place, lambda kind=nic.type: catalog.nic(kind))  # type: ignore[misc]
            if any(nic.type == earlier.type for earlier in facts.node.nics[:index]):
                self._fault(place, f"NIC type {nic.type!r} is listed twice; write it once with its count")
            if spec is not None:
                nics.append(Nic(spec, nic.bandwidth, nic.count))
        if facts.nodes > 1 and not facts.node.nics:
            self._fault((*at, "node"), f"{facts.nodes} nodes without NICs cannot be joined; list nics")
        fabric = Fabric(facts.fabric.nodes_per_leaf, facts.fabric.oversubscription) if facts.fabric else None
        if device is not None and intra is not None:
            yield Cluster(name, facts.nodes, Node(device, facts.node.devices.count, intra, tuple(nics)), fabric)

    def _device(self, path: Path_, facts: str | DeviceFacts) -> DeviceSpec | None:
        if isinstance(facts, DeviceFacts):
            return facts.spec()
        return self._known(path, lambda: catalog.device(facts))

    def _interconnect(self, path: Path_, facts: str | LinkFacts) -> LinkSpec | None:
        if isinstance(facts, LinkFacts):
            return facts.spec()
        return self._known(path, lambda: catalog.link(facts))

    def _trunk(self, index: int, facts: TrunkFacts, topology: TopologyFacts) -> Iterator[Trunk]:
        at: Path_ = ("links", index)
        spec = self._known((*at, "type"), lambda: catalog.nic(facts.type))
        if facts.between[0] == facts.between[1]:
            self._fault((*at, "between"), f"a link joins two different clusters, not {facts.between[0]!r} to itself")
        for end, name in enumerate(facts.between):
            cluster = topology.clusters.get(name)
            if cluster is None:
                near = suggestion(name, topology.clusters)
                self._fault((*at, "between", end), f"cluster {name!r} does not exist{near}")
            elif spec is not None and all(nic.type != facts.type for nic in cluster.node.nics):
                self._fault((*at, "type"), f"the nodes of cluster {name!r} have no {facts.type} NIC to use this link with")
        if spec is not None:
            yield Trunk(facts.between, facts.type, facts.bandwidth, facts.latency)

    def _workload(self, facts: WorkloadFacts) -> Workload | None:
        if isinstance(facts.model, ModelFacts):
            model: Model | None = facts.model.model()
        else:
            name = facts.model
            model = self._known(("workload", "model"), lambda: load_model(name, self.folder))
        if model is None:
            return None
        return Workload(model, facts.global_batch_size, facts.seq_len, facts.precision)
