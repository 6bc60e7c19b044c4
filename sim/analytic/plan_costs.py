"""Closed form of the step of a plan on an idle network, and an upper bound on its throughput.

The costs of its stages (`sim.analytic.stage_costs`) and of the messages between them add up to the step; the
engine simulates the same work with contention.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

import numpy as np

from sim.analytic.equal_replicas import microbatches_of, replica_classes, rows_of
from sim.analytic.pipeline_step import PipelineStage, stage_ends, weights_owed
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.hardware.cluster import Device, Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import payloads
from sim.kernels.launches import stage_message_seconds
from sim.kernels.messages import Messages, pairs_between
from sim.network.alpha_beta import AlphaBeta, alpha_beta_cost
from sim.network.collective_costs import CollectiveCosts
from sim.network.p2p_load import P2PLoad
from sim.network.paths import Capacities
from sim.network.protocols import protocols
from sim.network.replica_rows import ReplicaRows
from sim.network.rings import Sites
from sim.network.routes import member, message_route
from sim.plan import schedules
from sim.plan.derived_groups import embedding_groups, gradient_groups
from sim.plan.expert_parallelism import matches_tp, mesh_rows
from sim.plan.groups import Group, chains
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Seconds


def pipeline_rank_devices(plan: Plan, pp_rank: int) -> tuple[tuple[Device, ...], ...]:
    """Devices of a pipeline rank: a row for each rank of a dense weight's gradient group, a column for each tp rank."""
    config = plan.config
    return tuple(
        plan.placement[(first := config.rank(0, dp_cp, pp_rank)) : first + config.tp_of(pp_rank)]
        for dp_cp in range(config.dp_cp_of(pp_rank))
    )


