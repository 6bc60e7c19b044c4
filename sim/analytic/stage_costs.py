"""Closed form of one pipeline stage: seconds of its forward, backward, collectives and optimizer on an idle network."""

from __future__ import annotations

from dataclasses import dataclass

from sim.hardware.cluster import DeviceSpec
from sim.kernels import compute, lowering, memory
from sim.network.collective_costs import CollectiveCosts
from sim.plan import schedules
from sim.plan.plan import ParallelConfig
from sim.units import Bytes, Seconds
from sim.workload.model import Workload


@dataclass(frozen=True, slots=True)
class StageCost:
    """Seconds of one stage on the ranks that hold it.

    forward and backward are of one microbatch, tensor-parallel collectives included; the sends are what a rank waits for its
    messages to leave (0 where the schedule overlaps them: then lane is what the messages ahead of one microbatch take of their
    way); weight is what of the backward the schedule splits off as W (0
    where it does not); `received` what of the forward is the gather of its message; reduce and gather are whole, in `parts`
    buckets; `traffic` is what one microbatch puts on the data-parallel network (ZeRO 2 and 3), which takes turns with no other
    microbatch's.
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
        """What of the backward the stage before waits for."""
        return self.backward - self.weight

    @property
    def both(self) -> Seconds:
        """One microbatch, forward and backward."""
        return self.forward + self.backward

    @property
    def busy(self) -> Seconds:
        """What one microbatch takes of a rank's time."""
        return self.both + self.send_forward + self.send_backward

    @property
    def slot(self) -> Seconds:
        """What one microbatch takes of the rank's time, of its data-parallel network's or of its messages' way: the most.

        Messages of one way go one behind the other; behind the last one come the next stage's work and the way back."""
        return max(self.busy, self.traffic, self.lane)

    def sending(self, ahead: Seconds, back: Seconds, lane: Seconds, weight: Seconds) -> StageCost:
        """The same stage with other messages, and with so much of its backward split off as W."""
        return StageCost(
            self.forward, self.backward, self.reduce, self.gather, self.optimizer, self.parts, ahead, back,
            self.traffic, weight, self.received, lane,
        )  # fmt: skip

    def bucketed(self, parts: int) -> StageCost:
        """The same stage with so many buckets, and without collectives of every microbatch."""
        return StageCost(
            self.forward, self.backward, self.reduce, self.gather, self.optimizer, parts, self.send_forward, self.send_backward,
            0.0, self.weight, self.received, self.lane,
        )  # fmt: skip

    def begin(self, fill: Seconds, config: ParallelConfig) -> Seconds:
        """When the first forward could have begun to end where it does, with activations at hand after `fill` seconds.

        Gathers ahead of a forward in n parts of f/n are a two-machine flow shop: it ends no sooner than gather + f/n, nor
        than one bucket and f; the gather of its message lies before all parts. Where the network is the bottleneck, its gathers
        are part of its slots. Of several virtual stages only the first waits for its gathers at the begin, and only the last
        reduces at the end: they count for nothing.
        """
        if not config.gathers_ahead or self.traffic > self.busy or config.vpp > 1:
            return fill
        n, forward = self.parts, self.forward - self.received
        return max(fill, max(self.gather / n, self.gather + forward / n - forward) - self.received)

    def tail(self, config: ParallelConfig, tied: Seconds = 0.0) -> Seconds:
        """Seconds from the end of the last backward (and its message) to the end of the step on this stage.

        Reductions behind a backward (or W) of n parts of b/n end no sooner than b + r/n and b/n + r after its begin. `tied` is
        the sum of a tied embedding's gradient, after the reduction.
        """
        n, last = self.parts, self.weight or self.backward
        behind, rest = last + self.send_backward, self.optimizer + tied
        if self.traffic > self.busy:
            return rest  # the network never rests: its last reduction is counted with its slots
        if not config.reduces_behind:
            rest += self.reduce
        elif config.vpp == 1:
            rest += max(0.0, last + self.reduce / n - behind, last / n + self.reduce - behind)
        return rest if config.gathers_ahead else rest + self.gather


def compute_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of a stage for one microbatch on one device, without communication."""
    forward, backward = (layers * seconds for seconds in compute.layer_seconds(device, workload, config))
    for here, part in ((first, compute.embedding_seconds), (last, compute.head_seconds)):
        if here:
            fw, bw = part(device, workload, config)
            forward, backward = forward + fw, backward + bw
    return forward, backward


def weight_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, last: bool) -> Seconds:
    """What of a stage's backward are weight gradients; 0 where the schedule does not split them off."""
    if not schedules.get(config.schedule).SPLITS_BACKWARD:
        return 0.0
    head = compute.head_parts(device, workload, config)[2] if last else 0.0
    return layers * compute.layer_parts(device, workload, config)[2] + head


def ring_windows(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int) -> dict[str, Seconds]:
    """Attention seconds of a stage behind which keys and values go around the cp ring: "F", "B", and "R" of a forward again."""
    forward, backward = (layers * compute.ring_seconds(device, workload, config, way) for way in (False, True))
    return {"F": forward, "B": backward, "R": forward}


