"""Cost of one pipeline stage: seconds of its forward, backward, messages, gradient collectives and optimizer.

The network is idle: each collective and message has its links to itself. The engine simulates the same kernels, payloads and
routes as events. The planner prices every candidate with these costs: there is no other cost model.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from sim.analytic.alike_configs import one_replica, passing_alike, summing_alike
from sim.analytic.stage_amounts import amounts, bare_stages, in_buckets, synchronisation, traffic_seconds, weight_seconds
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import activation_copies, beside, compute, layer_groups, payloads, recomputation, streaming
from sim.kernels.messages import NO_PASSES, Passes, handling_seconds
from sim.kernels.paired_passes import HIDDEN
from sim.network.collective_costs import CollectiveCosts
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.program import BESIDE, TENSOR
from sim.units import Bytes, Seconds
from sim.workload.workload import Workload


class StageCost(NamedTuple):
    """Seconds of one stage on the ranks that hold it.

    Per microbatch: `forward` and `backward` include tensor-parallel collectives and those of ZeRO 2 and 3 without overlap;
    `weight` is the part of the backward that the schedule splits off as W (0 if it does not split); `received` is
    that of the forward that gathers the received message. `send_forward` and `send_backward`: seconds for which a rank waits
    until its message has left; 0 where the schedule overlaps sends, and then `lane` is the time for which the forward messages
    of one microbatch occupy their link. `traffic`: seconds of one on the data-parallel network beside its passes (ZeRO 2, 3).

    Per step: `reduce` (gradients) and `gather` (parameters) are totals over `parts` buckets; `optimizer` is the update.
    """

    forward: Seconds
    backward: Seconds
    reduce: Seconds
    gather: Seconds
    optimizer: Seconds
    parts: int
    send_forward: Seconds = 0.0
    send_backward: Seconds = 0.0
    traffic: Seconds = 0.0
    weight: Seconds = 0.0
    received: Seconds = 0.0
    lane: Seconds = 0.0

    @property
    def inputs(self) -> Seconds:
        """Input-gradient part of the backward (B of a split backward): the previous stage waits for it."""
        return self.backward - self.weight

    @property
    def both(self) -> Seconds:
        """Forward and backward of one microbatch."""
        return self.forward + self.backward

    @property
    def busy(self) -> Seconds:
        """Seconds for which one microbatch occupies a rank: forward, backward and the waits for its sends."""
        return self.forward + self.backward + self.send_forward + self.send_backward

    @property
    def cycle(self) -> Seconds:
        """Least seconds between microbatches: rank, data-parallel network and send lane are each serial; the busiest decides.

        `lane` counts, although the rank itself does not wait for it: its own last backward follows the last forward message
        only after the work of the next stage and the message back."""
        return max(self.forward + self.backward + self.send_forward + self.send_backward, self.traffic, self.lane)

    def last_backward(self, microbatches: int, deferred: int, held: Seconds = 0.0) -> Seconds:
        """Least seconds from the first forward to the end of the last backward (B), before its message is sent.

        `deferred` weight gradients (W) follow the last backward. held: seconds of messages that it waits for in between. The
        data-parallel network does not count: no backward waits for a reduction of the microbatch before."""
        busy = microbatches * self.busy + held - deferred * self.weight - self.send_backward
        return max(busy, microbatches * self.lane)

    def sending(self, ahead: Seconds, back: Seconds, lane: Seconds, weight: Seconds) -> StageCost:
        """A copy with other sends (forward, backward), another lane time and another weight-gradient part."""
        return StageCost(*self[:6], ahead, back, self.traffic, weight, self.received, lane)

    def lengthened(self, seconds: Seconds) -> StageCost:
        """A copy whose backward takes some seconds more, such as those of recomputed layers."""
        return StageCost(self.forward, self.backward + seconds, *self[2:])

    def bucketed(self, parts: int) -> StageCost:
        """A copy with `parts` buckets and without collectives of every microbatch (`traffic` 0)."""
        return StageCost(*self[:5], parts, self.send_forward, self.send_backward, 0.0, *self[9:])

    def begin(self, fill: Seconds, config: ParallelConfig) -> Seconds:
        """Effective start of the first forward: its end less its own seconds. Activations arrive at `fill` seconds.

        Parameter gathers ahead of a forward in n parts of f/n form a two-machine flow shop: the forward ends no sooner than
        gather + f/n, nor than gather/n + f. The gather of the received message precedes all parts. Where the data-parallel
        network is the bottleneck, its gathers are already part of the cycles. With virtual stages only the first one waits for
        gathers as the step begins, and only the last one reduces as it ends: both are neglected.
        """
        if not config.gathers_ahead or self.traffic > self.busy or config.vpp > 1:
            return fill
        n, forward = self.parts, self.forward - self.received
        return max(fill, max(self.gather / n, self.gather + forward / n - forward) - self.received)

    def tail(self, config: ParallelConfig, tied: Seconds = 0.0) -> Seconds:
        """Seconds from the end of the last backward (or W) and its send to the end of the step on this stage.

        Reductions after the n parts, of b/n each, of a backward (or W) end no sooner than b + r/n and b/n + r after it starts.
        `tied`: seconds of the all-reduce of a tied embedding's gradient, which follows the reduction.
        """
        n, last = self.parts, self.weight or self.backward
        until_sent, rest = last + self.send_backward, self.optimizer + tied
        if self.traffic > self.busy:
            return rest  # the network is never idle: the cycles include its last reduction
        if not config.reduces_behind:
            rest += self.reduce
        elif config.vpp == 1:
            rest += max(0.0, last + self.reduce / n - until_sent, last / n + self.reduce - until_sent)
        return rest if config.gathers_ahead else rest + self.gather


@functools.lru_cache(maxsize=65536)
def compute_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of a stage for one microbatch on one device, without communication."""
    forward = backward = 0.0
    for many, kind in workload.of_stage(layers, first, last).alike(layers):
        for number, alike in config.by_recomputation(many):
            fw, bw = compute.layer_seconds(device, kind, alike)
            if config.offloads_parameters:
                parameters = layer_groups.layer_parameters(kind, alike)
                fw, bw = streaming.streamed(device, workload, config, parameters, (fw, bw))
            elif config.offloads_activations:
                fw, bw = activation_copies.copied(device, kind, alike, (fw, bw))
            forward, backward = forward + number * fw, backward + number * bw
    ends = (
        (compute.embedding_seconds, workload.model.embedding_parameters),
        (compute.head_seconds, workload.model.head_parameters),
    )
    for part, parameters in ends[not first : 1 + last]:
        fw, bw = part(device, workload, config)
        if config.offloads_parameters:
            fw, bw = streaming.streamed(device, workload, config, parameters, (fw, bw))
        forward, backward = forward + fw, backward + bw
    return forward, backward


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Computes the cost of a stage of any size on the devices of `collectives`.

    `handling`: passes that compress and decompress messages in a forward and in a backward of the stage
    (`sim.kernels.messages`). `stages`: stages of a pipeline rank for each that `config` has, where it tells of one of them."""

    workload: Workload
    config: ParallelConfig
    collectives: CollectiveCosts
    handling: tuple[Passes, Passes] = NO_PASSES
    stages: int = 1

    def of(
        self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = (),
        times: tuple[Seconds, Seconds] | None = None,
    ) -> StageCost:  # fmt: skip
        """Cost of a stage without its messages, by the slowest device type of `specs` (default: all of the stage). `first`,
        `last`: it holds the embedding, the head. `times`: `passes`, if known."""
        times = times or self.passes(layers, first, last, specs or self.collectives.specs)
        reduce, gather, traffic, buckets, optimizer = self.synchronised(layers, first, last, specs)
        received, weight = self.received(layers, first, last, False), self.weight_gradients(layers, first, last, specs)
        between, before = reduce * self.config.reduces_between, gather * self.config.gathers_between
        weight += between if schedules.get(self.config.schedule).SPLITS_BACKWARD else 0.0
        again = before and before * recomputation.backward_gathers(self.workload, self.config)
        passes, rest = (times[0] + before, times[1] + between + again), (reduce - between, gather - before)
        return StageCost(*passes, *rest, optimizer, buckets, 0.0, 0.0, traffic, weight, received)

    def synchronised(
        self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()
    ) -> tuple[Seconds, Seconds, Seconds, int, Seconds]:
        """`reduce`, `gather`, `traffic`, `parts` and `optimizer` of `of`; all configurations with the same sums share them."""
        specs = specs or self.collectives.specs
        alike = summing_alike(self.config, any(spec.profile is not None for spec in specs))
        key, known = (alike, self.workload, layers, first, last, specs), self.collectives.known_sums
        if key not in known:
            known[key] = self._synchronised(layers, first, last, specs)
        return known[key]

    def _synchronised(
        self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...]
    ) -> tuple[Seconds, Seconds, Seconds, int, Seconds]:
        config, sync = self.config, dict[str, list[Seconds]]()
        buckets, optimizer, collectives = self.in_buckets(layers, first, last, specs)
        for group, operation, nbytes, count in collectives:
            seconds = sync.setdefault(group, [0.0, 0.0])
            seconds[operation == "all_gather"] += self.collectives.seconds(group, operation, nbytes, count)
        overlapped = config.reduces_behind, config.gathers_ahead  # otherwise a rank waits for one group after the other
        totals = ([both[way] for both in sync.values()] or [0.0] for way in (False, True))
        reduce, gather = (max(one) if is_beside else sum(one) for one, is_beside in zip(totals, overlapped, strict=True))
        behind, ahead = config.reduces_behind, config.gathers_ahead
        reduces, gathers = config.reduces_each_microbatch and behind, 2 * int(config.shards_parameters and ahead)
        traffic = max((reduces * both[0] + gathers * both[1] for both in sync.values()), default=0.0)
        return reduce, gather, traffic, buckets, optimizer

    def in_buckets(
        self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()
    ) -> tuple[int, Seconds, tuple[tuple[str, str, Bytes, float], ...]]:
        """(buckets, optimizer seconds, `stage_amounts.synchronisation`) of a stage."""
        found = amounts(self.workload, self.config, layers, first, last, specs or self.collectives.specs)
        buckets, bare = payloads.buckets_of(found.parameters, self.config, layers), bare_stages(self.workload, first, last)
        return buckets, found.optimizer, in_buckets(self.config, found.reduced, found.gathered, buckets, bare)

    def weight_gradients(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> Seconds:
        """`weight_seconds` on the slowest device type."""
        workload, specs = self.workload.of_stage(layers, first, last), specs or self.collectives.specs
        return max(weight_seconds(spec, workload, one_replica(self.config), layers, last) for spec in specs)

    def passes(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """(forward, backward) seconds of a stage for one microbatch: `alone` plus the collectives that layers wait for, but for
        those that pairs may hide."""
        forward, backward = self.alone(layers, first, last, specs)
        workload, ways = self.workload.of_stage(layers, first, last), (False, True)
        waited = [payloads.layer_collectives(workload, self.config, layers, way, self.stages) for way in ways]
        apart = HIDDEN if schedules.is_paired(self.config.schedule) else ""
        experts = [sum(self.collectives.seconds(*one) for one in both if one[0] != apart) for both in waited]
        hidden = [self._exposed(workload, specs or self.collectives.specs, layers, way, "beside") for way in ways]
        return forward + experts[0] + hidden[0], backward + experts[1] + hidden[1]

    def alone(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """(forward, backward): `work`, message gather, and what is exposed of the cp ring and of collectives beside products;
        independent of the placement of other replicas. All configurations with the same passes share them."""
        alike, specs = passing_alike(self.config), specs or self.collectives.specs
        known = self.collectives.known_passes(alike)
        if (key := (alike, self.workload, self.handling, layers, first, last, specs)) not in known:
            known[key] = self._alone(layers, first, last, specs)
        return known[key]

    def _alone(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...]) -> tuple[Seconds, Seconds]:
        workload = self.workload.of_stage(layers, first, last)
        some = (beside.exchanges(workload, self.config, layers, way) for way in (False, True))
        kinds = [("ring", "gather", "scatter") if exchanges else () for exchanges in some]
        forward, backward = (
            seconds
            + self.received(layers, first, last, way)
            + sum(self._exposed(workload, specs, layers, way, kind) for kind in kinds[way])
            for way, seconds in zip((False, True), self.work(layers, first, last, specs), strict=True)
        )
        return forward, backward

    def received(self, layers: int, first: bool, last: bool, backward: bool) -> Seconds:
        """Seconds to gather the slices of a received message before compute (`payloads.gathered_bytes`).

        A stage with neither layers nor an end passes a message on as it is, or is after the head and receives none."""
        receives = (layers or first or last) and not (last if backward else first)
        whole = payloads.gathered_bytes(self.workload, self.config) if receives else 0.0
        return self.collectives.seconds("tp", "all_gather", whole, 1) if whole else 0.0

    def work(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """(forward, backward) seconds of a stage for one microbatch: compute, with the handling of compressed messages, and
        tensor-parallel collectives only."""
        shape = (self.workload, self.config, layers, first, last)
        specs = specs or self.collectives.specs
        pairs = [self.computed(spec, layers, first, last) for spec in specs]
        included = [compute.includes_collectives(spec, self.workload, self.config) for spec in specs]

        def seconds(backward: bool) -> Seconds:
            work = payloads.tensor_collectives(*shape, backward)
            tensor = sum(self.collectives.seconds("tp", *one) for one in work) if not all(included) else 0.0
            return max(pair[backward] + (0.0 if inside else tensor) for pair, inside in zip(pairs, included, strict=True))

        return seconds(False), seconds(True)

    def computed(self, spec: DeviceSpec, layers: int, first: bool, last: bool) -> tuple[Seconds, Seconds]:
        """(forward, backward) seconds of a microbatch on one device: `compute_seconds`, `traffic_seconds` and `handling`."""
        seconds = compute_seconds(spec, self.workload, one_replica(self.config), layers, first, last)
        traffic = traffic_seconds(spec, self.workload, self.config, layers, first, last)
        forward, backward = (sum(both) for both in zip(seconds, traffic, strict=True))
        return forward + handling_seconds(self.handling[0], spec), backward + handling_seconds(self.handling[1], spec)

    def _exposed(self, workload: Workload, specs: tuple[DeviceSpec, ...], layers: int, backward: bool, kind: str) -> Seconds:
        """Exposed seconds of the exchanges of a kind: what the compute beside each of them on the slowest device leaves."""
        exchanges = [one for one in beside.exchanges(workload, self.config, layers, backward) if one.kind == kind]
        windows = [beside.windows(spec, workload, self.config, layers) for spec in specs] if exchanges else []
        exposed = 0.0
        if kind in TENSOR and exchanges and all(compute.includes_collectives(s, self.workload, self.config) for s in specs):
            return exposed
        for _, group, way, nbytes, count in exchanges:
            whole = self.collectives.seconds(group, BESIDE[kind], nbytes, count)
            exposed += max(0.0, whole - max(window[way] for window in windows))
        return exposed

    def collective(self, kind: str, layers: int, first: bool, last: bool) -> str:
        """Name of the fastest collective algorithm for a stage's groups of a kind: "tp", or else "dp"."""
        shape = (self.workload, self.config, layers, first, last)
        if kind == "tp":
            both = (False, True)
            return self.collectives.best("tp", [work for way in both for work in payloads.tensor_collectives(*shape, way)])
        return self.collectives.best("dp", [work[1:] for work in synchronisation(*shape) if work[0] == "dp"])