class PlanCosts:
    """Costs of a plan's stages and messages for a class of equivalent replicas (`replica_classes`), and its step.

    fastest: collectives are those that take least time, not the plan's. Raises NotModelled for stages with unlike microbatch
    sizes."""

    def __init__(self, plan: Plan, fastest: bool = False):
        plan.config.needs_engine("the closed form")
        self.plan, self.capacities = plan, Capacities(plan.fleet)
        self._chosen: list[dict[str, str]] = [{} for _ in range(plan.config.pp)]
        listed = (group for group in plan.groups if group.kind not in ("pp", "dp"))
        self._rings: dict[tuple[Device, ...], tuple[Device, ...]] = {}
        for group in (*listed, *gradient_groups(plan)) if not fastest else ():
            self._chosen[plan.config.coordinates(group.ranks[0])[2]][group.kind] = group.collective
            ranked = tuple(sorted(group.ranks))
            if group.ranks != ranked:
                self._rings[tuple(plan.placement[rank] for rank in ranked)] = tuple(plan.placement[r] for r in group.ranks)
        nics = {tuple(sorted(group.ranks)): group.nic for group in plan.groups if group.kind == "pp"}
        self._nics = [nics[chain] for chain in chains(plan.config)]
        self._collectives: dict[int, CollectiveCosts] = {}
        self._alike: dict[object, CollectiveCosts] = {}
        self._messages: dict[tuple[object, ...], AlphaBeta] = {}
        self._sizes = Messages(plan)
        self._in_class: dict[tuple[CollectiveCosts, tuple[int, ...]], CollectiveCosts] = {}

    def of(self, plan: Plan) -> PlanCosts:
        """Costs of a plan that differs in nothing but the numbers of microbatches; both share what is computed."""
        other = copy.copy(self)
        other.plan = plan
        return other

    def stage(self, pp_rank: int, replicas: tuple[int, ...], entry: bool = False) -> StageCost:
        """Cost of all stages of a pipeline rank together, or (`entry`) of its first virtual stage; messages included."""
        plan, config = self.plan, self.plan.config
        stages = plan.stages_of(pp_rank)[:1] if entry else plan.stages_of(pp_rank)
        layers = sum(plan.stages[stage].layers for stage in stages)
        cost = self.at(pp_rank, replicas, stages).of(layers, *plan.ends(stages), specs := self.specs(pp_rank, replicas))
        ahead = self.message(pp_rank, pp_rank + 1, replicas) if pp_rank + 1 < config.pp else 0.0
        if schedules.get(config.schedule).OVERLAPS_SENDS:
            return cost._replace(lane=ahead * (1 if entry else config.vpp))
        back = self.message(pp_rank, pp_rank - 1, replicas) if pp_rank else 0.0
        ends = self._sizes.is_sent(pp_rank - 1), self._sizes.is_sent(pp_rank)
        forward, backward, *after = stage_message_seconds(specs, config, *ends)
        passes = cost.forward + forward, cost.backward + backward, *cost[2:6], ahead + after[0], back + after[1]
        return StageCost(*passes, *cost[8:10], cost.received + forward)

    @functools.cached_property
    def sites(self) -> Sites:
        """Cluster, node and leaf of each rank."""
        return Sites(self.plan)

    def at(self, pp_rank: int, replicas: tuple[int, ...], stages: tuple[int, ...]) -> StageCosts:
        """Costs of some stages of a pipeline rank on its devices."""
        every, rows = self.collectives_of(pp_rank), rows_of(self.plan.config, pp_rank, replicas)
        if (every, rows) not in self._in_class:
            self._in_class[every, rows] = every.among(rows)
        facts = self.plan.workload_of(stages), self.plan.config_of(stages), self._in_class[every, rows]
        return StageCosts(*facts, self._sizes.passes(stages))

    def collectives_of(self, pp_rank: int) -> CollectiveCosts:
        """Costs of the collectives of a pipeline rank, over all its devices."""
        if pp_rank not in self._collectives:
            rows = ReplicaRows.of(self.plan.fleet, pipeline_rank_devices(self.plan, pp_rank))
            chosen, config = self._chosen[pp_rank], self.plan.config
            degrees = config.cp_of(pp_rank), config.ep_of(pp_rank), config.etp_of(pp_rank) or config.tp_of(pp_rank)
            own = config.zero_of(pp_rank), *degrees
            key = pp_rank if self._rings else (rows.pattern(self.plan.fleet), *own, *sorted(chosen.items()))
            if key not in self._alike:
                facts = self.plan.fleet, self.plan.config_of((pp_rank,)), rows, self.capacities, chosen, self._rings
                self._alike[key] = CollectiveCosts(*facts)
            self._collectives[pp_rank] = self._alike[key]
        return self._collectives[pp_rank]

    def specs(self, pp_rank: int, replicas: tuple[int, ...]) -> tuple[DeviceSpec, ...]:
        """Device types of a pipeline rank."""
        plan, config = self.plan, self.plan.config
        (row,) = rows_of(config, pp_rank, replicas[:1])
        ranks = (config.rank(tp, row, pp_rank) for tp in range(config.tp_of(pp_rank)))
        return tuple(dict.fromkeys(plan.fleet.spec(plan.placement[rank]) for rank in ranks))

    def message(self, source: int, target: int, replicas: tuple[int, ...]) -> Seconds:
        """Seconds of a message between two pipeline ranks; all replicas of the class send simultaneously, nothing else does."""
        plan, config = self.plan, self.plan.config
        if min(source, target) >= plan.head_stage:
            return 0.0  # after the head there are no messages
        key: tuple[object, ...] = source, target, replicas
        if key not in self._messages:
            most = max(config.tp_of(source), config.tp_of(target))
            rows = {(config.row_of(part, source), config.row_of(part, target)): part for part in sorted(replicas, reverse=True)}
            if config.stage_cp:
                self._messages[key] = self._of_tokens(source, target, rows)
                return self._messages[key].seconds(self._sizes.nbytes(source, target))
            pairs = sorted(rows, key=rows.__getitem__)
            index, slices = np.repeat([rows[pair] for pair in pairs], most), np.tile(np.arange(most), len(pairs))
            here, there = (
                config.first_rank(pp_rank)
                + config.tp_of(pp_rank) * np.repeat([pair[at] for pair in pairs], most)
                + slices * config.tp_of(pp_rank) // most
                for at, pp_rank in enumerate((source, target))
            )
            nics = [self._nics[chain] for chain in (config.tp * index + slices * (config.tp // most)).tolist()]
            self._messages[key] = P2PLoad(plan, self.sites, here, there, nics).alpha_beta_cost("send_recv", self.capacities)
        return self._messages[key].seconds(self._sizes.nbytes(source, target))

    def _of_tokens(self, source: int, target: int, rows: Container[tuple[int, int]]) -> AlphaBeta:
        """`message` between stages of unlike cp: all transfers between some pairs of dp_cp indices of both."""
        row = {
            rank: self.plan.config.coordinates(rank)[1] for pair in pairs_between(self.plan, source, target) for rank in pair
        }
        pairs = {(a, b): nic for (a, b), nic in pairs_between(self.plan, source, target).items() if (row[a], row[b]) in rows}
        ends = np.array(list(pairs))
        load = P2PLoad(self.plan, self.sites, ends[:, 0], ends[:, 1], list(pairs.values()))
        return load.alpha_beta_cost("send_recv", self.capacities)

    def step(self, replicas: tuple[int, ...], tied: Seconds, known: Sequence[PipelineStage] = ()) -> Seconds:
        """Seconds of a step of a class of replicas (`sim.analytic.pipeline_step`). tied: what `tied_seconds` returns.
        known: what `pipeline_ranks` returns, if that was called before."""
        config = self.plan.config
        microbatches = microbatches_of(config, replicas[0])
        owed, ranks = weights_owed(config, config.pp, microbatches), known or self.pipeline_ranks(replicas)
        ends = stage_ends(ranks, config, microbatches, tied, owed, config.rank_of(self.plan.head_stage))
        return max(end.seconds for end in ends)

    def pipeline_ranks(self, replicas: tuple[int, ...]) -> list[PipelineStage]:
        """The pipeline ranks of a class of replicas; they do not depend on the number of microbatches."""
        return [self._pipeline_rank(pp_rank, replicas) for pp_rank in range(self.plan.config.pp)]

    def _pipeline_rank(self, pp_rank: int, replicas: tuple[int, ...]) -> PipelineStage:
        cost, has_several = self.stage(pp_rank, replicas), len(self.plan.stages_of(pp_rank)) > 1
        entry = self.stage(pp_rank, replicas, entry=True) if has_several else cost
        if not pp_rank:
            return PipelineStage(cost, entry.forward, entry.inputs)
        there, back = self.message(pp_rank - 1, pp_rank, replicas), self.message(pp_rank, pp_rank - 1, replicas)
        return PipelineStage(cost, entry.forward, entry.inputs, there, back)


def messages_alpha_beta(
    fleet: Fleet, pairs: tuple[tuple[Device, Device, str], ...], capacities: Capacities, times: tuple[int, ...] = ()
) -> AlphaBeta:
    """Latency and seconds per byte of simultaneous messages, one for each (source, target, NIC), on an idle network.

    `times`: number of copies of each message on trunks (`sim.network.alpha_beta`). Two devices of one node use the node's
    interconnect, whatever NIC their pipeline group has.
    """
    routes = [
        message_route(fleet, a, b, "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else nic) for a, b, nic in pairs
    ]
    return alpha_beta_cost(tuple(routes), capacities, times)


def tied_seconds(found: PlanCosts) -> Seconds:
    """Seconds of the all-reduce of a tied embedding's gradient between first and last stage, all replicas at once; 0 where
    nothing is tied.

    Where the ranks of one of both stages reduce gradients at unlike speeds, their sums begin one after the other: then that of
    the last one alone; 0 if weights are gathered after the sum, where the last one may have less to gather than others, or not
    at all."""
    plan, config = found.plan, found.plan.config
    nbytes = payloads.tied_bytes(plan.workload, config, plan.head_stage)
    if not nbytes:
        return 0.0
    groups = embedding_groups(plan, plan.groups)
    if all(found.collectives_of(pp_rank).reduce_together for pp_rank in (0, config.rank_of(plan.head_stage))):
        sides = [groups]
    elif not config.of_pp_rank(0).gathers_ahead:
        return 0.0
    else:
        sides = [groups[kind : kind + 1] for kind in _kinds(_there_and_back(found, groups))]
    return min(cost.seconds(nbytes) for side in sides for cost in _sums(found, side))


def _there_and_back(found: PlanCosts, groups: Sequence[Group]) -> P2PLoad:
    """Transfers of embedding groups, rings of two."""
    ends, nics = np.array([group.ranks for group in groups]), [group.nic for group in groups for _ in range(2)]
    return P2PLoad(found.plan, found.sites, ends.ravel(), ends[:, ::-1].ravel(), nics)


def _kinds(pairs: P2PLoad) -> list[int]:
    """The first embedding group of each kind."""
    return list(dict.fromkeys((pairs.firsts // 2).tolist()))


def _sums(found: PlanCosts, groups: Sequence[Group]) -> Iterator[AlphaBeta]:
    """Costs of the all-reduces of embedding groups side by side, by protocol."""
    plan, pairs = found.plan, _there_and_back(found, groups)
    every = (groups[one] for one in _kinds(pairs))
    members = tuple(member(tuple(plan.placement[rank] for rank in one.ranks), one.nic, "ring") for one in every)
    for protocol in protocols(plan.fleet, members, "all_reduce"):
        there, back = (pairs.path(way, "all_reduce", protocol) for way in (0, 1))
        latency = max(there.overhead, back.overhead) + (there.latency + back.latency)
        yield AlphaBeta(latency, pairs.per_byte("all_reduce", found.capacities, protocol))


def step_seconds(plan: Plan) -> Seconds:
    """Closed form of a step in seconds: that of the slowest class of replicas (`sim.analytic.pipeline_step`).

    It is a lower bound of the step on an idle network, and meant to hold for the engine, too."""
    return steps_seconds([plan])[0]


def steps_seconds(plans: Sequence[Plan]) -> list[Seconds]:
    """`step_seconds` of plans that differ in nothing but the numbers of microbatches."""
    found, ranks = PlanCosts(plans[0]), dict[tuple[int, ...], list[PipelineStage]]()
    tied, steps = tied_seconds(found), list[Seconds]()
    for plan in plans:
        classes = replica_classes(plan)
        for replicas in classes:
            if replicas not in ranks:
                ranks[replicas] = found.pipeline_ranks(replicas)
        steps.append(max(found.of(plan).step(replicas, tied, ranks[replicas]) for replicas in classes))
    return steps


def upper_bound_seconds(plan: Plan) -> Seconds:
    """Step in seconds if all devices were always busy: HETHUB's upper bound on throughput (arXiv 2405.16256).

    A device computes at the speed that it reaches alone, in a replica of one stage on its own cluster with the plan's tp, ep,
    microbatch size (the largest of the cluster's stages) and recomputation (none where that is by stage): tensor-parallel
    collectives included, no bubble, no pipeline or data-parallel communication. All devices of the fleet count.
    """
    config, workload = plan.config, plan.workload
    rate = 0.0
    degrees, sizes = dict[str, int](), dict[str, int]()
    for pp_rank, tp in enumerate(config.degrees):
        name, own = plan.placement[config.first_rank(pp_rank)].cluster, config.size_of(pp_rank) // config.split_of(pp_rank)
        degrees[name], sizes[name] = tp, max(own, sizes.get(name, own))
    whole = replace(plan.config_of(range(config.num_stages)), microbatch_size=config.microbatch_size)
    whole = whole.recomputing("none") if config.stage_recompute else whole
    for cluster in plan.fleet.clusters:
        if not cluster.node.device.runs(workload.precision):
            continue
        width = min(degrees.get(cluster.name, config.tp), cluster.node.count)
        ring = tuple(Device(cluster.name, 0, index) for index in range(width))
        size = sizes.get(cluster.name, config.microbatch_size)
        alone = _single_stage(replace(whole, microbatch_size=size), width)
        collectives = CollectiveCosts(plan.fleet, alone, ReplicaRows.of(plan.fleet, (ring,)), Capacities(plan.fleet))
        seconds = sum(StageCosts(workload, alone, collectives).work(workload.model.layers, True, True))
        rate += cluster.devices / width * size / seconds
    return workload.global_batch_size / rate


def _single_stage(config: ParallelConfig, tp: int) -> ParallelConfig:
    """The configuration of one stage alone with another tp, and as few replicas as hold each expert, evenly loaded."""
    etp = config.etp if matches_tp(tp, config.ep, config.etp) else None
    rows = mesh_rows(tp, config.ep, etp)
    return replace(
        config, tp=tp, pp=1, dp=rows, cp=1, vpp=1, etp=etp, stage_tp=(), schedule="1f1b", num_microbatches=(1,) * rows,
        zero_shard_size=None, tied_shards=False, imbalance=1.0, exchange=None,
        sequence_parallel=config.sequence_parallel and tp > 1,
    )  # fmt: skip
