"""Enumerates the space of plans that a certificate covers: every shape, and every pipeline of whole stages.

This is independent of the planner's search: only the class `Shape` is taken from `planner.space.shapes`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from planner.request import Request
from planner.space.shape import Shape
from sim.hardware.cluster import Cluster
from sim.hardware.stack import software_facts
from sim.plan import schedules
from sim.plan.offloading import ACTIVATIONS
from sim.plan.parallel_config import BLOCK

Stages = tuple[tuple[str, int], ...]
"""(cluster, layers) of every pipeline rank."""

RECOMPUTE = ("none", "full", BLOCK)
SCHEDULES = ("1f1b", "interleaved", "zb-h1", "zb-h2")
ZERO_STAGES = (1, 2, 3)
"""ZeRO stages; those above 1 only with several replicas."""
GATHERS_BEHIND = (1, 2)
"""ZeRO stages under which the weights may also be gathered after the optimizer."""
CHUNKS_ALWAYS = (2, 4, 8)
FILLING = 4
"""Number of stages up to which dp is chosen so that they fill a cluster, where it does not divide the batch."""
MOST_CHUNKS = 12
"""vpp is one of `CHUNKS_ALWAYS`, or a divisor of the model's layers from 2 to this."""


def slots(cluster: Cluster, tp: int) -> int:
    """Number of tensor-parallel groups on a cluster, each inside one node."""
    return cluster.nodes * (cluster.node.count // tp)


def shapes(request: Request) -> Iterator[Shape]:
    """All shapes: all degrees but pp, under every schedule, ZeRO stage and overlap that the pins allow."""
    batch = request.workload.global_batch_size
    for tp, dp, size in itertools.chain(degrees(request), unequal_degrees(request)):
        wishes, facts = request.wishes, software_facts(request.topology.stack, request.topology.fleet, tp)
        searched = RECOMPUTE[:2] if ACTIVATIONS in wishes.offloaded else RECOMPUTE
        for recompute in [wishes.recompute] if wishes.recompute else searched:
            for schedule, vpp in _schedules(request):
                for zero_stage, overlap in _sharing(request, dp):
                    if batch % (dp * size) and (vpp > 1 or zero_stage > 1):
                        continue
                    tied = request.workload.model.tied_embeddings and dp > 1 and zero_stage >= 1 and not facts["all_reduces"]
                    kept = {"tied_shards": tied, "offload": wishes.offloaded}
                    shape = Shape(tp, dp, size, recompute, schedule, vpp, zero_stage, **kept, **facts)
                    yield shape if overlap else replace(shape, overlap_param_gather=False)


def every_shape(request: Request) -> Iterator[Shape]:
    """All shapes, those whose tp differs between device types too."""
    return itertools.chain(shapes(request), unlike_shapes(request))


def unlike_shapes(request: Request) -> Iterator[Shape]:
    """Shapes with one tp on the device types with more memory, and a larger one on those below the largest fall of memory.

    None with a pinned tp, or where dp does not divide the batch."""
    memories = sorted({cluster.node.device.memory for cluster in request.clusters()}, reverse=True)
    falls = {larger / smaller: larger for larger, smaller in reversed(list(itertools.pairwise(memories)))}
    if request.wishes.tp or not falls:
        return
    ample = [cluster.name for cluster in request.clusters() if cluster.node.device.memory >= falls[max(falls)]]
    every = [shape for shape in shapes(request) if shape.divides(request.workload)]
    for shape, low in itertools.product(every, sorted({shape.tp for shape in every})):
        if low < shape.tp:
            yield replace(shape, cluster_tp=tuple((name, low) for name in ample))


def degrees(request: Request) -> Iterator[tuple[int, int, int]]:
    """(tp, dp, microbatch size) that divide model and batch, and of which a stage fits on some cluster."""
    wishes, model, batch = request.wishes, request.workload.model, request.workload.global_batch_size
    clusters = list(request.clusters())
    widest = max((cluster.node.count for cluster in clusters), default=0)
    for tp in [wishes.tp] if wishes.tp else [2**i for i in range(widest.bit_length())]:
        if tp > widest or any(size % tp for size in (model.heads, model.ffn_hidden, model.vocab)):
            continue
        room = max(slots(cluster, tp) for cluster in clusters)
        for dp in _divisors(batch, wishes.dp, room):
            for size in _divisors(batch // dp, wishes.microbatch_size, batch):
                yield tp, dp, size


def unequal_degrees(request: Request) -> Iterator[tuple[int, int, int]]:
    """(tp, dp, microbatch size) where dp does not divide the batch: some replicas have one microbatch more than others.

    Of all dp of which 1 to `FILLING` stages fill a cluster, the least with the same number of sequences on the fullest replica
    at microbatch size 1 that fills half nodes or divides one. Only sizes with which the fullest replica has fewer sequences
    than with any smaller dp that divides the batch."""
    wishes, batch = request.wishes, request.workload.global_batch_size
    for tp in dict.fromkeys(
        tp for tp, _, _ in degrees(replace(request, wishes=replace(wishes, dp=None, microbatch_size=None)))
    ):
        clusters = [cluster for cluster in request.clusters() if cluster.node.count >= tp]
        most_of_all, chosen = max(slots(cluster, tp) for cluster in clusters), set[int]()
        for cluster, stages in itertools.product(clusters, range(1, FILLING + 1)):
            most, width = slots(cluster, tp) // stages, cluster.node.count // tp
            alike = [dp for dp in range(2, most + 1) if most < batch and math.ceil(batch / dp) == math.ceil(batch / most)]
            chosen |= set([dp for dp in alike if dp % max(width // 2, 1) == 0 or width % dp == 0][:1])
        for dp in [wishes.dp] if wishes.dp else sorted(chosen):
            smaller = [one for one in range(1, dp + 1) if batch % one == 0]
            for size in range(1, batch + 1) if batch % dp and dp <= min(most_of_all, batch) else ():
                total = batch / size
                if wishes.microbatch_size not in (None, size) or total % 1 or total < dp:
                    continue
                if wishes.dp or math.ceil(total / dp) * size < batch / max(smaller):
                    yield tp, dp, size


def pipelines(request: Request, shape: Shape) -> Iterator[Stages]:
    """Every pipeline of whole stages with consecutive stages of each cluster: all orders, sizes and lengths."""
    clusters = list(request.clusters())
    held = ((c.name, slots(c, shape.tp_on(c.name)) // shape.slots) for c in clusters)
    room = tuple((name, stages) for name, stages in held if stages)
    microbatches, layers = shape.microbatches(request.workload), request.workload.model.layers
    for clusters_of_ranks in _clusters_of_ranks(room, layers // shape.vpp):
        pp = len(clusters_of_ranks)
        if pp == 1 and shape.vpp > 1:
            continue  # virtual stages need a pipeline
        if shape.cluster_tp and len(set(map(shape.tp_on, clusters_of_ranks))) == 1:
            continue  # a pipeline of a shape with one tp
        ends = [shape.tp_on(clusters_of_ranks[end]) for end in (0, -1)]
        if request.workload.model.tied_embeddings and shape.dp > 1 and shape.zero_stage and ends[0] != ends[1]:
            continue  # both ends need equal shards of the embedding's gradient
        if request.wishes.pp not in (None, pp) or (schedules.get(shape.schedule).CHUNKED and microbatches % pp):
            continue
        for counts in _splits(layers, pp, shape.vpp):
            yield tuple(zip(clusters_of_ranks, counts, strict=True))


def _clusters_of_ranks(room: tuple[tuple[str, int], ...], most: int) -> Iterator[tuple[str, ...]]:
    """Clusters of the pipeline ranks of every pipeline with at most `most` pipeline ranks."""
    for size in range(1, len(room) + 1):
        for order in itertools.permutations(room, size):
            for counts in itertools.product(*(range(1, min(capacity, most) + 1) for _, capacity in order)):
                if sum(counts) <= most:
                    yield tuple(name for (name, _), count in zip(order, counts, strict=True) for _ in range(count))


def _splits(layers: int, pp: int, least: int) -> Iterator[tuple[int, ...]]:
    """Every split of the layers over pp pipeline ranks with at least `least` layers each."""
    spare = layers - pp * (least - 1)
    for cuts in itertools.combinations(range(1, spare), pp - 1):
        yield tuple(b - a + least - 1 for a, b in itertools.pairwise((0, *cuts, spare)))


def _divisors(number: int, wished: int | None, most: int) -> list[int]:
    """Divisors of a number up to `most`; only the pinned one if there is a pin."""
    return [one for one in range(1, min(number, most) + 1) if number % one == 0 and wished in (None, one)]


def _schedules(request: Request) -> Iterator[tuple[str, int]]:
    """(schedule, vpp) that the pins allow."""
    wishes, layers = request.wishes, request.workload.model.layers
    divisors = [vpp for vpp in range(2, MOST_CHUNKS + 1) if layers % vpp == 0]
    for name in [wishes.schedule] if wishes.schedule else SCHEDULES:
        chunks = sorted({*CHUNKS_ALWAYS, *divisors}) if schedules.get(name).CHUNKED else [1]
        for vpp in chunks:
            if wishes.vpp in (None, vpp) and vpp <= layers:
                yield name, vpp


def _sharing(request: Request, dp: int) -> Iterator[tuple[int, bool]]:
    """(ZeRO stage, whether weights are gathered before the next forwards)."""
    wished, allows = request.wishes.zero_stage, request.limits.allows
    alone = [stage for stage in (1, 2, 3) if allows("zero_stage", stage)][:1]  # a single replica shards nothing
    for zero_stage in [wished] if wished is not None else ZERO_STAGES if dp > 1 else alone:
        yield zero_stage, True
        if dp > 1 and zero_stage in GATHERS_BEHIND:
            yield zero_stage, False
