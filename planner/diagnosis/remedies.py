"""Why no plan fits, and the smallest change that would cure it; each change was asked before it is told.

Changes come in the order of what they cost: one pinned dimension given another value, the nearest first; a cp pinned that is
not searched; all pins taken away; another global batch size. These cost nothing but time. Then machines: the fewest more
nodes of one cluster, or, where no number of nodes helps, the least more memory of its devices. A change cures where
`planner.search.fitting` finds a plan with it, and what that finds `planner.strategies.certified` does not fail to find.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.request import Request, Wishes
from planner.search.fitting import fitting, nearest
from planner.space.shapes import LEAST_TOKENS, searched, slots
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.units import GIBI, size_text

ORDER = (
    "schedule", "recompute", "zero_stage", "zero_shard_size", "microbatch_size", "vpp", "pp", "tp", "dp", "cp", "ep",
)  # fmt: skip
"""Pinned dimensions, those first whose change disturbs least (a guess)."""
MOST_NODES = 4096
"""More nodes of a cluster than anybody would add."""
MOST_MEMORY = 128
"""More GiB of a device than its successors bring (a guess from those of the catalogue)."""


@dataclass(frozen=True, slots=True)
class Cure:
    """A change in words, as they follow `by`, and the request with it."""

    words: str
    request: Request


def why_none(request: Request) -> str:
    """Which demand fails and by how much, in the layout that comes nearest. Raises Infeasible where no shape divides."""
    model, wishes = request.workload.model, request.wishes
    if wishes.pp and wishes.pp * (wishes.vpp or 1) > model.layers:
        wished = f"pp {wishes.pp}" + (f" x vpp {wishes.vpp}" if wishes.vpp else "")
        return f"{wished} needs a layer for each stage; {model.name} has {model.layers}"
    clusters = list(request.clusters())
    longest = max(sum(slots(cluster, shape.tp) // shape.slots for cluster in clusters) for shape in searched(request))
    if longest < (wishes.pp or 1):
        return f"pp {wishes.pp or 1} does not fit {request.topology.name}: its devices hold at most {longest} stages"
    short = nearest(request)
    if short is None or short.nbytes <= 0:
        return (
            f"no layout fits {str(wishes) or 'the workload'}: a pipeline needs a layer for each of its pp x vpp stages, and "
            f"interleaved stages a multiple of pp microbatches"
        )
    shape, device = short.shape, short.pipeline[short.stage].node.device
    more = "".join(f", {name} {getattr(shape, name)}" for name in ("cp", "ep") if getattr(shape, name) > 1)
    return (
        f"memory: {model.name} does not fit {request.topology.name}: {size_text(short.nbytes)} too much on stage "
        f"{short.stage} of the nearest layout (tp {shape.tp}, pp {len(short.pipeline)}, dp {shape.dp}{more}, microbatch size "
        f"{shape.microbatch_size}, recompute {shape.recompute}), {short.layers[short.stage]} layers on device {device.name} "
        f"with {size_text(device.memory)}"
    )


@functools.lru_cache(maxsize=64)
def cures(request: Request) -> tuple[Cure, ...]:
    """The smallest change of what is asked, and the smallest of the machines, that give certified a plan; none of them may.

    A request is thought about once for all strategies.
    """
    asked = next((cure for cure in _of_the_question(request) if fitting(cure.request) is not None), None)
    nodes = _nodes(request)
    found = asked, nodes if nodes is not None else _memory(request)
    return tuple(cure for cure in found if cure is not None)


def told(request: Request) -> str:
    """The cures in words that follow `by`; empty where none is known."""
    return ", or by ".join(cure.words for cure in cures(request))


def _of_the_question(request: Request) -> Iterator[Cure]:
    """Changes of what is asked, the smallest first; whether they cure is not known yet."""
    wishes = request.wishes
    pinned = {name: getattr(wishes, name) for name in ORDER if getattr(wishes, name) is not None}
    for name, value in pinned.items():
        free = _wished(request, name, None, f"leaving {_flag(name)} to the planner")
        if name == "cp" or fitting(free.request) is not None:  # else no value of it cures; not all of cp's are searched
            for other in _others(request, name):
                yield _wished(request, name, other, f"{_flag(name)} {other} instead of {value}")
            yield free
    for other in _others(request, "cp") if "cp" not in pinned else ():
        if request.workload.seq_len < other * LEAST_TOKENS:  # else it is searched
            yield _wished(request, "cp", other, f"--cp {other}")
    if len(pinned) > 1:
        yield Cure(f"leaving {wishes} to the planner", replace(request, wishes=Wishes()))
    batch, unit = request.workload.global_batch_size, (wishes.dp or 1) * (wishes.microbatch_size or 1)
    for other in (batch // unit * unit, -(-batch // unit) * unit):
        if other not in (0, batch):
            workload = replace(request.workload, global_batch_size=other)
            yield Cure(f"--global-batch-size {other} instead of {batch}", replace(request, workload=workload))


def _wished(request: Request, name: str, value: Any, words: str) -> Cure:
    return Cure(words, replace(request, wishes=replace(request.wishes, **{name: value})))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _others(request: Request, name: str) -> list[Any]:
    """Other values of a dimension, the nearest to the pinned one first."""
    model, batch, pinned = request.workload.model, request.workload.global_batch_size, getattr(request.wishes, name)
    most = max((slots(cluster, 1) for cluster in request.clusters()), default=0)
    widest = max((cluster.node.count for cluster in request.clusters()), default=0)
    powers = [2**i for i in range(most.bit_length())]
    others: dict[str, list[Any]] = {
        "schedule": ["1f1b", *schedules.names()],
        "recompute": ["none", "selective", "full"],
        "zero_stage": [0, 1, 2, 3],
        "zero_shard_size": [],
        "microbatch_size": [size for size in range(1, batch + 1) if batch % size == 0],
        "vpp": list(range(2, model.layers + 1)),
        "pp": list(range(1, model.layers + 1)),
        "tp": [tp for tp in powers if tp <= widest],
        "dp": [dp for dp in range(1, min(most, batch) + 1) if batch % dp == 0],
        "cp": powers,
        "ep": [ep for ep in range(1, min(model.experts, most) + 1) if model.experts % ep == 0],
    }
    found = [other for other in others[name] if other != pinned]
    return found if name in ("schedule", "recompute") else sorted(found, key=lambda other: abs(other - (pinned or 1)))


def _nodes(request: Request) -> Cure | None:
    """The fewest more nodes of one cluster."""
    number, cluster = _fewest(request, _with_nodes, MOST_NODES)
    words = f"{number} more {'nodes' if number > 1 else 'node'} in cluster {cluster.name}"
    return Cure(words, _with_nodes(request, cluster, number)) if number else None


def _with_nodes(request: Request, cluster: Cluster, number: int) -> Request:
    return _with_cluster(request, replace(cluster, nodes=cluster.nodes + number))


def _memory(request: Request) -> Cure | None:
    """The least more memory of the devices of one cluster, in whole GiB."""
    number, cluster = _fewest(request, _with_memory, MOST_MEMORY)
    words = f"{number} GiB more memory on each {cluster.node.device.name} of cluster {cluster.name}"
    return Cure(words, _with_memory(request, cluster, number)) if number else None


def _with_memory(request: Request, cluster: Cluster, number: int) -> Request:
    device = replace(cluster.node.device, memory=cluster.node.device.memory + number * GIBI)
    return _with_cluster(request, replace(cluster, node=replace(cluster.node, device=device)))


def _fewest(request: Request, changed: Callable[[Request, Cluster, int], Request], most: int) -> tuple[int, Cluster]:
    """Of which cluster the least number up to `most` cures, the first of equals; 0 where none does."""
    best = 0, request.topology.fleet.clusters[0]
    for cluster in request.clusters():
        number = _least(functools.partial(changed, request, cluster), best[0] - 1 if best[0] else most)
        best = (number, cluster) if number else best
    return best


def _with_cluster(request: Request, changed: Cluster) -> Request:
    """The request on a fleet in which one cluster is another."""
    topology = request.topology
    clusters = tuple(changed if cluster.name == changed.name else cluster for cluster in topology.fleet.clusters)
    return replace(request, topology=replace(topology, fleet=replace(topology.fleet, clusters=clusters)))


def _least(changed: Callable[[int], Request], most: int) -> int:
    """The least number up to `most` with which a request has a plan, by doubling and halving; 0 where none has."""
    if most < 1 or fitting(changed(most)) is None:
        return 0
    without, number = 0, 1
    while number < most and fitting(changed(number)) is None:
        without, number = number, 2 * number
    number = min(number, most)
    while number - without > 1:
        middle = (number + without) // 2
        without, number = (without, middle) if fitting(changed(middle)) is not None else (middle, number)
    return number