def optimizer_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> Seconds:
    """Seconds of the optimizer step of a stage on one rank."""
    held = memory.by_sharing(workload, config, layers, first, last)
    owned = sum(parameters / (sharing if config.zero_stage >= 1 else 1) for _, parameters, sharing in held)
    row = compute.measured(device, workload, config)
    return row.update * owned if row and row.update else compute.optimizer_seconds(device, owned)


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Costs of stages of any size on devices of given paces."""

    workload: Workload
    config: ParallelConfig
    paces: CollectiveCosts

    def of(
        self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = (),
        times: tuple[Seconds, Seconds] | None = None,
    ) -> StageCost:  # fmt: skip
        """Costs of a stage of `layers` layers at an end of the pipeline or in its middle; the slowest of `specs` decides.

        `times` are its `passes`, where they are known."""
        config = self.config
        shape = (self.workload, config, layers, first, last)
        specs = specs or self.paces.specs
        times = times or self.passes(layers, first, last, specs)
        sync: dict[str, list[Seconds]] = {}
        for group, operation, nbytes, count in synchronisation(*shape):
            seconds = sync.setdefault(group, [0.0, 0.0])
            seconds[operation == "all_gather"] += self.paces.seconds(group, operation, nbytes, count)
        optimizer = max(optimizer_seconds(spec, *shape) for spec in specs)
        weight = max(weight_seconds(spec, self.workload, config, layers, last) for spec in specs)
        beside = config.reduces_behind, config.gathers_ahead  # else a rank waits for one group after the other
        reduce, gather = (
            (max if beside[way] else sum)([both[way] for both in sync.values()] or [0.0]) for way in (False, True)
        )
        reduces, gathers = int(config.reduces_each_microbatch), 2 * int(config.shards_parameters)
        traffic = max((reduces * both[0] + gathers * both[1] for both in sync.values()), default=0.0)
        buckets = lowering.buckets(*shape)
        received = self.received(first, last, False)
        return StageCost(
            times[0], times[1], reduce, gather, optimizer, buckets, traffic=traffic, weight=weight, received=received
        )

    def passes(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """(forward, backward) seconds of a stage for one microbatch: `alone`, and the exchange of tokens with experts."""
        forward, backward = self.alone(layers, first, last, specs)
        experts = [
            sum(self.paces.seconds("ep", *one) for one in lowering.expert_collectives(self.workload, self.config, layers, way))
            for way in (False, True)
        ]
        return forward + experts[0], backward + experts[1]

    def alone(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """`work` of a replica with what its own ranks exchange besides: what it takes wherever the others stand."""
        specs = specs or self.paces.specs
        forward, backward = (
            seconds + self.received(first, last, way) + self._ring(specs, layers, way)
            for way, seconds in zip((False, True), self.work(layers, first, last, specs), strict=True)
        )
        return forward, backward

    def received(self, first: bool, last: bool, backward: bool) -> Seconds:
        """What a stage does with a message before it computes: the gather of its slices (`lowering.gathered_bytes`)."""
        whole = 0.0 if (last if backward else first) else lowering.gathered_bytes(self.workload, self.config)
        return self.paces.seconds("tp", "all_gather", whole, 1) if whole else 0.0

    def work(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """(forward, backward) seconds of a stage for one microbatch: compute and tensor-parallel collectives, nothing else."""
        shape = (self.workload, self.config, layers, first, last)
        specs = specs or self.paces.specs
        pairs = [compute_seconds(spec, *shape) for spec in specs]
        included = [compute.includes_collectives(spec, self.workload, self.config) for spec in specs]

        def seconds(backward: bool) -> Seconds:
            work = lowering.tensor_collectives(*shape, backward)
            tensor = sum(self.paces.seconds("tp", *one) for one in work) if not all(included) else 0.0
            return max(pair[backward] + (0.0 if inside else tensor) for pair, inside in zip(pairs, included, strict=True))

        return seconds(False), seconds(True)

    def _ring(self, specs: tuple[DeviceSpec, ...], layers: int, backward: bool) -> Seconds:
        """What the attention of the slowest of `specs` does not hide of the exchange around the cp ring."""
        exchanges = lowering.ring_exchanges(self.workload, self.config, layers, backward)
        windows = [ring_windows(spec, self.workload, self.config, layers) for spec in specs] if exchanges else []
        exposed = 0.0
        for way, nbytes, count in exchanges:
            hidden = max(window[way] for window in windows)
            exposed += max(0.0, self.paces.seconds("cp", "send_recv", nbytes, count) - hidden)
        return exposed

    def collective(self, kind: str, layers: int, first: bool, last: bool) -> str:
        """The collective to choose for a kind of group of such a stage."""
        shape = (self.workload, self.config, layers, first, last)
        if kind == "tp":
            both = (False, True)
            return self.paces.best("tp", [work for way in both for work in lowering.tensor_collectives(*shape, way)])
        return self.paces.best("dp", [work[1:] for work in synchronisation(*shape) if work[0] == "dp"])


def synchronisation(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, str, Bytes, float], ...]:
    """(kind of group, operation, payload, count) of the gradient collectives of one stage in one step.

    By bucket where overlapped: then groups of two kinds reduce side by side, and the later of them decides, at least.
    """
    shape = (workload, config, layers, first, last)
    buckets = lowering.buckets(*shape)
    reduced = buckets if config.reduces_behind else config.vpp
    gradients = lowering.gradient_bytes(*shape)
    if config.zero_stage == 0:
        return tuple((group, "all_reduce", nbytes / reduced, reduced) for group, nbytes in gradients)
    gathered = buckets if config.gathers_ahead else config.vpp
    work = [(group, "reduce_scatter", nbytes / reduced, float(reduced)) for group, nbytes in gradients]
    work += [(group, "all_gather", nbytes / gathered, float(gathered)) for group, nbytes in lowering.parameter_bytes(*shape)]
    return tuple(work)
