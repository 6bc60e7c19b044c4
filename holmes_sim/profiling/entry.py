"""What was measured as files: a catalogue entry, a profile, an interconnect, and a topology of the device that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holmes_sim.profiling.found import Device, Found, Joined
from sim.formats import catalog, topology
from sim.formats.documents import to_yaml
from sim.formats.profile import PROFILE_FORMAT
from sim.units import Seconds, bytes_per_second_text, flops_text, rate_text, size_text, time_text
from sim.workload.model import Model
from sim.workload.workload import Workload

if TYPE_CHECKING:
    from holmes_sim.profiling.layers import Measured

MICROBATCHES = 4
"""Microbatches of the step that the topology asks for."""
UNMEASURED = "pcie4"
"""Interconnect of a device whose links were not measured; a single device does not use it."""
INTERFERENCE = 0.02
"""Guess, as the catalogue has it for a NIC: 2 % (calculon-ai/calculon systems/a100_80g.json)."""


def files(found: Found) -> dict[str, str]:
    """File name -> text."""
    written: dict[str, str] = {}
    if (device := found.device) is not None:
        written[f"{device.name}.yaml"] = to_yaml(device_facts(device))
        if device.layers:
            written[f"{device.name}-profile.yaml"] = to_yaml(profile_facts(device))
        written[f"{device.name}-topology.yaml"] = to_yaml(topology_facts(device, found.joined))
    if (joined := found.joined) is not None:
        written[f"{joined.name}.yaml"] = to_yaml(nic_facts(joined) if joined.across else link_facts(joined))
    return written


def device_facts(found: Device) -> dict[str, Any]:
    """The device as an entry of the catalogue. Watts and price are not measured, so they are left out."""
    here, top = found.machine, found.ceilings
    curve, told = top.gemm, f"measured {found.date}: {here.label}, {found.software}"
    forward, backward = top.attention
    gemm: dict[str, Any] = {
        "launch": time_text(curve.launch),
        "compute_efficiency": _share(curve.compute_efficiency),
        "memory_efficiency": _share(curve.memory_efficiency),
        "wave_exponent": curve.wave_exponent,
        "tile": list(curve.tile),
    }
    return {
        "name": found.name,
        "vendor": here.vendor,
        "compute_units": here.compute_units,
        "peak": {top.precision: flops_text(top.peak)},
        "memory": size_text(here.memory),
        "memory_bandwidth": bytes_per_second_text(top.memory_bandwidth),
        "host_bandwidth": bytes_per_second_text(top.host_bandwidth),
        "gemm": gemm,
        "attention": {"forward_efficiency": _share(forward), "backward_efficiency": _share(backward)},
        "elementwise_efficiency": _share(top.elementwise),
        "sources": {
            "compute_units": f"{told}; {'multiprocessors' if here.is_gpu else 'threads of torch'}",
            "peak": f"{told}; the fastest of {len(top.products)} products, not a nameplate; spread {top.spread:.1%}",
            "memory": f"{told}; what {'the device' if here.is_gpu else 'the host'} has",
            "memory_bandwidth": f"{told}; the faster of a copy and a sum of large tensors",
            "host_bandwidth": f"{told}; " + ("pinned memory to the device" if here.is_gpu else "a copy: a CPU is its own host"),
            "gemm": f"{told}; fit of {len(top.products)} products, mean error {top.error:.0%}",
            "attention": f"{told}; causal, 8 heads of 64, 1024 tokens",
            "elementwise_efficiency": f"{told}; the middle one of a sum, GELU and LayerNorm",
        },
    }


def profile_facts(found: Device) -> dict[str, Any]:
    """The layer seconds as a profile."""
    own = {} if found.name in catalog.names("devices") else {"in_place": [found.name]}
    models = {measured.model: measured.seq_len for measured in found.layers}
    return {
        "format": PROFILE_FORMAT,
        "source": {
            "title": "holmes-sim profile",
            "date": found.date,
            "device": found.machine.label,
            "software": found.software,
        },
        "notes": [
            "Medians; spread is half the interquartile range of a layer's forward and backward over their median, the larger.",
            "A layer is the mean of up to four between embedding and head; the update is of the whole model's part on a rank.",
            "Ranks of tp > 1 were measured alone: their collectives are apart.",
        ],
        "precision": found.ceilings.precision,
        "collectives": "apart",
        **own,
        "models": {model.name: _shape(model, seq_len) for model, seq_len in models.items()},
        "layer_profiles": [_row(found.name, measured) for measured in found.layers],
    }


def _shape(model: Model, seq_len: int) -> dict[str, Any]:
    shape: dict[str, Any] = topology.workload_facts(Workload(model, 1, seq_len))["model"]
    return shape | {"seq_len": seq_len, "updated_parameters": model.parameters}


def _row(device: str, found: Measured) -> dict[str, Any]:
    model, tp = found.model, found.tp
    update = found.update.median * (model.parameters / tp) / found.updated
    row: dict[str, Any] = {"model": model.name, "gpu": device, "tp": tp, "micro_batch": found.microbatch_size}
    for part in ("layer", "embedding", "head"):
        forward, backward = getattr(found, part)
        row |= {f"{part}_forward_s": _seconds(forward.median), f"{part}_backward_s": _seconds(backward.median)}
    return row | {"layer_update_s": _seconds(update), "spread": round(max(spread.share for spread in found.layer), 4)}


def link_facts(found: Joined) -> dict[str, Any]:
    """An interconnect as an entry of the catalogue, or in place in a topology."""
    link, told = found.link, _told(found)
    unmeasured = sorted(set(link.efficiency) - set(link.rates))
    guessed = f"; {', '.join(unmeasured)} guess: as the least of the others" if unmeasured else ""
    alike = (
        "overhead and a step's latency alike, for nothing tells them apart" if link.latency else "0, for no payload tells it"
    )
    shared = "" if link.told_apart else f"; guess: {alike}"
    return {
        "name": found.name,
        "bandwidth": bytes_per_second_text(link.bandwidth),
        "latency": time_text(link.latency),
        "overhead": time_text(link.overhead),
        "efficiency": {name: _share(share) for name, share in link.efficiency.items()},
        "interference": INTERFERENCE,
        "sources": {
            "bandwidth": f"{told}; the rate of the fastest operation's large payloads, not a nameplate",
            "latency": f"{told}{shared}",
            "overhead": f"{told}{shared}",
            "efficiency": f"{told}; mean error of the fit {link.error:.0%}{guessed}",
            "interference": "guess: as the catalogue's NICs",
        },
    }


def nic_facts(found: Joined) -> dict[str, Any]:
    """What was measured between hosts, for the `nics` of a topology: a node's rate, at which all that it drives arrives."""
    link = found.link
    return {
        "nics": [{"type": "which it is", "bandwidth": rate_text(link.bandwidth), "efficiency": 1.0}],
        "measured": {
            "rates": {name: bytes_per_second_text(rate) for name, rate in link.rates.items()},
            "latency": time_text(link.latency),
            "overhead": time_text(link.overhead),
            "error": round(link.error, 4),
            "source": _told(found),
        },
    }


