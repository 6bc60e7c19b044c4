"""Reasons why no plan fits, and remedies: the smallest changes with which a plan exists, each checked before it is reported.

Changes are tried in the order of their cost. First come changes of the request, which need no new hardware: no launch target;
no head-room of memory; a smaller batch where a device streams its layers; another value of one pinned dimension, the nearest
first; pinning a cp that is not searched; no pins at all; another global batch size; an optimizer with less state. Where no pin
is to blame, optimizer state or activations in host memory are one more, with the step of a plan that has them there. Then come
changes of the machines: the fewest additional nodes of one cluster or, where no number of nodes helps, the least additional
memory of its devices. Last, where no pin is to blame, comes the training of an adapter alone, which trains other weights than
were asked for. A change is a remedy where `planner.search.fitting` finds a plan with it; then `planner.strategies.certified`
finds one, too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.diagnosis import host_memory
from planner.limits import NO_LIMITS
from planner.request import WORDS, Request, Wishes
from planner.search.along_a_v import is_asked
from planner.search.fitting import fitting, nearest
from planner.space.runnable import refuses_model
from planner.space.sequences_and_experts import LEAST_TOKENS
from planner.space.shapes import searched, slots
from planner.target import ANY
from sim.hardware.cluster import Cluster
from sim.hardware.device_spec import DeviceSpec
from sim.plan import schedules
from sim.plan.offloading import PARAMETERS, SINGLE_PEER
from sim.units import GIBI, size_text, time_text
from sim.workload.adapter import Adapter

ORDER = (
    "schedule", "recompute", "zero_stage", "zero_shard_size", "microbatch_size", "vpp", "pp", "tp", "dp", "cp", "ep", "etp",
    "offload",
)  # fmt: skip
"""Pinned dimensions in the order in which their change is tried, the least disruptive first (a guess)."""
SMALLER_STATE = ("adam-bf16-moments", "adam-8bit", "adam-bf16")
"""Optimizers with less state than Adam, the one that changes least first (`sim.workload.optimizers`)."""
ADAPTER = Adapter(16)
"""Adapter that is tried: rank 16 on all linear layers. Guess; of other ranks up to some hundred, memory hardly differs."""
MOST_NODES = 4096
"""Maximum number of nodes added to a cluster (a guess). A larger number takes longer."""
MOST_MEMORY = 128
"""Maximum number of GiB added to a device (a guess from the catalogue: newer devices add less). A larger number takes
longer."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change as text, and the changed request."""

    words: str
    request: Request


