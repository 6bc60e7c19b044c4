"""The software that a run used: how much of what device and links can do it gets out of them.

The catalogue holds what was measured in isolation: products in a loop, nccl-tests, STREAM. A training step reaches a share of
that, which depends on the software. A stack is a few such numbers, each with a physical meaning: `gemm`, `attention`,
`elementwise` and `communication` are shares of the isolated rates of matrix products (clocks under load, caches), of attention
cores (the age of the kernel), of passes over memory (how much is fused) and of links (library, congestion); `launch` and `step`
are times of the host, for a layer's forward and once a step. `blocking` is no number but how the run was started. `DEFAULT` is
what plans are made with; `sim/catalog/stacks` holds fitted ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.hardware.cluster import Cluster, Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.link_spec import LinkSpec
from sim.units import Seconds

NUMBERS = ("gemm", "attention", "elementwise", "communication", "launch", "step")
"""What may be fitted; a stack fits four of them at most."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Shares of isolated rates, and host seconds of a layer's forward and of a step.

    `blocking`: run with CUDA_LAUNCH_BLOCKING=1, so the host waits for each kernel before it launches the next (CUDA Toolkit
    Documentation, environment variables).
    """

    gemm: float = 1.0
    attention: float = 1.0
    elementwise: float = 1.0
    communication: float = 1.0
    launch: Seconds = 0.0
    step: Seconds = 0.0
    blocking: bool = False

    def device(self, isolated: DeviceSpec) -> DeviceSpec:
        """A device as a step with this software sees it."""
        curve = isolated.gemm
        return replace(
            isolated,
            gemm=replace(
                curve,
                compute_efficiency=curve.compute_efficiency * self.gemm,
                memory_efficiency=curve.memory_efficiency * self.gemm,
            ),
            attention_forward=isolated.attention_forward * self.attention,
            attention_backward=isolated.attention_backward * self.attention,
            elementwise_efficiency=isolated.elementwise_efficiency * self.elementwise,
            launch=self.launch,
            step=self.step,
            blocking=self.blocking,
        )

    def link(self, isolated: LinkSpec) -> LinkSpec:
        """A link as a step with this software sees it; nothing is faster than the wire."""
        shares = tuple((name, min(share * self.communication, max(share, 1.0))) for name, share in isolated.efficiency)
        return replace(isolated, efficiency=shares)


DEFAULT = Stack(gemm=0.95, attention=0.72, elementwise=0.90, communication=0.92, launch=1.0e-3, step=5e-3)
"""What plans and simulations reckon with: one set for everything, fitted once to the runs of validation/, each source of equal
weight. docs/model.md tells how such a set predicts a source that it was not fitted to."""


def applied(stack: Stack, fleet: Fleet) -> Fleet:
    """A fleet, read with the default stack, under another one."""
    if stack == DEFAULT:
        return fleet
    change = Stack(
        stack.gemm / DEFAULT.gemm,
        stack.attention / DEFAULT.attention,
        stack.elementwise / DEFAULT.elementwise,
        stack.communication / DEFAULT.communication,
        stack.launch,
        stack.step,
        stack.blocking,
    )
    return replace(fleet, clusters=tuple(_cluster(change, cluster) for cluster in fleet.clusters))


def _cluster(change: Stack, cluster: Cluster) -> Cluster:
    node = cluster.node
    nics = tuple(replace(nic, spec=change.link(nic.spec)) for nic in node.nics)
    return replace(
        cluster, node=replace(node, device=change.device(node.device), intra_node=change.link(node.intra_node), nics=nics)
    )
