"""Guesses where nobody says otherwise: NICs of a node, links between clusters, and a workload that fits the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holmes_sim.importing.facts import Nics
from sim.formats import catalog
from sim.formats.model_facts import ModelFacts
from sim.hardware.device_spec import DeviceSpec
from sim.network.paths import PCIE_EFFICIENCY
from sim.units import BITS_PER_BYTE, GIGA, parse
from sim.workload.model import Model

RATES = (400, 200, 100, 50, 25, 10)
"""Rates of NICs in Gbit/s, the fastest first."""
ETHERNET = "25 Gbit/s"
"""Rate of the Ethernet NIC of a node, and of a link between clusters. Guess."""
PC_ETHERNET = "1 Gbit/s"
"""Rate of the Ethernet NIC of a PC with gaming cards (`PC_PRODUCTS`). Guess: mainboards have 1 or 2.5 Gbit/s."""
PC_PRODUCTS = ("geforce-", "titan-")
"""How product names of gaming cards begin, as drivers write them."""
LATENCY = "50 us"
"""Latency of a link between clusters in one building. Guess."""
STATE_BYTES = 18
"""Bytes of training state per parameter: bf16 weights (2), fp32 gradients (4), and weights and two moments of Adam in fp32
(12), as in Megatron-LM without a distributed optimizer."""
SHARE = 0.5
"""Share of the devices' memory that the training state of the guessed model may take, so that activations fit beside it."""
SMALL: dict[str, Any] = {
    "name": "gpt-345m", "layers": 24, "hidden": 1024, "heads": 16, "ffn_hidden": 4096, "vocab": 50304, "mlp": "gelu",
    "tied_embeddings": True, "learned_positions": 1024,
}  # fmt: skip
"""GPT of 345 million parameters, for fleets that are too small for the models of the catalogue (Megatron-LM's example)."""
MODELS = ("llama-3-405b", "llama-3-70b", "llama-3-8b", "gpt-1.7b")
"""Models to choose from, the largest first."""
LENGTH = 4096
"""Tokens per sequence of models without learned positions. Guess."""
SEQUENCES = 8
"""Sequences per step and device, rounded up to a power of two in all. Guess."""


@dataclass(frozen=True, slots=True)
class NicGuess:
    """NICs that nodes with a device usually have: type, rate and number."""

    type: str
    bandwidth: str
    count: int


def nic(device: DeviceSpec, count: int) -> NicGuess:
    """NICs of a node: for devices on a board with NVLink or xGMI one InfiniBand NIC each, as fast as their PCIe; for others one
    Ethernet NIC.
    """
    if not catalog.device_facts(device.name).intra_node.usual:
        return NicGuess("ethernet", ethernet(device), 1)
    slot = device.host_bandwidth * PCIE_EFFICIENCY * BITS_PER_BYTE / GIGA
    return NicGuess("infiniband", f"{next((rate for rate in RATES if rate <= slot), RATES[-1])} Gbit/s", count)


def ethernet(device: DeviceSpec) -> str:
    """Rate of the Ethernet NIC of a node with a device: lower where the device is a gaming card, so that the node is a PC."""
    return PC_ETHERNET if _is_of_pc(device) else ETHERNET


def count(device: DeviceSpec) -> str:
    """Devices of a node: one gaming card of a PC, eight others."""
    return "1" if _is_of_pc(device) else "8"


def _is_of_pc(device: DeviceSpec) -> bool:
    """Whether a device is a gaming card."""
    return any(name.startswith(PC_PRODUCTS) for name in catalog.device_facts(device.name).product.names)


def nics(device: str, count: int) -> Nics:
    """The same for a device of the catalogue, as a fact of an import."""
    found = nic(catalog.device(device), count)
    return Nics("the guess of holmes-sim init", found.type, parse(found.bandwidth, "rate"), found.count)


def link_types(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """NIC types of a link that two clusters can use, Ethernet first: types that both have, RDMA only between devices of one
    vendor.
    """
    vendors = {catalog.device(cluster["node"]["devices"]["type"]).vendor for cluster in (one, other)}
    there = {nic["type"] for nic in other["node"].get("nics", [])}
    shared = [nic["type"] for nic in one["node"].get("nics", []) if nic["type"] in there]
    usable = [kind for kind in shared if len(vendors) == 1 or not catalog.nic_facts(kind).rdma]
    return sorted(usable, key=lambda kind: kind != "ethernet")


def no_common_type(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Why two clusters can use no link (`link_types`), as a clause."""
    vendors = sorted({catalog.device(cluster["node"]["devices"]["type"]).vendor for cluster in (one, other)})
    types = [{nic["type"] for nic in cluster["node"].get("nics", [])} for cluster in (one, other)]
    if len(vendors) > 1 and types[0] & types[1]:
        return (
            f"{' and '.join(sorted(types[0] & types[1]))} joins no devices of {' and '.join(vendors)}, whose libraries differ"
        )
    return "they have no NIC type in common"


def link_rate(clusters: Iterable[Mapping[str, Any]], kind: str) -> str:
    """Rate of a link between clusters: that of the slowest of their NICs of this type, `ETHERNET` at most. A guess."""
    rates = [str(nic["bandwidth"]) for cluster in clusters for nic in cluster["node"]["nics"] if nic["type"] == kind]
    return min([ETHERNET, *rates], key=lambda rate: parse(rate, "rate"))


def length(model: Model) -> int:
    """Tokens per sequence for a model: as many positions as it has learned, `LENGTH` at most."""
    return min(model.learned_positions or LENGTH, LENGTH)


def workload(clusters: Mapping[str, Any], joined: bool) -> dict[str, Any]:
    """A model that fits the devices (those of the largest cluster, unless links join them), batch, length and precision."""
    fleet = [(catalog.device(one["node"]["devices"]["type"]), one) for one in clusters.values()]
    memories = [spec.memory * one["nodes"] * one["node"]["devices"]["count"] for spec, one in fleet]
    room = SHARE * (sum(memories) if joined else max(memories))
    model = next((one for one in MODELS if catalog.model(one).parameters * STATE_BYTES <= room), SMALL)
    shape = catalog.model(model) if isinstance(model, str) else ModelFacts(**model).model()
    devices = sum(one["nodes"] * one["node"]["devices"]["count"] for one in clusters.values())
    batch = 1 << (SEQUENCES * devices - 1).bit_length()
    precision = "bf16" if all("bf16" in dict(spec.peak) for spec, _ in fleet) else "fp16"
    return {"model": model, "global_batch_size": batch, "seq_len": length(shape), "precision": precision}