def why_none(request: Request) -> str:
    """The requirement that fails and by how much, in the layout that exceeds memory least, as text. Raises Infeasible for no
    shape."""
    model, wishes, target = request.workload.model, request.wishes, request.target
    if target is not None:
        other = fitting(replace(request, target=None))
        if other is not None:
            return f"{target.can_not} run a layout that fits, for example because of {target.fault(other)}"
    if text := host_memory.too_small(request):
        return text
    if wishes.pp and wishes.pp * (wishes.vpp or 1) > model.layers:
        wished = f"pp {wishes.pp}" + (f" x vpp {wishes.vpp}" if wishes.vpp else "")
        return f"{wished} needs a layer for each stage; {model.name} has {model.layers}"
    if wishes.pp == 1 and (wishes.vpp or (2 if wishes.schedule and schedules.get(wishes.schedule).CHUNKED else 1)) > 1:
        asked = f"vpp {wishes.vpp}" if wishes.vpp else f"schedule {wishes.schedule}"
        return f"{asked} with pp 1: virtual stages need a pipeline, pp 2 or more"
    clusters = list(request.clusters())
    longest = max(sum(slots(cluster, shape.tp) // shape.slots for cluster in clusters) for shape in searched(request))
    if longest < (wishes.pp or 1):
        return f"pp {wishes.pp or 1} does not fit {request.topology.name}: its devices hold at most {longest} stages"
    short = nearest(request)
    if request.limits != NO_LIMITS and (short is None or short.nbytes <= 0):
        return f"no layout that fits has {'; '.join(request.limits.words())}"
    if short is None or short.nbytes <= 0:
        return (
            f"no layout fits {str(wishes) or 'the workload'}: a pipeline needs a layer for each of its pp x vpp stages, and "
            f"interleaved stages a multiple of pp microbatches"
        )
    shape, device = short.shape, short.pipeline[short.stage].node.device
    more = "".join(f", {name} {degree}" for name, degree in shape.further_degrees.items())
    return (
        f"memory: {model.name} does not fit {request.topology.name}: stage {short.stage} of the nearest layout "
        f"(tp {shape.tp}, pp {len(short.pipeline)}, dp {shape.dp}{more}, microbatch size {shape.microbatch_size}, "
        f"recompute {shape.recompute}), "
        f"with {short.layers[short.stage]} layers, exceeds the {_room(request, device)} of device {device.name} by "
        f"{size_text(short.nbytes)}"
    )


def _offloaded(request: Request) -> Remedy | None:
    """What hosts could keep, with the step of a plan that fits: the search may find a faster one."""
    found = host_memory.helpful(request)
    if found is None:
        return None
    name, step = found
    return _pinned(request, "offload", name, f"--offload {name}, with a step of {time_text(step)} or less")


def _adapted(request: Request) -> Remedy | None:
    """LoRA in place of training all weights, or QLoRA, with frozen weights in 4 bits, where only that fits."""
    if request.workload.adapter is not None or request.wishes.offload == PARAMETERS:
        return None
    keys = f"--set workload.adapter.r={ADAPTER.r}"
    for base, options, name in (("", keys, "LoRA"), ("nf4", f"{keys} --set workload.adapter.base_precision=nf4", "QLoRA")):
        try:
            workload = replace(request.workload, adapter=replace(ADAPTER, base_precision=base))
        except ValueError:  # not modelled, such as with experts
            return None
        words = f"{options}, for fine-tuning only: it trains adapters ({name}), not the weights of the model"
        remedy = Remedy(words, replace(request, workload=workload))
        if not refuses_model(remedy.request) and fitting(remedy.request) is not None:
            return remedy
    return None


def _room(request: Request, device: DeviceSpec) -> str:
    """The memory of a device that plans may use, in words."""
    share = request.topology.memory_headroom
    if not share:
        return size_text(device.memory)
    return f"{size_text(request.topology.room(device))} ({size_text(device.memory)} less a head-room of {share:.3g})"


@functools.lru_cache(maxsize=64)
def remedies(request: Request) -> tuple[Remedy, ...]:
    """The smallest change of the request and the smallest change of the machines with which a plan exists, if any.

    With them, a plan exists that can run on the target that was asked for. Cached: all strategies share the result.
    """
    if request.unfit_target is not None:
        request = replace(request, target=request.unfit_target, unfit_target=None)
    by_request = next((remedy for remedy in _request_changes(request) if fitting(remedy.request) is not None), None)
    pinned = by_request is not None and by_request.request.wishes != request.wishes
    refused = refuses_model(request) or is_asked(request)  # whose layouts take too long to list for many sizes of a fleet
    machines = None if refused else _nodes(request) or _memory(request)
    found = by_request, None if pinned or refused else _offloaded(request), machines, None if pinned else _adapted(request)
    return tuple(remedy for remedy in found if remedy is not None)


def in_words(request: Request) -> str:
    """The remedies as text; empty where none is known."""
    return ", or ".join(remedy.words for remedy in remedies(request))


def _request_changes(request: Request) -> Iterator[Remedy]:
    """Changes of the request to check, the smallest first."""
    wishes = request.wishes
    if request.target is not None:
        words = "--for none" if request.target.name == ANY else f"leaving out --for {request.target.name}"
        yield Remedy(words, replace(request, target=None))
    if request.topology.memory_headroom:
        topology = replace(request.topology, memory_headroom=0.0)
        yield Remedy("--set memory_headroom=0, without head-room", replace(request, topology=topology))
    yield from _smaller_batches(request)
    order = sorted(ORDER, key=lambda name: name == "schedule") if is_asked(request) else ORDER  # it was asked for by its name
    pinned = {name: wishes.given()[name] for name in order if name in wishes.given()}
    for name, value in pinned.items():
        free = _pinned(request, name, None, f"leaving {_flag(name)} to the planner")
        if name == "cp" or fitting(free.request) is not None:  # else no value of it helps; for cp, not all are searched
            for other in _others(request, name):
                yield _pinned(request, name, other, f"{_flag(name)} {other} instead of {value}")
            yield free
    for other in _others(request, "cp") if "cp" not in pinned else ():
        if request.workload.seq_len < other * LEAST_TOKENS:  # else it is searched
            yield _pinned(request, "cp", other, f"--cp {other}")
    if len(pinned) > 1:
        yield Remedy(f"leaving {wishes} to the planner", replace(request, wishes=Wishes()))
    batch, unit = request.workload.global_batch_size, (wishes.dp or 1) * (wishes.microbatch_size or 1)
    for other in (batch // unit * unit, -(-batch // unit) * unit):
        if other not in (0, batch):
            workload = replace(request.workload, global_batch_size=other)
            yield Remedy(f"--global-batch-size {other} instead of {batch}", replace(request, workload=workload))
    for name in SMALLER_STATE if request.workload.optimizer == "adam" else ():
        yield Remedy(f"--set workload.optimizer={name}", replace(request, workload=replace(request.workload, optimizer=name)))


def _pinned(request: Request, name: str, value: Any, words: str) -> Remedy:
    return Remedy(words, replace(request, wishes=request.wishes.with_pin(name, value)))


def _smaller_batches(request: Request) -> Iterator[Remedy]:
    """The largest smaller batch for a device that streams its layers, whose memory has the activations of a whole step."""
    batch, unit = request.workload.global_batch_size, request.wishes.microbatch_size or 1

    def smaller(less: int) -> Request:
        return replace(request, workload=replace(request.workload, global_batch_size=batch - less * unit))

    if request.wishes.offload == PARAMETERS and (less := _least(smaller, batch // unit - 1)):
        yield Remedy(f"--global-batch-size {batch - less * unit} instead of {batch}", smaller(less))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _others(request: Request, name: str) -> list[Any]:
    """Other values of a dimension, the nearest to the pinned one (else to 1) first; none of those that "parameters" pins."""
    if request.wishes.offload == PARAMETERS and name in SINGLE_PEER:
        return []
    model, batch, pinned = request.workload.model, request.workload.global_batch_size, getattr(request.wishes, name)
    most = max((slots(cluster, 1) for cluster in request.clusters()), default=0)
    widest = max((cluster.node.count for cluster in request.clusters()), default=0)
    powers = [2**i for i in range(most.bit_length())]
    others: dict[str, list[Any]] = {
        "schedule": ["1f1b", *filter(schedules.is_planned, schedules.names())],
        "offload": ["none", *host_memory.choices(request)],
        "recompute": ["none", "selective", "full"],
        "zero_stage": [0, 1, 2, 3],
        "zero_shard_size": [],
        "microbatch_size": [size for size in range(1, batch + 1) if batch % size == 0],
        "vpp": list(range(2, model.layers + 1)),
        "pp": list(range(1, model.layers + 1)),
        "tp": [tp for tp in powers if tp <= widest],
        "dp": [dp for dp in range(1, min(most, batch) + 1) if batch % dp == 0],
        "cp": powers,
        "etp": [etp for etp in powers if etp <= widest],
        "ep": [ep for ep in range(1, min(model.experts, most) + 1) if model.experts % ep == 0],
    }
    found = [other for other in others[name] if other != pinned]
    return found if name in WORDS else sorted(found, key=lambda other: abs(other - (pinned or 1)))


def _nodes(request: Request) -> Remedy | None:
    """The remedy with the fewest additional nodes of one cluster; whole NVLink domains of nodes where it has these."""
    number, cluster = _fewest(request, _with_nodes, MOST_NODES)
    more = number * cluster.node.hosts
    words = f"{more} more {'nodes' if more > 1 else 'node'} in cluster {cluster.name}"
    if not cluster.hosts:  # else their names would be missing
        words += f" (--set clusters.{cluster.name}.nodes={cluster.num_hosts + more})"
    return Remedy(words, _with_nodes(request, cluster, number)) if number else None


def _with_nodes(request: Request, cluster: Cluster, number: int) -> Request:
    return _with_cluster(request, replace(cluster, nodes=cluster.nodes + number))


def _memory(request: Request) -> Remedy | None:
    """The remedy with the least additional memory on the devices of one cluster, in whole GiB."""
    number, cluster = _fewest(request, _with_memory, MOST_MEMORY)
    words = f"{number} GiB more memory on each {cluster.node.device.name} of cluster {cluster.name}"
    return Remedy(words, _with_memory(request, cluster, number)) if number else None


def _with_memory(request: Request, cluster: Cluster, number: int) -> Request:
    device = replace(cluster.node.device, memory=cluster.node.device.memory + number * GIBI)
    return _with_cluster(request, replace(cluster, node=replace(cluster.node, device=device)))


def _fewest(request: Request, changed: Callable[[Request, Cluster, int], Request], most: int) -> tuple[int, Cluster]:
    """(least number up to `most` with which a plan exists, its cluster), the first of equal ones; number 0 if there is none."""
    best = 0, request.topology.fleet.clusters[0]
    for cluster in request.clusters():
        number = _least(functools.partial(changed, request, cluster), best[0] - 1 if best[0] else most)
        best = (number, cluster) if number else best
    return best


def _with_cluster(request: Request, changed: Cluster) -> Request:
    """The request on a fleet with the cluster of the same name replaced."""
    topology = request.topology
    clusters = tuple(changed if cluster.name == changed.name else cluster for cluster in topology.fleet.clusters)
    return replace(request, topology=replace(topology, fleet=replace(topology.fleet, clusters=clusters)))


def _least(changed: Callable[[int], Request], most: int) -> int:
    """The least number up to `most` with which a request has a plan, by doubling and binary search; 0 where none has."""
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
