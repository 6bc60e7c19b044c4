"""Quick lower bounds on the steps of plans that are not built yet, from the closed form of each stage's costs."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from benchmarks.certificates.space import Stages, slots
from planner.request import Request
from planner.space.shape import Shape
from sim.analytic.plan_costs import messages_alpha_beta
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster, Device
from sim.hardware.transport import trunk_path
from sim.kernels import communicators, memory
from sim.kernels.payloads import message_bytes, tied_bytes
from sim.network.alpha_beta import protocol_costs
from sim.network.collective_costs import CollectiveCosts
from sim.network.paths import Capacities
from sim.network.replica_rows import ReplicaRows
from sim.network.routes import member
from sim.plan import schedules
from sim.plan.parallel_config import BLOCK, ParallelConfig
from sim.units import Bytes, Seconds

Seat = tuple[str, int]
"""A cluster and the number of a stage on it, in pipeline order."""
Way = tuple[tuple[Seconds, ...], tuple[Seconds, ...], Seconds]
"""Seconds of a replica's forward messages, of its backward messages, and of the all_reduce of its tied embedding's gradient."""


class Bounds:
    """Lower bounds on the steps and memory of the pipelines of one request; the costs of each stage are computed once."""

    def __init__(self, request: Request):
        self.request, self.workload, fleet = request, request.workload, request.topology.fleet
        self.has_leaves = any(cluster.fabric is not None for cluster in fleet.clusters)
        self.fleet = replace(fleet, clusters=tuple(replace(cluster, fabric=None) for cluster in fleet.clusters))
        self.clusters = {cluster.name: cluster for cluster in request.clusters()}
        self._capacities = Capacities(self.fleet)
        self._costs: dict[object, StageCosts] = {}
        self._paces: dict[object, CollectiveCosts] = {}
        self._stages: dict[object, StageCost] = {}
        self._peaks: dict[object, Bytes] = {}
        self._hops: dict[object, Seconds] = {}
        self._pairs: dict[object, Seconds] = {}

    def fits(self, shape: Shape, stages: Stages) -> bool:
        """Whether every stage fits the memory of its devices."""
        pp = len(stages)
        for pp_rank, (name, layers) in enumerate(stages):
            known = _alike_in_memory(shape.on(name)), pp, pp_rank, layers
            if known not in self._peaks:
                self._peaks[known] = self._peak(shape.on(name), pp, pp_rank, layers)
            if self._peaks[known] > self.request.topology.room(self.clusters[name].node.device):
                return False
        return True

    def _peak(self, shape: Shape, pp: int, pp_rank: int, layers: int) -> Bytes:
        if shape.recompute == BLOCK:
            extremes = (replace(shape, recompute=recompute) for recompute in ("none", "full"))
            return min(self._peak(one, pp, pp_rank, layers) for one in extremes)
        config, microbatches = shape.config(self.workload, pp), shape.microbatches(self.workload)
        held = schedules.in_flight(shape.schedule, pp_rank, pp, microbatches, shape.vpp)
        ends = pp_rank == 0, pp_rank == pp - 1
        inside = max(memory.rank_bytes(self.workload, config, layers, kept, *ends, owed) for kept, owed in held)
        return inside + communicators.outside_torch(config)

    def of_shape(self, shape: Shape) -> Seconds:
        """A lower bound on all pipelines of a shape: work of all layers and microbatches on as many stages as fit the fleet.

        Layers are those of the only stage of a pipeline where these are faster (`launch_per_rank`)."""
        rate = 0.0
        for name, cluster in self.clusters.items():
            if room := min(slots(cluster, shape.tp_on(name)) // shape.dp, self.workload.model.layers):
                costs = self._at(shape, (name, 0), 1)
                one, two = (sum(costs.work(layers, False, False)) for layers in (1, 2))
                rate += room / (two - one)
        return shape.microbatches(self.workload) * self.workload.model.layers / rate if rate else math.inf

    def of(self, shape: Shape, stages: Stages) -> Seconds:
        """A lower bound on one pipeline: `plan_costs.step_seconds` without contention and with the fastest collectives."""
        if len(stages) == 1:  # its devices may be spread evenly over their nodes: only the stage's own work is counted
            costs = self._at(shape, (stages[0][0], 0), 1)
            return shape.microbatches(self.workload) * sum(costs.work(stages[0][1], True, True))
        return max(self._of_chain(shape, stages, way) for way in self._ways(shape, stages))

    def alike(self, shape: Shape, stages: Stages) -> bool:
        """Whether messages of all replicas take equally long; otherwise the closed form of a plan may exceed its step.

        Bounds leave out leaf switches, which make messages of replicas unlike."""
        return not self.has_leaves and len(self._ways(shape, stages)) == 1

    def _ways(self, shape: Shape, stages: Stages) -> frozenset[Way]:
        """The distinct message times of all replicas."""
        seats = self._seats(shape, stages)
        hops = list(itertools.pairwise(seats))
        degrees = [shape.tp_on(name) for name, _ in stages]
        sizes = [message_bytes(self.workload, self._config(shape), max(pair)) for pair in itertools.pairwise(degrees)]
        wider = replace(shape, tp=max(degrees[0], degrees[-1]), cluster_tp=())
        ends = tied_bytes(self.workload, self._config(wider, len(stages)))
        found = []
        for replica in range(shape.dp):
            both = list(zip(hops, sizes, strict=True))
            ahead = tuple(self._hop(shape, replica, a, b, nbytes, "send_recv") for (a, b), nbytes in both)
            back = tuple(self._hop(shape, replica, b, a, nbytes, "send_recv") for (a, b), nbytes in both)
            tied = self._hop(shape, replica, seats[0], seats[-1], ends, "all_reduce") if ends else 0.0
            found.append((ahead, back, tied))
        return frozenset(found)

    def _of_chain(self, shape: Shape, stages: Stages, way: Way) -> Seconds:
        """A lower bound on the step of one replica, with its messages on an idle network."""
        (hops, backs, tied), schedule, config = way, schedules.get(shape.schedule), self._config(shape)
        seats, counts = self._seats(shape, stages), (shape.microbatches(self.workload), shape.vpp)
        there = back = latest = first_tail = 0.0
        for pp_rank, (_, layers) in enumerate(stages):
            first, last = pp_rank == 0, pp_rank == len(stages) - 1
            cost = self._stage(shape, seats[pp_rank], layers, first, last)
            entry = cost if shape.vpp == 1 else self._stage(shape, seats[pp_rank], layers // shape.vpp, first, False)
            ahead = 0.0 if last else hops[pp_rank]
            behind = 0.0 if first else backs[pp_rank - 1]
            if schedule.OVERLAPS_SENDS:
                cost = cost._replace(lane=ahead * shape.vpp)
            else:
                cost = cost._replace(send_forward=ahead, send_backward=behind)
            owed = cost.weight * schedules.weights_behind(shape.schedule, pp_rank, len(stages), *counts)
            tail = cost.tail(config, tied if first or last else 0.0)
            if not first:
                there, back = there + hops[pp_rank - 1], back + behind
                tail = max(tail, back - owed - cost.send_backward + first_tail)
            else:
                first_tail = owed + tail
            latest = max(latest, cost.begin(there, config) + counts[0] * cost.cycle + tail)
            there, back = there + entry.forward, back + entry.inputs
        return latest

    def _config(self, shape: Shape, pp: int = 2) -> ParallelConfig:
        return shape.config(self.workload, pp)

    def _seats(self, shape: Shape, stages: Stages) -> list[Seat]:
        taken: Counter[str] = Counter()
        seats: list[Seat] = []
        for name, _ in stages:
            seats.append((name, taken[name]))
            taken[name] += 1
        return seats

    def _stage(self, shape: Shape, seat: Seat, layers: int, first: bool, last: bool) -> StageCost:
        key = _alike_in_time(shape.on(seat[0])), self._standing(shape, seat), layers, first, last
        if key not in self._stages:
            self._stages[key] = self._at(shape, seat, 2).of(layers, first, last)
        return self._stages[key]

    def _at(self, shape: Shape, seat: Seat, pp: int) -> StageCosts:
        """Costs of a stage of a pipeline of one stage (pp 1) or of several (pp 2)."""
        shape = shape.on(seat[0])
        key = _alike_in_time(shape), self._standing(shape, seat), pp
        if key not in self._costs:
            config, where = self._config(key[0], pp), (key[1], shape.tp, shape.dp)
            if where not in self._paces:  # the same for every microbatch size, schedule and ZeRO stage
                rows = ReplicaRows.of(self.fleet, self._devices(shape, key[1]))
                self._paces[where] = CollectiveCosts(self.fleet, config, rows, self._capacities)
            self._costs[key] = StageCosts(self.workload, config, self._paces[where])
        return self._costs[key]

    def _standing(self, shape: Shape, seat: Seat) -> Seat:
        """The first stage of the cluster with the same position on its nodes as this one."""
        per_node = self.clusters[seat[0]].node.count // shape.tp_on(seat[0])
        alike = per_node // math.gcd(per_node, shape.dp)
        return seat[0], seat[1] % alike

    def _devices(self, shape: Shape, seat: Seat) -> tuple[tuple[Device, ...], ...]:
        """Devices of a stage by replica; slots fill one node after the other."""
        shape = shape.on(seat[0])
        per_node = self.clusters[seat[0]].node.count // shape.tp
        found = []
        for index in range(seat[1] * shape.dp, (seat[1] + 1) * shape.dp):
            node, position = divmod(index, per_node)
            found.append(tuple(Device(seat[0], node, position * shape.tp + rank) for rank in range(shape.tp)))
        return tuple(found)

    def _hop(self, shape: Shape, replica: int, source: Seat, target: Seat, nbytes: Bytes, operation: str) -> Seconds:
        """Seconds of a message or all_reduce between two stages of a replica on an idle network."""
        key = source, target, replica, shape.tp, shape.cluster_tp, shape.dp, nbytes, operation
        if key not in self._hops:
            a, b = (self._devices(shape, seat)[replica][0] for seat in (source, target))
            self._hops[key] = self._pair(a, b, nbytes, operation)
        return self._hops[key]

    def _pair(self, source: Device, target: Device, nbytes: Bytes, operation: str) -> Seconds:
        """Least seconds between two devices over any NIC type that joins them; infinite if none does."""
        key = source, target, nbytes, operation
        if key not in self._pairs:
            kinds = self._kinds(source, target)
            self._pairs[key] = min((self._over(source, target, nbytes, operation, k) for k in kinds), default=math.inf)
        return self._pairs[key]

    def _kinds(self, source: Device, target: Device) -> Iterator[str]:
        if (source.cluster, source.node) == (target.cluster, target.node):
            yield "intra_node"
            return
        for nic in self.clusters[source.cluster].node.nics:
            joined = trunk_path(self.fleet, source.cluster, target.cluster, nic.kind) is not None
            if joined and self.clusters[target.cluster].node.nic(nic.kind) is not None:
                yield nic.kind

    def _over(self, source: Device, target: Device, nbytes: Bytes, operation: str, kind: str) -> Seconds:
        with suppress(NoRoute):
            if operation == "send_recv":
                return messages_alpha_beta(self.fleet, ((source, target, kind),), self._capacities).seconds(nbytes)
            found = protocol_costs(self.fleet, (member((source, target), kind, "ring"),), operation, self._capacities)
            return min(one.cost.seconds(nbytes) for one in found)
        return math.inf


@functools.lru_cache(maxsize=65536)
def _alike_in_time(shape: Shape) -> Shape:
    """A shape with equal stage costs, as a cache key: of a schedule only matters whether it splits the backward."""
    if schedules.get(shape.schedule).SPLITS_BACKWARD:
        return replace(shape, schedule="zb-h1")
    return shape


@functools.lru_cache(maxsize=65536)
def _alike_in_memory(shape: Shape) -> Shape:
    """A shape whose stages need the same memory, as a cache key."""
    return replace(shape, overlap_param_gather=True)


def evenly_options(cluster: Cluster, shape: Shape, stages: Stages) -> tuple[bool, ...]:
    """Values of `evenly` (`planner.placement.ranks.build`) to try: a pipeline of one stage may also use its nodes evenly."""
    per_node = cluster.node.count // shape.tp
    return (False, True) if len(stages) == 1 and shape.dp > per_node else (False,)