def _told(found: Joined) -> str:
    devices = dict.fromkeys(name for one in found.measured for name in one.devices)
    return f"measured: {', '.join(one.source for one in found.measured)}; {found.ranks} x {', '.join(devices)}"


def topology_facts(found: Device, joined: Joined | None) -> dict[str, Any]:
    """A node of the device alone, or of as many as its links joined, with the first model for a workload."""
    inside = joined if joined is not None and not joined.across else None
    node = {
        "devices": {"type": device_facts(found), "count": inside.ranks if inside else 1},
        "intra_node": link_facts(inside) if inside else UNMEASURED,
    }
    written: dict[str, Any] = {
        "format": "holmes-sim/topology/1",
        "name": found.name,
        "source": f"holmes-sim profile, {found.date}",
        "clusters": {"here": {"nodes": 1, "node": node}},
    }
    if found.layers:
        first = found.layers[0]
        largest = max(measured.microbatch_size for measured in found.layers)
        work = Workload(first.model, MICROBATCHES * largest, first.seq_len, found.ceilings.precision)
        written |= {"profile": f"{found.name}-profile.yaml", "workload": topology.workload_facts(work)}
    return written


def _share(value: float) -> float:
    return round(min(value, 1.0), 3) or 0.001


def _seconds(value: Seconds) -> float:
    """To five digits."""
    return float(f"{value:.5g}")
