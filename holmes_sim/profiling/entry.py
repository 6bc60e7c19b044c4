"""Measurements as files: catalogue entry, profile, interconnect, and a topology of the device that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holmes_sim.profiling.results import DeviceProfile, LinkProfile, ProfileResult
from sim.formats import catalog, topology
from sim.formats.documents import to_yaml
from sim.formats.profile import PROFILE_FORMAT
from sim.hardware.device_spec import AttentionRates
from sim.units import Seconds, bytes_per_second_text, flops_text, rate_text, size_text, time_text
from sim.workload.model import Model
from sim.workload.workload import Workload

if TYPE_CHECKING:
    from holmes_sim.profiling.layers import LayerTimings

MICROBATCHES = 4
"""Number of microbatches in the workload of the topology. A guess."""
UNMEASURED = "pcie4"
"""Interconnect of a device whose links were not measured. A single device does not use it."""
INTERFERENCE = 0.02
"""Guess, as the catalogue has it for a NIC: 2 % (calculon-ai/calculon systems/a100_80g.json)."""


def files(found: ProfileResult) -> dict[str, str]:
    """File name -> contents."""
    written: dict[str, str] = {}
    if (device := found.device) is not None:
        written[f"{device.name}.yaml"] = to_yaml(device_facts(device))
        if device.layers:
            written[f"{device.name}-profile.yaml"] = to_yaml(profile_facts(device))
        written[f"{device.name}-topology.yaml"] = to_yaml(topology_facts(device, found.link_profile))
    if (joined := found.link_profile) is not None:
        written[f"{joined.name}.yaml"] = to_yaml(nic_facts(joined) if joined.across else link_facts(joined))
    return written


def device_facts(found: DeviceProfile) -> dict[str, Any]:
    """The device as a catalogue entry. Power and price are not measured and are left out."""
    here, top, core = found.machine, found.ceilings, found.ceilings.core
    curve, source = top.gemm, f"measured {found.date}: {here.label}, {found.software}"
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
        "attention": _attention_facts(top.attention),
        "elementwise_efficiency": _share(top.elementwise),
        "sources": {
            "compute_units": f"{source}; {'multiprocessors' if here.is_gpu else 'threads of torch'}",
            "peak": f"{source}; the fastest of {len(top.products)} products, not the nominal rate; spread {top.spread:.1%}",
            "memory": f"{source}; memory of {'the device' if here.is_gpu else 'the host'}",
            "memory_bandwidth": f"{source}; the faster of a copy and a sum of large tensors",
            "host_bandwidth": f"{source}; "
            + ("pinned memory to the device" if here.is_gpu else "a copy: a CPU is its own host"),
            "gemm": f"{source}; fit of {len(top.products)} products, mean error {top.error:.0%}",
            "attention": f"{source}; causal, {core.heads} heads of {core.head_dim}, {core.seq_len} tokens and fewer",
            "elementwise_efficiency": f"{source}; the median of a sum, GELU and LayerNorm",
        },
    }


def _attention_facts(rates: AttentionRates) -> dict[str, Any]:
    back = rates.half_length if rates.backward_half_length is None else rates.backward_half_length
    facts = {"forward_efficiency": _share(rates.forward), "backward_efficiency": _share(rates.backward)}
    return facts | {"half_length": round(rates.half_length), "backward_half_length": round(back)}


def profile_facts(found: DeviceProfile) -> dict[str, Any]:
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
            "Medians; spread: half the interquartile range over the median, the larger of a layer's forward and backward.",
            "A layer is the mean of up to four layers; the update covers the rank's part of the whole model.",
            "Ranks of tp > 1 were measured alone, without their collectives.",
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


def _row(device: str, found: LayerTimings) -> dict[str, Any]:
    model, tp = found.model, found.tp
    update = found.update.median * (model.parameters / tp) / found.updated
    row: dict[str, Any] = {"model": model.name, "gpu": device, "tp": tp, "micro_batch": found.microbatch_size}
    for part in ("layer", "embedding", "head"):
        forward, backward = getattr(found, part)
        row |= {f"{part}_forward_s": _seconds(forward.median), f"{part}_backward_s": _seconds(backward.median)}
    return row | {"layer_update_s": _seconds(update), "spread": round(max(spread.relative_spread for spread in found.layer), 4)}


def link_facts(found: LinkProfile) -> dict[str, Any]:
    """An interconnect as a catalogue entry, or for use inside a topology."""
    link, source = found.link, _source(found)
    unmeasured = sorted(set(link.efficiency) - set(link.rates))
    guessed = f"; {', '.join(unmeasured)} guess: the lowest of the others" if unmeasured else ""
    guess = (
        "overhead and latency of a step are set equal, because the measurements cannot separate them"
        if link.latency
        else "0, because the payloads do not determine it"
    )
    shared = "" if link.separable else f"; guess: {guess}"
    return {
        "name": found.name,
        "bandwidth": bytes_per_second_text(link.bandwidth),
        "latency": time_text(link.latency),
        "overhead": time_text(link.overhead),
        "efficiency": {name: _share(share) for name, share in link.efficiency.items()},
        "interference": INTERFERENCE,
        "sources": {
            "bandwidth": f"{source}; rate of the fastest operation for large payloads, not the nominal rate",
            "latency": f"{source}{shared}",
            "overhead": f"{source}{shared}",
            "efficiency": f"{source}; mean error of the fit {link.error:.0%}{guessed}",
            "interference": "guess: as for NICs in the catalogue",
        },
    }


def nic_facts(found: LinkProfile) -> dict[str, Any]:
    """A link between hosts, for `nics` of a topology: the rate of a node at which its NICs together transfer data."""
    link = found.link
    return {
        "nics": [{"type": "which it is", "bandwidth": rate_text(link.bandwidth), "efficiency": 1.0}],
        "measured": {
            "rates": {name: bytes_per_second_text(rate) for name, rate in link.rates.items()},
            "latency": time_text(link.latency),
            "overhead": time_text(link.overhead),
            "error": round(link.error, 4),
            "source": _source(found),
        },
    }


def _source(found: LinkProfile) -> str:
    devices = dict.fromkeys(name for one in found.measured for name in one.devices)
    return f"measured: {', '.join(one.source for one in found.measured)}; {found.ranks} x {', '.join(devices)}"


def topology_facts(found: DeviceProfile, joined: LinkProfile | None) -> dict[str, Any]:
    """A topology of one node with one device, or as many as the measured link joins. The first model is its workload."""
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
    """Seconds rounded to five significant digits."""
    return float(f"{value:.5g}")
