"""Seconds of the tasks of a step with attention and experts on two sets of ranks, from the kernels that price all other plans.

A set is as fast as its slowest device. Left out: the slowdown of compute by exchanges beside it, and unbalanced routing."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable

import numpy as np

from sim.disaggregation import shares
from sim.disaggregation.shares import Share
from sim.disaggregation.stage import DisaggregatedStage
from sim.disaggregation.tasks import Task, tasks
from sim.disaggregation.timetable import stream_ends, timetable
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.transport import common_transport
from sim.kernels import compute, launches
from sim.kernels.formulas import backward_seconds, forward_seconds, pass_seconds
from sim.network.alpha_beta import ProtocolCost, protocol_costs
from sim.network.paths import Capacities
from sim.network.protocols import protocols
from sim.network.routes import Devices, member, member_route
from sim.network.token_exchange import Numbers, TokenExchange, token_exchange
from sim.plan.parallel_config import GRADIENT_BYTES
from sim.units import Bytes, Seconds
from sim.workload.kernels import Kernel

Both = tuple[Seconds, Seconds]
"""(forward, backward) seconds."""


class TaskCosts:
    """Seconds of each task of a stage, and of the end of a step."""

    def __init__(self, stage: DisaggregatedStage):
        self.stage, self.config, self.fleet = stage, stage.config, stage.topology.fleet
        self.attention = tuple(dict.fromkeys(self.fleet.spec(device) for device in stage.attention))
        self.experts = tuple(dict.fromkeys(self.fleet.spec(device) for device in stage.experts))
        self._exchanges: dict[tuple[int, bool], Seconds] = {}
        self._computed: dict[tuple[str, int], Both] = {}
        self._sums: dict[tuple[Devices, ...], tuple[ProtocolCost, ...]] = {}

    def of(self, stage: DisaggregatedStage) -> TaskCosts:
        """The costs of a stage that differs in `rounds` (and the batch) and `kept` only; what is known is shared."""
        other = copy.copy(self)
        other.stage = stage
        return other

    def seconds(self, task: Task) -> Seconds:
        """Seconds of a task on idle links."""
        if task.kind in ("D", "C"):
            return self.exchange_seconds(self.stage.kept[task.layer - 1], task.kind == "C")
        number = task.layer if task.kind == "A" else self.stage.kept[task.layer - 1]
        key = task.kind, number
        if key not in self._computed:
            self._computed[key] = {"A": self._of_attention, "E": self._of_experts, "X": self._of_kept}[task.kind](number)
        return self._computed[key][task.backward]

    # compute

    def _of_attention(self, layer: int) -> Both:
        """The end of layer `layer` and the begin of the next one; with embedding and head at the ends of the model."""
        return _slowest(self._attention_on(device, layer) for device in self.attention)

    def _attention_on(self, device: DeviceSpec, layer: int) -> Both:
        stage, workload, config = self.stage, self.stage.workload, self.config
        begin, end = shares.attention_kernels(stage)
        before = self._kernels_on(device, begin, shares.dense_layer_parameters(stage))
        after = self._kernels_on(device, end, 0)
        slower = [max(1.0, host / (a + b)) for a, b, host in zip(before, after, _launches(device, 1.0), strict=True)]
        total = [0.0, 0.0]
        for part, present in ((before, layer < workload.model.layers), (after, layer > 0)):
            if present:
                total = [t + one * factor for t, one, factor in zip(total, part, slower, strict=True)]
        if config.recompute == "full":
            total[1] += total[0]
        if layer == 0:
            total = [t + one for t, one in zip(total, compute.embedding_seconds(device, workload, config), strict=True)]
        if layer == workload.model.layers:
            total = [t + one for t, one in zip(total, compute.head_seconds(device, workload, config), strict=True)]
        return total[0], total[1]

    def _of_experts(self, kept: int) -> Both:
        """The experts of a layer of which attention ranks keep `kept`, on expert ranks."""
        share = shares.expert_share(self.stage, kept)
        return _slowest(self._share_on(device, share) for device in self.experts)

    def _of_kept(self, kept: int) -> Both:
        """The kept experts of a layer, on attention ranks."""
        share = shares.kept_share(self.stage, kept)
        return _slowest(self._share_on(device, share) for device in self.attention)

    def _share_on(self, device: DeviceSpec, share: Share) -> Both:
        parameters = share.experts * shares.expert_size(self.stage)
        both = self._kernels_on(device, shares.expert_kernels(self.stage, share), parameters)
        layers = launches.EXPERT_LAUNCHES - 1.0 + launches.LAUNCHES_PER_EXPERT * share.experts
        forward, backward = (max(pair) for pair in zip(both, _launches(device, layers), strict=True))
        return forward, backward + (forward if self.config.recompute == "full" else 0.0)

    def _kernels_on(self, device: DeviceSpec, kernels: tuple[Kernel, ...], parameters: float) -> Both:
        """Seconds of kernels, whose `parameters` accumulate their gradients in the backward."""
        workload, config = self.stage.workload, self.config
        options = device, workload.precision, workload.bytes_per_value, config.attention
        forward = sum(forward_seconds(kernel, *options) for kernel in kernels)
        fused = device.fuses_accumulation(workload.precision)
        moved = compute.accumulated(device, workload, config)
        backward = sum(backward_seconds(kernel, *options, moved if fused else 0.0) for kernel in kernels)
        if parameters and not fused:
            backward += pass_seconds(moved * parameters, device)
        return forward, backward

    # communication

    @functools.cached_property
    def nic(self) -> str:
        """The NIC type that joins all ranks; groups run side by side over one type."""
        return common_transport(self.fleet, self.stage.attention + self.stage.experts)[0]

    @functools.cached_property
    def exchange(self) -> TokenExchange:
        """Links of the exchange of tokens of all groups."""
        return token_exchange(self.fleet, self.stage.by_group, self.nic)

    @functools.cached_property
    def latency(self) -> Seconds:
        """Seconds of an exchange without bytes."""
        first = member(self.stage.by_group[0], self.nic, "all_to_all")
        protocol = protocols(self.fleet, (first,), "all_to_all")[-1]
        return member_route(self.fleet, first, "all_to_all", protocol).latency

    def loads(self, kept: int, back: bool = False) -> Numbers:
        """Seconds of each link for the tokens of a dispatch, or of a combine (`back`), of a microbatch."""
        sent = np.array(shares.sent_bytes(self.stage, kept))
        return self.exchange.loads(sent.T if back else sent)

    def exchange_seconds(self, kept: int, back: bool) -> Seconds:
        """Seconds of a dispatch, or of a combine (`back`), of a microbatch on idle links."""
        if (kept, back) not in self._exchanges:
            self._exchanges[kept, back] = self.latency + float(self.loads(kept, back).max(initial=0.0))
        return self._exchanges[kept, back]

    # the end of a step

    def closing(self) -> dict[str, Seconds]:
        """Stream of compute -> seconds after its last task: the sum of gradients, not overlapped, and the optimizer.

        Attention ranks sum the gradients of what all of them hold, ranks of equal number in their groups those of their
        experts. A reduce-scatter and the all_gather of sharded weights take as long as this all_reduce."""
        stage, optimizer = self.stage, self.optimizer_seconds()
        dense, kept, experts = shares.held_parameters(stage)
        m, n = stage.attention_ranks, stage.expert_ranks
        summed = self._sum((stage.attention,), dense) + self._sum(_alike(stage.attention, m), kept)
        return {
            "attention": summed + optimizer["attention"],
            "experts": self._sum(_alike(stage.experts, n), experts) + optimizer["experts"],
        }

    def optimizer_seconds(self) -> dict[str, Seconds]:
        """Stream of compute -> seconds of the optimizer."""
        stage, (dense, kept, experts) = self.stage, shares.held_parameters(self.stage)
        owned = dense / len(stage.attention) + kept / stage.groups
        return {
            "attention": self._optimizer(self.attention, owned, dense + kept),
            "experts": self._optimizer(self.experts, experts / stage.groups, experts),
        }

    def _sum(self, rings: tuple[Devices, ...], parameters: float) -> Seconds:
        """Seconds of an all_reduce of the gradients of `parameters` over rings that run side by side."""
        if len(rings[0]) == 1 or not parameters:
            return 0.0
        if rings not in self._sums:
            nic = common_transport(self.fleet, tuple(device for ring in rings for device in ring))[0]
            members = tuple(member(ring, nic, "ring") for ring in rings)
            self._sums[rings] = protocol_costs(self.fleet, members, "all_reduce", Capacities(self.fleet))
        nbytes: Bytes = parameters * GRADIENT_BYTES[self.config.gradient_precision]
        return min(found.cost.seconds(nbytes) for found in self._sums[rings])

    def _optimizer(self, devices: tuple[DeviceSpec, ...], owned: float, held: float) -> Seconds:
        return max(compute.optimizer_seconds(device, owned, held, self.stage.workload.optimizer) for device in devices)


def step_seconds(stage: DisaggregatedStage, costs: TaskCosts | None = None) -> Seconds:
    """Seconds of a step by the closed form; `costs`: those of the stage. Raises NoRoute where nothing joins the ranks."""
    costs = costs or TaskCosts(stage)
    listed = tasks(stage.kept, stage.microbatches, stage.rounds)
    ends = stream_ends(listed, timetable(listed, costs.seconds))
    return max(ends[stream] + closing for stream, closing in costs.closing().items())


def compute_bounds(stage: DisaggregatedStage, costs: TaskCosts) -> dict[str, Seconds]:
    """Stream of compute -> a lower bound on the step: the compute of this set of ranks without waiting."""
    total = costs.closing()
    passes = stage.microbatches * stage.rounds
    for task in tasks(stage.kept, 1):
        if task.stream in total:
            total[task.stream] += passes * costs.seconds(task)
    return total


def _slowest(every: Iterable[Both]) -> Both:
    forward, backward = zip(*every, strict=True)
    return max(forward), max(backward)


def _launches(device: DeviceSpec, layers: float) -> Both:
    """Host seconds to launch the kernels of `layers` dense layers, forward and backward.

    A layer with experts takes `EXPERT_LAUNCHES` and more for each expert (`sim.kernels.launches`). A guess: attention ranks
    have the launches of a dense layer, and ranks with experts the rest. Blocking launches are taken to overlap, too."""
    return layers * device.launch, launches.LAUNCH_BACKWARD * layers * device.launch


def _alike(devices: Devices, ranks: int) -> tuple[Devices, ...]:
    """Ranks of equal number in groups of `ranks` consecutive ones."""
    return tuple(devices[first::ranks] for first in range(ranks))
