"""Placement problems of the layers of a plan: links, rates and devices of its ep groups, and tokens of expert counts.

Rates of links are those of the simulator (`sim.network.token_exchange`), bytes and passes those of its collectives
(`sim.kernels.payloads`), and seconds of the experts those of its kernels, as the slope of a layer's seconds over the tokens of
the busiest rank (`sim.kernels.compute`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.experts.problem import ExpertProblem, Numbers, Pairs, Ranks
from sim.errors import OptionError
from sim.hardware.cluster import Device
from sim.kernels import beside, compute, payloads
from sim.network.paths import LinkName
from sim.network.token_exchange import token_exchange
from sim.plan.expert_parallelism import DEDUPLICATED
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Bytes, Seconds
from sim.workload.expert_counts import ExpertCounts, LayerCounts
from sim.workload.workload import Workload

Devices = tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class BlockProblem:
    """The problem of ep groups that run side by side, the names of its links, and the seconds of all exchanges with equal
    shares among all ranks. `groups`: ranks of all ep groups with this problem."""

    problem: ExpertProblem
    links: tuple[LinkName, ...]
    even: Seconds
    groups: tuple[tuple[int, ...], ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for blocks whose problems have equal numbers."""
        own = self.problem
        pairs = (own.pairs.experts, own.pairs.saved.tobytes(), own.pairs.domain) if own.pairs else ()
        arrays = (own.tokens, own.dispatch, own.combine, own.compute)
        return own.slots, own.nodes, own.clusters, own.passes, own.sent, pairs, *(one.tobytes() for one in arrays)


@dataclass(frozen=True, slots=True)
class LayerProblem:
    """The problems of one layer: one for each different block of ep groups of its stage, all of which get one placement,
    because ranks of equal index in their ep groups hold copies of one expert and sum its gradient."""

    layer: int
    blocks: tuple[BlockProblem, ...]


def layer_problems(plan: Plan, counts: ExpertCounts, replicas: int = 0) -> tuple[LayerProblem, ...]:
    """Problems of all layers with experts. Raises OptionError where plan, counts and replicas do not fit."""
    _check(plan, counts, replicas)
    found = []
    for pp_rank in range(plan.config.pp):
        stages = plan.stages_of(pp_rank)
        own = [layer for stage in stages for layer in range(plan.stages[stage].first, plan.stages[stage].past_last)]
        layers = [layer for layer in own if plan.workload.model.kinds(layer, layer + 1)[0][1].experts]
        known: dict[int, LayerProblem] = {}
        for layer in layers:
            of_layer = counts.of(layer)
            if of_layer is None:
                raise OptionError(
                    f"{counts.where}: layer {layer} has experts, but no entry; add one with layer: {layer}, or one for all"
                )
            if id(of_layer) not in known:
                blocks = (_block(plan, pp_rank, groups, of_layer, replicas) for groups in _groups(plan, pp_rank))
                known[id(of_layer)] = LayerProblem(layer, _distinct(blocks))
            found.append(replace(known[id(of_layer)], layer=layer))
    return tuple(sorted(found, key=lambda one: one.layer))


def _distinct(blocks: Iterable[BlockProblem]) -> tuple[BlockProblem, ...]:
    """One block for each different problem, with the groups of all that have it."""
    found: dict[object, BlockProblem] = {}
    for block in blocks:
        before = found.get(block.key)
        found[block.key] = replace(before, groups=before.groups + block.groups) if before else block
    return tuple(found.values())


def _check(plan: Plan, counts: ExpertCounts, replicas: int) -> None:
    config, model = plan.config, plan.workload.model
    if config.stage_ep or config.stage_etp:
        raise OptionError("the stages of the plan divide their experts in unlike ways (stage_ep, stage_etp): not placed here")
    if config.ep == 1:
        raise OptionError("the plan has ep 1: every rank holds all experts; make one with --ep above 1")
    if config.capacity_factor is not None:
        raise OptionError(
            f"the plan has capacity_factor {config.capacity_factor:g}: which tokens are dropped is not part of the counts; "
            "make the plan without it"
        )
    if counts.experts != model.experts:
        raise OptionError(f"{counts.layers[0].where}: {counts.experts} experts, but {model.name} has {model.experts}")
    most = (config.ep - 1) * model.experts
    if replicas % config.ep or replicas > most:
        near = min(max(config.ep, round(replicas / config.ep) * config.ep), most)
        raise OptionError(
            f"--replicas {replicas}: a multiple of ep {config.ep} up to {most} is needed, so that all ranks have equally many "
            f"slots; {near} would do"
        )


