"""Files of a placement of experts: that of holmes-sim, and those that inference frameworks read.

Megatron-Core and vLLM read no such file. Megatron-Core puts expert e on rank e / (experts / ep) of an ep group
(megatron/core/transformer/moe/moe_layer.py, local_expert_indices); a checkpoint whose experts, and rows of the router, are in
the order of `ranks` has the placement. vLLM moves experts by its own counts while it runs, and begins with one of two rules
(vllm/config/parallel.py, EPLBConfig and ExpertPlacementStrategy).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from holmes_sim.expert_placement import ExpertsPlaced, PlacedLayer
from sim.errors import OptionError
from sim.formats import planfile

FORMAT = "holmes-sim/expert-placement/1"


def holmes(found: ExpertsPlaced) -> dict[str, Any]:
    """The placement with its plan (by digest), counts, costs and, with replicas, the shares of copies by source."""
    row, plan = found.chosen, found.plan
    return {
        "format": FORMAT,
        "plan": planfile.digest(plan),
        "topology": plan.topology.name,
        "model": plan.workload.model.name,
        "origin": found.counts.origin,
        "ep": plan.config.ep,
        "dispatcher": plan.config.dispatcher,
        "routing": {"imbalance": row.plan.config.imbalance, "exchange": row.plan.config.exchange},
    } | row.facts() | {"layers": [_layer(one) for one in row.layers]}  # fmt: skip


def _layer(found: PlacedLayer) -> dict[str, Any]:
    """Experts of each rank of every ep group; with replicas, for each block of ep groups, what share of the tokens of each node
    for an expert each of its copies takes. Nodes are given by their ranks in the ep group."""
    own: dict[str, Any] = {"layer": found.problem.layer, "ranks": [list(held) for held in found.ranks]}
    copies = list(found.placements[0].copies())
    several = {expert for expert, _ in copies if sum(expert == other for other, _ in copies) > 1}
    shares = []
    for block, placement in zip(found.problem.blocks, found.placements, strict=True):
        if placement.shares is not None:
            rows = [
                {"expert": expert, "rank": rank, "shares": [round(one, 6) for one in of.tolist()]}
                for (expert, rank), of in zip(copies, placement.shares, strict=True)
                if expert in several
            ]
            groups, nodes = ([list(ranks) for ranks in each] for each in (block.groups, block.problem.nodes))
            shares.append({"groups": groups, "nodes": nodes, "copies": rows})
    return own | ({"shares": shares} if shares else {})


def sglang(found: ExpertsPlaced) -> dict[str, Any]:
    """What --init-expert-location reads, beside --ep-num-redundant-experts: the expert of every slot, for all layers of the
    model (sgl-project/sglang 6270b014, python/sglang/srt/eplb/expert_location.py, init_by_mapping). Layers without experts get
    the experts in order, which nothing reads."""
    row = found.chosen
    slots = found.plan.workload.model.experts + row.replicas
    placed = {one.problem.layer: [expert for held in one.ranks for expert in held] for one in row.layers}
    trivial = [slot % found.plan.workload.model.experts for slot in range(slots)]
    return {"physical_to_logical_map": [placed.get(layer, trivial) for layer in range(found.plan.workload.model.layers)]}


def vllm_ascend(found: ExpertsPlaced) -> dict[str, Any]:
    """What eplb_config.expert_map_path of vLLM Ascend reads: the experts of every device, for the layers with experts in order
    (vllm-project/vllm-ascend 0011ce33, vllm_ascend/eplb/adaptor/vllm_adaptor.py, _export_tensor_to_file)."""
    layers = []
    for number, one in enumerate(found.chosen.layers):
        devices = [{"device_id": rank, "device_expert": list(held)} for rank, held in enumerate(one.ranks)]
        layers.append({"layer_id": number, "device_count": len(devices), "device_list": devices})
    return {"moe_layer_count": len(layers), "layer_list": layers}


WRITERS: dict[str, Callable[[ExpertsPlaced], dict[str, Any]]] = {
    "holmes": holmes,
    "sglang": sglang,
    "vllm-ascend": vllm_ascend,
}
"""Name of a reader -> what it reads."""


def check(target: str, etp: int) -> None:
    """Raises OptionError where the target is unknown, or reads no experts that several ranks divide."""
    if target not in WRITERS:
        why = "; vLLM and Megatron-Core read no placement (docs/experts.md)" if target in ("vllm", "megatron") else ""
        raise OptionError(f"--to {target!r} is unknown; known: {', '.join(WRITERS)}{why}")
    if target != "holmes" and etp > 1:
        raise OptionError(f"--to {target}: its ranks hold whole experts, and the plan divides each among {etp}; use --etp 1")


def text(target: str, found: ExpertsPlaced) -> str:
    """JSON text of the chosen placement for a reader; each layer has a line of its own."""
    data = WRITERS[target](found)
    lines = []
    for key, value in data.items():
        rows = isinstance(value, list) and key in ("layers", "layer_list", "physical_to_logical_map")
        body = "[\n" + ",\n".join(f"    {json.dumps(one)}" for one in value) + "\n  ]" if rows else json.dumps(value)
        lines.append(f"  {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
