"""Closed forms: seconds of a stage, of a message and of a collective on an idle network, and the step they add up to.

The engine plays the same kernels, payloads and routes; here they are added up without a clock. What a stage costs is all
the planner needs, so this is the only cost model there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sim import compute, lowering, memory
from sim.cluster import Device, DeviceSpec, Fleet, common_transport
from sim.model import Workload
from sim.plan import ParallelConfig, Plan
from sim.routes import Capacities, Route, collective_route, idle_seconds, message_route
from sim.units import FlopsPerSecond, Seconds


@dataclass(frozen=True, slots=True)
class StageCost:
    """Seconds of one stage on the ranks that hold it. forward and backward: one microbatch, tensor-parallel collectives included."""

    forward: Seconds
    backward: Seconds
    reduce: Seconds
    gather: Seconds
    optimizer: Seconds
    parts: int

    @property
    def both(self) -> Seconds:
        """One microbatch, forward and backward."""
        return self.forward + self.backward

    def busy(self, microbatches: int, config: ParallelConfig) -> Seconds:
        """Least seconds from the first forward (or gather) to the end of the optimizer on this stage.

        Overlapped buckets are a two-machine flow shop of equal jobs: n compute parts of c/n and n collectives of r/n end
        no sooner than c + r/n and c/n + r.
        """
        n = self.parts
        total = microbatches * self.both + self.optimizer
        if config.overlap_grad_reduce:
            total += max(self.reduce / n, self.reduce + self.backward / n - self.backward)
        else:
            total += self.reduce
        if config.overlap_param_gather:
            return total + max(self.gather / n, self.gather + self.forward / n - self.forward)
        return total + self.gather


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


def optimizer_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> Seconds:
    """Seconds of the optimizer step of a stage on one rank."""
    shared = config.dp if config.zero_stage >= 1 else 1
    return compute.optimizer_seconds(device, memory.stage_parameters(workload, config, layers, first, last) / shared)


class StageCosts:
    """Costs of stages that stand on a given set of devices: `devices[d][t]` is the device of replica d, tensor rank t."""

    def __init__(
        self,
        fleet: Fleet,
        workload: Workload,
        config: ParallelConfig,
        devices: tuple[tuple[Device, ...], ...],
        capacities: Capacities | None = None,
        collective: Callable[[str], str] = lambda kind: "ring",
    ):
        self.fleet, self.workload, self.config = fleet, workload, config
        self.specs = tuple(dict.fromkeys(fleet.spec(device) for replica in devices for device in replica))
        self.capacities = capacities or Capacities(fleet)
        rings = [replica for replica in devices] if config.tp > 1 else []
        lanes = list(zip(*devices, strict=True)) if config.dp > 1 else []
        self._tp = {operation: self._routes(rings, operation, collective("tp")) for operation in _TENSOR} if rings else {}
        self._dp = {operation: self._routes(lanes, operation, collective("dp")) for operation in _DATA} if lanes else {}

    def _routes(self, groups: list[tuple[Device, ...]], operation: str, collective: str) -> tuple[Route, ...]:
        routes = []
        for members in groups:
            nic, _ = common_transport(self.fleet, members)
            hosts: dict[tuple[str, int], list[Device]] = {}
            for device in members:
                hosts.setdefault((device.cluster, device.node), []).append(device)
            by_host = tuple(tuple(host) for host in hosts.values())
            routes.append(collective_route(self.fleet, by_host, nic, collective, operation))
        return tuple(routes)

    def of(self, layers: int, first: bool, last: bool) -> StageCost:
        """Costs of a stage of `layers` layers at an end of the pipeline or in its middle; the slowest device decides."""
        shape = (self.workload, self.config, layers, first, last)
        pairs = [compute_seconds(spec, self.workload, self.config, layers, first, last) for spec in self.specs]
        times = [max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)]
        if self._tp:
            for direction, backward in enumerate((False, True)):
                for operation, nbytes, count in lowering.tensor_collectives(*shape, backward):
                    times[direction] += self._slowest(self._tp[operation], nbytes, count)
        reduce = gather = 0.0
        if self._dp:
            sharded = self.config.zero_stage >= 1
            operation = "reduce_scatter" if sharded else "all_reduce"
            parts = lowering.buckets(*shape)
            reduce = self._together(operation, lowering.gradient_bytes(*shape), parts)
            gather = self._together("all_gather", lowering.parameter_bytes(*shape), parts) if sharded else 0.0
        optimizer = max(optimizer_seconds(spec, self.workload, self.config, layers, first, last) for spec in self.specs)
        return StageCost(times[0], times[1], reduce, gather, optimizer, lowering.buckets(*shape))

    def _slowest(self, routes: tuple[Route, ...], nbytes: float, count: float) -> Seconds:
        """Tensor-parallel groups of one stage stand on different devices; the slowest decides."""
        distinct = tuple(dict.fromkeys(routes)) if len(routes) < 4 else routes[:1]
        return max(idle_seconds((route,), nbytes, count, self.capacities) for route in distinct)

    def _together(self, operation: str, nbytes: float, parts: int) -> Seconds:
        """Data-parallel groups of one stage reduce side by side and share the NICs of their nodes."""
        return idle_seconds(self._dp[operation], nbytes / parts, parts, self.capacities)


_TENSOR = ("all_reduce", "all_gather", "reduce_scatter")
_DATA = ("all_reduce", "all_gather", "reduce_scatter")


def stage_costs(plan: Plan) -> tuple[StageCost, ...]:
    """Costs of every pipeline place of a plan; the stages of a place (vpp) are added up."""
    config = plan.config
    capacities = Capacities(plan.fleet)
    chosen = {group.kind: group.collective for group in plan.groups}
    found = []
    for place in range(config.pp):
        devices = tuple(
            tuple(plan.placement[config.rank(tp, dp, place)] for tp in range(config.tp)) for dp in range(config.dp)
        )
        costs = StageCosts(
            plan.fleet, plan.workload, config, devices, capacities, lambda kind: chosen.get(kind, "ring")
        )
        stages = plan.stages_of(place)
        layers = sum(plan.stages[stage].layers for stage in stages)
        found.append(costs.of(layers, 0 in stages, config.num_stages - 1 in stages))
    return tuple(found)


def message_seconds(plan: Plan, place: int) -> Seconds:
    """Seconds of the messages of all replicas from a pipeline place to the next one, sent side by side on an idle network."""
    config = plan.config
    nics = {group.ranks[0]: group.nic for group in plan.groups if group.kind == "pp"}
    routes = []
    for chain in range(config.tp * config.dp):
        source, target = chain + place * config.tp * config.dp, chain + (place + 1) % config.pp * config.tp * config.dp
        nic = _message_nic(plan, nics[chain], source, target)
        routes.append(message_route(plan.fleet, plan.placement[source], plan.placement[target], nic))
    return idle_seconds(tuple(routes), lowering.message_bytes(plan.workload, config), 1, Capacities(plan.fleet))


def _message_nic(plan: Plan, nic: str, source: int, target: int) -> str:
    """A pipeline group speaks over one NIC type; two of its ranks inside one node use the node's interconnect."""
    a, b = plan.placement[source], plan.placement[target]
    return "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else nic