def _groups(plan: Plan, pp_rank: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Ranks of the ep groups of a pipeline rank that run side by side: those that share dp_cp indices."""
    config, blocks = plan.config, dict[int, list[tuple[int, ...]]]()
    ranks = range(config.first_rank(pp_rank), config.first_rank(pp_rank + 1))
    for own in config.expert_slices("ep", len(ranks)):
        group = tuple(ranks[own])
        blocks.setdefault(config.coordinates(group[0])[1] // config.expert_rows, []).append(group)
    yield from map(tuple, blocks.values())


def _block(plan: Plan, pp_rank: int, groups: tuple[tuple[int, ...], ...], counts: LayerCounts, replicas: int) -> BlockProblem:
    devices = tuple(tuple(plan.placement[rank] for rank in group) for group in groups)
    nics = {tuple(sorted(group.ranks)): group.nic for group in plan.groups if group.kind == "ep"}
    used = {nics[tuple(sorted(group))] for group in groups}
    exchange = token_exchange(plan.fleet, devices, next((nic for nic in sorted(used) if nic != "intra_node"), "intra_node"))
    config = replace(plan.config_of(plan.stages_of(pp_rank)), imbalance=1.0, exchange=None)
    number, workload = _with_experts(plan, pp_rank)
    sent, passes = _exchanged(workload, config, number)
    nodes, hosts = _nodes(devices)
    pairs = _pairs(counts, workload, config, nodes)
    model = workload.model
    chosen = model.experts_per_token
    unit = sent * chosen / config.copies(model.experts, chosen, model.n_group, model.topk_group) if pairs else sent
    dispatch, combine = (
        unit * np.stack([seconds[:, list(node), :].sum(1) for node in nodes], axis=1)
        for seconds in (exchange.per_byte, exchange.per_byte.transpose(0, 2, 1))
    )
    even = passes * sum(float(one.sum((1, 2)).max(initial=0.0)) for one in (dispatch, combine)) / config.ep
    if pairs:
        dispatch, combine = (_spread(seconds, pairs.domain) for seconds in (dispatch, combine))
    problem = ExpertProblem(
        (model.experts + replicas) // config.ep, nodes, tuple(host.cluster for host in hosts),
        _tokens(counts, hosts, model.experts), dispatch, combine, passes, _slopes(plan, devices, workload, config), unit, pairs,
    )  # fmt: skip
    return BlockProblem(problem, exchange.links, even * sent / unit if unit else 0.0, groups)


def _with_experts(plan: Plan, pp_rank: int) -> tuple[int, Workload]:
    """(number, workload) of the layers with experts of a pipeline rank."""
    stages = plan.stages_of(pp_rank)
    layers = sum(plan.stages[stage].layers for stage in stages)
    return next(pair for pair in plan.workload_of(stages).alike(layers) if pair[1].model.experts)


def _exchanged(workload: Workload, config: ParallelConfig, layers: int) -> tuple[Bytes, float]:
    """(bytes of one rank's choices, exchanges of each direction of one layer and microbatch, forward and backward); no bytes
    where the dispatcher sends every token to every rank."""
    ways = (False, True)
    found = [one for back in ways for one in payloads.expert_collectives(workload, config, layers, back)]
    exchanges = [(nbytes, count) for kind, operation, nbytes, count in found if (kind, operation) == ("ep", "all_to_all")]
    exchanges += [(one.nbytes, one.times) for back in ways for one in beside.beside_launches(workload, config, layers, back)]
    return (exchanges[0][0], sum(count for _, count in exchanges) / layers / 2) if exchanges else (0.0, 0.0)


def _nodes(devices: tuple[Devices, ...]) -> tuple[Ranks, tuple[Device, ...]]:
    """(ranks of each node, a device of each node) of groups side by side; ranks whose devices are on the same nodes are one."""
    found: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank, own in enumerate(zip(*devices, strict=True)):
        found.setdefault(tuple((device.cluster, device.node) for device in own), []).append(rank)
    nodes = tuple(tuple(ranks) for ranks in found.values())
    return nodes, tuple(devices[0][node[0]] for node in nodes)


def _tokens(counts: LayerCounts, hosts: tuple[Device, ...], experts: int) -> Numbers:
    """Shares of the experts in the choices of a rank of each node."""
    rows = []
    for host in hosts:
        shares = counts.shares(host.cluster, host.node)
        if shares is None:
            raise OptionError(
                f"{counts.where}: no tokens of node {host.cluster}/node{host.node}, on which the plan has ranks; known: "
                f"{', '.join(counts.by_source)}"
            )
        rows.append(shares)
    return np.array(rows).reshape(len(hosts), experts)


def _pairs(counts: LayerCounts, workload: Workload, config: ParallelConfig, nodes: Ranks) -> Pairs | None:
    """Pairs of experts, where the dispatcher sends a token once to each node or, inside one node, to each rank."""
    if not counts.together or config.dispatcher not in DEDUPLICATED:
        return None
    saved = np.array([tokens for _, _, tokens in counts.together]) * 2.0 / workload.model.experts_per_token / counts.whole
    node_of = {rank: index for index, node in enumerate(nodes) for rank in node}
    domain = tuple(node_of[rank] if len(nodes) > 1 else rank for rank in range(config.ep))
    return Pairs(tuple(pair[:2] for pair in counts.together), saved, domain)


def _spread(seconds: Numbers, domain: tuple[int, ...]) -> Numbers:
    """Seconds where the tokens for a domain are divided equally among its ranks."""
    of = np.array(domain)
    means = np.stack([seconds[:, :, of == one].mean(axis=2) for one in range(of.max() + 1)], axis=2)
    spread: Numbers = means[:, :, of]
    return spread


def _slopes(plan: Plan, devices: tuple[Devices, ...], workload: Workload, config: ParallelConfig) -> Numbers:
    """Seconds of a layer, forward and backward, that each rank needs for the mean of tokens more; the slowest of the groups."""

    def slope(device: Device) -> Seconds:
        spec = plan.fleet.spec(device)
        twice = sum(compute.layer_seconds(spec, workload, replace(config, imbalance=2.0)))
        return max(twice - sum(compute.layer_seconds(spec, workload, config)), 0.0)

    return np.array([max(map(slope, own)) for own in zip(*devices, strict=True)])
