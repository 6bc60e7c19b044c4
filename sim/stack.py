"""The software that a run used: how much of what device and links can do it gets out of them.

A stack is a few factors on the constants of the catalogue, each with a physical meaning: `gemm` and `attention` on the rate of
matrix products and attention cores (kernels of another age, clocks under load), `elementwise` on that of passes over memory (how
much is fused), `communication` on that of links (library, congestion), and two times of the host: `launch`, a layer's forward, and
`step`, what is done once a step. The default stack has all factors 1: the constants as they stand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.cluster import LAYER_LAUNCH, STEP_HOST, Cluster, DeviceSpec, LinkSpec
from sim.plan import Plan
from sim.units import Seconds

NUMBERS = ("gemm", "attention", "elementwise", "communication", "launch", "step")
"""What may be fitted; a stack fits four of them at most."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Factors on rates (1: as the catalogue says), and host seconds of a layer's forward and of a step."""

    gemm: float = 1.0
    attention: float = 1.0
    elementwise: float = 1.0
    communication: float = 1.0
    launch: Seconds = LAYER_LAUNCH
    step: Seconds = STEP_HOST


DEFAULT = Stack()


def applied(stack: Stack, plan: Plan) -> Plan:
    """The plan on the same machines under a software stack. Links stay at or below their wire rate."""
    if stack == DEFAULT:
        return plan
    clusters = tuple(_cluster(stack, cluster) for cluster in plan.fleet.clusters)
    fleet = replace(plan.fleet, clusters=clusters)
    return replace(plan, topology=replace(plan.topology, fleet=fleet))


def _cluster(stack: Stack, cluster: Cluster) -> Cluster:
    node = cluster.node
    nics = tuple(replace(nic, spec=_link(stack, nic.spec)) for nic in node.nics)
    node = replace(node, device=_device(stack, node.device), intra_node=_link(stack, node.intra_node), nics=nics)
    return replace(cluster, node=node)


def _device(stack: Stack, device: DeviceSpec) -> DeviceSpec:
    curve = device.gemm
    return replace(
        device,
        gemm=replace(
            curve,
            compute_efficiency=curve.compute_efficiency * stack.gemm,
            memory_efficiency=curve.memory_efficiency * stack.gemm,
        ),
        attention_forward=device.attention_forward * stack.attention,
        attention_backward=device.attention_backward * stack.attention,
        elementwise_efficiency=device.elementwise_efficiency * stack.elementwise,
        launch=stack.launch,
        step=stack.step,
    )


def _link(stack: Stack, link: LinkSpec) -> LinkSpec:
    shares = tuple((name, min(share * stack.communication, max(share, 1.0))) for name, share in link.efficiency)
    return replace(link, efficiency=shares)
