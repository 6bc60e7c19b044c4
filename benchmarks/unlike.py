"""What a tp of their own for devices with little memory is worth: `python -m benchmarks unlike [FLEETS]`.

Drawn fleets have one or two servers of data-centre GPUs and a few machines of older or gaming GPUs. Each is planned freely, and
with every tp pinned. Twenty-four fleets, unless given, take three minutes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from planner import strategies
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request, Wishes
from sim.errors import Infeasible
from sim.formats.documents import parse
from sim.formats.topology import from_document
from sim.plan.plan import Plan

LARGE = ("a100-sxm4-80gb", "h100-sxm5-80gb", "a100-sxm4-40gb")
SMALL = ("v100-sxm2-16gb", "rtx-4090", "rtx-3090", "v100-sxm2-32gb", "rtx-3080-ti")
MODELS = ("llama-2-7b", "llama-2-13b", "llama-3-8b")
ONE_TP = tuple(Wishes(tp=tp) for tp in (1, 2, 4, 8))
FLEETS = 24


class Compared(NamedTuple):
    """A fleet in words, its plan, and the fastest of its plans with some pins, such as one tp (`compared`)."""

    fleet: str
    free: Plan
    alike: Plan

    @property
    def saved(self) -> float:
        """The share of the step that the plan without pins saves."""
        return 1 - step(self.free) / step(self.alike)


def drawn(seed: int, models: Sequence[str] = MODELS) -> Request:
    """The request of a seed, for one of some models."""
    rng = random.Random(seed)
    ethernet = {"type": "ethernet", "bandwidth": f"{rng.choice([25, 100, 200])} Gbit/s", "count": 1}
    fast = {"type": "infiniband", "bandwidth": "200 Gbit/s", "count": 4}
    clusters = {
        "large": _cluster(rng.choice([1, 1, 2]), rng.choice(LARGE), 8, "nvlink3", fast, ethernet),
        "small": _cluster(rng.choice([1, 2, 3, 4]), rng.choice(SMALL), rng.choice([4, 8]), "pcie4", ethernet),
    }
    trunk = {"between": ["large", "small"], "type": "ethernet", "bandwidth": "400 Gbit/s", "latency": "20 us"}
    workload = {
        "model": rng.choice(models), "global_batch_size": rng.choice([32, 64, 128]),
        "seq_len": rng.choice([2048, 4096]), "precision": "fp16",
    }  # fmt: skip
    document = {"format": "holmes-sim/topology/1", "name": f"seed-{seed}", "clusters": clusters, "links": [trunk]}
    topology = from_document(parse(f"seed-{seed}", json.dumps(document | {"workload": workload})))
    assert topology.workload is not None
    return Request(topology, topology.workload)


def _cluster(nodes: int, device: str, count: int, inside: str, *nics: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": nodes, "node": {"devices": {"type": device, "count": count}, "intra_node": inside, "nics": list(nics)}}


def compared(request: Request, pins: Sequence[Wishes] = ONE_TP) -> Compared | None:
    """The plan of a request, and the fastest plan with any of some pins; None where no plan has them."""
    alike = []
    for wishes in pins:
        with suppress(Infeasible):
            alike.append(_plan(replace(request, wishes=wishes)))
    model, batch = request.workload.model.name, request.workload.global_batch_size
    words = [f"{one.nodes} x {one.node.count} {one.node.device.name}" for one in request.clusters()]
    fleet = f"{', '.join(words)}; {model}, {batch} x {request.workload.seq_len}"
    return Compared(fleet, _plan(request), min(alike, key=step)) if alike else None


def _plan(request: Request) -> Plan:
    return strategies.get("certified").plan(request, PlanningContext(request))


def table(found: Iterator[Compared | None]) -> Iterator[str]:
    """A Markdown table of the fleets whose plan has unlike tp, and how many fleets there are."""
    yield "| fleet | one tp | unlike tp | saved |"
    yield "| --- | --- | --- | --- |"
    every = []
    for one in filter(None, found):
        every.append(one)
        if one.free.config.stage_tp:
            alike, unlike = (f"{step(plan):.4g} s (tp {plan.config.tp_text})" for plan in (one.alike, one.free))
            yield f"| {one.fleet} | {alike} | {unlike} | {one.saved:.1%} |"
    many = sum(bool(one.free.config.stage_tp) for one in every)
    yield f"{many} of {len(every)} plans have unlike tp; {sum(one.saved < 0 for one in every)} are slower than with one tp."


def show(numbers: list[str]) -> None:
    """Print the table, each row when it is known."""
    fleets = int(numbers[0]) if numbers else FLEETS
    for line in table(compared(drawn(seed)) for seed in range(fleets)):
        print(line, flush=True)
