"""Software stack of a run: the share of the isolated rates of devices and links that a training step reaches.

The catalogue holds rates measured in isolation: matrix products in a loop, nccl-tests, STREAM. A training step reaches a share
of them that depends on the software. `gemm`, `attention`, `elementwise` and `communication` are the shares for matrix products
(clocks under load, caches), attention cores (age of the kernel), passes over memory (degree of fusion) and links (library,
congestion). `launch` and `step` are host seconds per forward of a layer and per step. `blocking` is not fitted: it says how the
run was started. Plans are made with `DEFAULT`; `sim/catalog/stacks` holds fitted ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.hardware.cluster import Cluster, Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.link_spec import LinkSpec
from sim.units import Seconds

NUMBERS = ("gemm", "attention", "elementwise", "communication", "launch", "step")
"""Numbers that can be fitted; a stack fits four of them at most."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Shares of isolated rates, and host seconds per forward of a layer and per step.

    `blocking`: the run uses CUDA_LAUNCH_BLOCKING=1, so the host waits for each kernel before it launches the next (CUDA Toolkit
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
        """The device at the rates that a step with this software reaches."""
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
        """The link at the rates that a step with this software reaches; no scaled efficiency exceeds both 1 and its isolated
        value."""
        shares = tuple((name, min(share * self.communication, max(share, 1.0))) for name, share in isolated.efficiency)
        return replace(isolated, efficiency=shares)


DEFAULT = Stack(gemm=0.95, attention=0.72, elementwise=0.90, communication=0.92, launch=1.0e-3, step=5e-3)
"""The stack of all plans and simulations, fitted once to the runs of validation/ with equal weight for each source.
docs/model.md says how well such a fit predicts a source that it has not seen."""


def applied(stack: Stack, fleet: Fleet) -> Fleet:
    """The fleet under another stack; `fleet` has the rates of the default stack."""
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