def step_seconds(plan: Plan) -> Seconds:
    """Closed form of a step: the latest stage, fed by the stages before it, plus the sum of a tied embedding's gradient.

    A stage cannot begin before the first microbatch has passed all stages before it, nor end before its last gradient has
    gone back through them; with v virtual stages a rank, one of v pieces is passed. Contention, interference and waiting for
    later stages are left out, so the engine is never faster than this on the same plan (up to the tied embedding's overlap).
    """
    config = plan.config
    microbatches = max(config.num_microbatches)
    fill, latest = 0.0, 0.0
    for place, cost in enumerate(stage_costs(plan)):
        latest = max(latest, fill + cost.busy(microbatches, config))
        fill += cost.both / config.vpp
        if place + 1 < config.pp:
            fill += 2 * message_seconds(plan, place)
    return latest


def upper_bound_seconds(plan: Plan) -> Seconds:
    """HETHUB's yardstick (arXiv 2405.16256): the step if every device were busy all the time at the speed it reaches alone.

    A device's own speed is that of the plan's tp, microbatch size and recomputation on its own cluster, tensor-parallel
    collectives included, without bubble, pipeline or data-parallel communication. All devices of the fleet count.
    """
    config, workload = plan.config, plan.workload
    rate: FlopsPerSecond = 0.0
    for cluster in plan.fleet.clusters:
        if all(name != workload.precision for name, _ in cluster.node.device.peak):
            continue
        width = min(config.tp, cluster.node.count)
        ring = tuple(Device(cluster.name, 0, index) for index in range(width))
        alone = _one_replica(config, width)
        cost = StageCosts(plan.fleet, workload, alone, (ring,)).of(workload.model.layers, True, True)
        rate += cluster.devices / width * config.microbatch_size / cost.both
    return workload.global_batch_size / rate


def _one_replica(config: ParallelConfig, tp: int) -> ParallelConfig:
    return ParallelConfig(
        tp=tp,
        microbatch_size=config.microbatch_size,
        recompute=config.recompute,
        sequence_parallel=config.sequence_parallel and tp > 1,
        attention=config.attention,
        gradient_precision=config.gradient_precision,
    )

