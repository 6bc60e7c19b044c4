"""Lower bounds on the step of every plan of unlike pipelines (`sim.plan.pipelines`), whatever each of them looks like.

work        A slot of tp x cp devices takes t[k] seconds for one microbatch on a layer, on the embedding (k = 1) or on the head
            (k = 2). In T seconds the devices of a fleet complete at most T times the sum over devices of the largest
            w[k] size / (tp cp t[k]) units of weight, for all weights w >= 0, over all tp, cp and microbatch sizes: each
            device takes those that suit it. All pipelines together pass the batch through every layer and both ends, so T is
            at least the weight of that over this rate (`planner.bounds.unlike_work`: dual variables of a linear programme).
gradients   At least two replicas hold each layer. Where they are on several nodes, a ring over n of them sends at least
            (n - 1) / n >= 1/2 of the payload out of each of at least two nodes. Where they are all on one node, the layer is
            computed there only. If the nodes with two devices and more need W seconds for the work of all layers, then within
            T seconds at most T / W of the layers are of the second kind, so with b bytes for a node from all layers and NICs
            of B bytes a second in all,

                2 b (1 - T / W) <= B T,   and T >= 1 / (1 / W + B / (2 b))

            Pipelines may divide routed experts: then all ranks that hold an expert may be on one node, which computes all of
            its tokens, while those of dense weights of its layer are on several. Of nodes with two devices and more that need E
            seconds for the tokens of all experts at their peak, T / E of the experts are of the second kind at most. With d
            bytes of gradients and weights of dense layers and e of experts, T >= (d + e) / (B + d / W + e / E).
leaving     A node shares the layers that it computes with others, and sends gradients, or sends messages where its layers end
            (`planner.bounds.leaving_nodes`).
replicas    Each replica passes whole microbatches of one size through whole layers, and its stages fill and drain; one that
            memory does not hold recomputes layers (`planner.bounds.pipeline_columns`).
memory      Each replica keeps all weights and gradients; where two of them do not fit, there is no such plan.

The space: `SPACE`. The optimizer is left out, and so is that each of these takes time beside the others: each makes plans
slower."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from planner.bounds.leaving_nodes import NodeRates, Traffic, least_seconds
from planner.bounds.pipeline_columns import columns_seconds
from planner.bounds.pipeline_modes import Modes, configuration, modes
from planner.costs.context import PlanningContext
from planner.request import Request
from sim.hardware.cluster import Cluster
from sim.hardware.link_spec import LinkSpec
from sim.kernels import memory
from sim.kernels.payloads import activation_bytes, gradient_bytes, parameter_bytes
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.parallel_config import GRADIENT_BYTES
from sim.units import Bytes, BytesPerSecond, Seconds

SPACE = (
    "two pipelines or more on any devices, each with stages of its own: layers, tp and cp (powers of two, together inside a "
    "node; cp 1 where devices are measured), ep (divisors of the number of experts) and etp (tp or 1), microbatch size (powers "
    "of two and divisors of the batch) and recomputation of whole layers; any schedule without virtual stages, ZeRO 1, "
    "sequence parallelism"
)
"""The plans that `least_step` is a bound on, in one line."""
COUNTED = {
    "work": "compute", "gradients": "gradients between nodes", "leaving": "messages and gradients between nodes",
    "replicas": "compute, fill and drain",
}  # fmt: skip
"""What each term of the bound counts, in words (`parts_of_bound`)."""
FEWEST = 2
"""Replicas that a plan of unlike pipelines has at least (`sim.plan.pipelines.PipelinesPlan`)."""


def work_seconds(request: Request, devices: Mapping[str, int], every: Modes) -> Seconds:
    """Least seconds in which so many devices of each cluster pass the batch through all layers and both ends.

    Weights that are tried: the least seconds of a layer and of both ends on each cluster, in the mode that suits each of them,
    which is exact where devices are alike; and without the ends, which fast modes may pass in nearly no time."""
    batch = request.workload.global_batch_size
    numbers = (batch * request.workload.model.layers, batch, batch)
    used = [
        (many, tuple(map(min, zip(*(one.of_sample for one in every[name]), strict=True))))
        for name, many in devices.items()
        if many and every[name]
    ]
    tried = [weights for _, (layer, *ends) in used for weights in ((layer, *ends), (layer, 0.0, 0.0))]
    return max((_weighed(weights, numbers, used) for weights in tried), default=math.inf)


def _weighed(weights: Sequence[float], numbers: Sequence[float], classes: Iterable[tuple[int, Sequence[float]]]) -> Seconds:
    """The total weight over the most weight that devices complete in a second; classes: devices, and the least device-seconds
    of a sample on a layer, on the embedding and on the head."""
    total = sum(weight * number for weight, number in zip(weights, numbers, strict=True))
    most = 0.0
    for many, least in classes:
        most += many * max(w / max(t, 1e-15) for w, t in zip(weights, least, strict=True) if w)
    return total / most


def node_rate(cluster: Cluster, *further: str) -> BytesPerSecond:
    """Most bytes a second of a gradient collective that leave a node over all its NICs; `further`: other operations."""
    operations = ("reduce_scatter", "all_gather", *further)
    return sum(
        nic.count * nic.bandwidth * max(nic.reached(operation, one) for operation in operations for one in _protocols(nic.spec))
        for nic in cluster.node.nics
    )


def _protocols(spec: LinkSpec) -> tuple[str, ...]:
    return tuple(one.name for one in spec.protocols) or ("",)


def payload(request: Request, kinds: Sequence[str] = GRADIENT_KINDS) -> Bytes:
    """Bytes of the gradients and the weights of all layers, which every node of a ring sends (n - 1) / n times; kinds: "dp" for
    dense weights, "edp" for routed experts."""
    config = replace(configuration(request, 1, 1, 1), zero_stage=1, dp=FEWEST, num_microbatches=(1,) * FEWEST)
    if request.workload.adapter is None and request.workload.model.experts:
        config = replace(config, other_edp=0)
    stage = request.workload, config, request.workload.model.layers, False, False
    return sum(nbytes for kind, nbytes in (*gradient_bytes(*stage), *parameter_bytes(*stage)) if kind in kinds)


def kept_bytes(request: Request) -> Bytes:
    """Least bytes of the weights and gradients that a replica keeps; beside adapters, frozen weights as they are stored."""
    config, whole = configuration(request, 1, 1, 1), (request.workload.model.layers, True, True)
    trained = memory.stage_parameters(request.workload, config, *whole)
    each = request.workload.bytes_per_value + GRADIENT_BYTES[config.gradient_precision]
    return trained * each + memory.frozen_bytes(request.workload, config, *whole)


def room(request: Request, devices: Mapping[str, int]) -> Bytes:
    """Memory of so many devices of each cluster."""
    return sum(devices[one.name] * request.topology.room(one.node.device) for one in request.clusters() if one.name in devices)


def leaving_seconds(request: Request, every: Modes) -> Seconds:
    """Least seconds in which messages or gradients leave the nodes (`planner.bounds.leaving_nodes`)."""
    workload = request.workload
    nodes = [
        NodeRates(
            cluster.nodes,
            cluster.node.count / min(one.of_sample[0] for one in every[cluster.name]),
            node_rate(cluster, "send_recv"),
            cluster.node.count >= FEWEST,
        )
        for cluster in request.clusters()
        if every[cluster.name]
    ]
    layers, message = workload.model.layers, activation_bytes(workload, configuration(request, 1, 1, 1))
    shared = payload(request, ("dp",)) / layers  # all ranks with an expert may be on one node
    return least_seconds(nodes, Traffic(layers, workload.global_batch_size, message, shared))


def expert_seconds(request: Request, devices: Mapping[str, int]) -> Seconds:
    """Least seconds in which so many devices of each cluster compute the tokens of all experts, at their peak: each token
    passes each weight of its experts once forward and twice backward, with a product and a sum."""
    workload, precision = request.workload, request.workload.precision
    model, config = workload.model, configuration(request, 1, 1, 1)
    chosen = sum(number * one.model.expert_linear_parameters for number, one in workload.alike(model.layers))
    flops = 6 * workload.tokens * config.load * chosen * model.experts_per_token / model.experts
    peak = sum(devices[one.name] * one.node.device.peak_of(precision) for one in request.clusters() if one.name in devices)
    return flops / peak if peak else math.inf


def parts_of_bound(context: PlanningContext, every: Modes | None = None) -> dict[str, Seconds]:
    """The terms of `least_step` by name, in seconds; the largest is the bound. That of the replicas is no less than the others,
    because it is looked for above them."""
    request = context.request
    devices = {cluster.name: cluster.devices for cluster in request.clusters()}
    if FEWEST * kept_bytes(request) > room(request, devices):
        return {"memory": math.inf}
    every = every or modes(context)
    several = {cluster.name: cluster.devices if cluster.node.count > 1 else 0 for cluster in request.clusters()}
    inside = work_seconds(request, several, every)
    sent = sum(cluster.nodes * node_rate(cluster) for cluster in request.clusters())
    crossing = crossing_seconds(request, inside, sent, several)
    work = work_seconds(request, devices, every)
    found = {"work": work, "gradients": crossing, "leaving": leaving_seconds(request, every)}
    known = max(found.values())
    return {**found, "replicas": columns_seconds(request, every, known) if math.isfinite(known) else known}


def crossing_seconds(request: Request, inside: Seconds, sent: BytesPerSecond, several: Mapping[str, int]) -> Seconds:
    """Least seconds in which gradients leave nodes that send so many bytes a second, or layers and experts stay on nodes with
    several devices, which need `inside` seconds for the work of all layers."""
    dense, routed = (payload(request, (kind,)) for kind in GRADIENT_KINDS)
    rate = sent + dense / inside + (routed / expert_seconds(request, several) if routed else 0.0)
    return (dense + routed) / rate if rate else math.inf


def bound_and_counted(context: PlanningContext, every: Modes | None = None) -> tuple[Seconds, str]:
    """`least_step`, and what it counts, in words (`COUNTED`); empty where memory has no room for two replicas."""
    parts = parts_of_bound(context, every)
    largest = max(parts, key=lambda name: parts[name])  # the first one, where several are equal
    return parts[largest], "" if math.isinf(parts[largest]) else COUNTED[largest]


def least_step(context: PlanningContext, every: Modes | None = None) -> Seconds:
    """A lower bound in seconds on the step of every plan of `SPACE`; infinite where memory has no room for two replicas.

    The model must have equal layers, as plans of unlike pipelines that are searched."""
    return bound_and_counted(context, every)[0]
