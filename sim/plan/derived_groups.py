"""Groups that follow from a plan but are not listed in it: for gradients and for tied embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sim.plan.groups import Group, with_transport
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan


def every_group(plan: Plan | PipelinesPlan) -> tuple[Group, ...]:
    """The groups of a plan and those that reduce its gradients, in ranks of the whole plan."""
    if not isinstance(plan, PipelinesPlan):
        return (*plan.groups, *gradient_groups(plan))
    found = [
        replace(group, ranks=tuple(first + rank for rank in group.ranks))
        for first, pipeline in zip(plan.first_ranks, plan.pipelines, strict=True)
        for group in pipeline.groups
    ]
    sums = (*plan.gradient_groups(), *plan.expert_gradient_groups())
    return (*found, *(group for _, groups in sums for group in groups))


def embedding_groups(plan: Plan, groups: Iterable[Group]) -> tuple[Group, ...]:
    """The ranks of every pipeline among `groups` that hold the same part of a tied embedding, those of the first stage and of
    the head: they all_reduce its gradient in a ring of two. Where one of both has a smaller tp, its ranks are in several.
    Both have the same dp."""
    head = plan.config.rank_of(plan.head_stage)
    pipelines = ((group, sorted(group.ranks)) for group in groups if group.kind == "pp")
    ends = {(ranks[0], ranks[head]): group for group, ranks in pipelines}
    return tuple(Group("embedding", pair, group.nic, group.transport, "ring") for pair, group in ends.items())


def gradient_groups(plan: Plan) -> tuple[Group, ...]:
    """Groups that reduce gradients: kind dp for dense weights, and kind edp for experts under expert parallelism.

    On stages without cp the groups for dense weights are the plan's dp groups. With cp each of them spans cp of those
    (Megatron-LM's dp-cp and expert-data-parallel groups). Groups that are not in the plan get the NIC that `common_transport`
    selects, and the collective of the dp groups of their pipeline rank, else a ring. None for a pipeline beside unlike ones,
    whose ranks sum gradients with theirs (`sim.plan.pipelines.PipelinesPlan.gradient_groups`).
    """
    config = plan.config
    if config.other_dp_cp:
        return ()
    listed = tuple(group for group in plan.groups if group.kind == "dp")
    chosen = {config.coordinates(group.ranks[0])[2]: group.collective for group in listed}
    sets: list[tuple[str, int, slice]] = []
    for pp in range(config.pp):
        tp = config.tp_of(pp)
        sets += [("dp", pp, slice(first, None, tp)) for first in range(tp if config.cp_of(pp) > 1 else 0)]
        if config.splits_experts:
            sets += [("edp", pp, own) for own in config.of_pp_rank(pp).expert_slices("edp")]
    stages = [range(config.first_rank(pp), config.first_rank(pp + 1)) for pp in range(config.pp)]
    derived = ((kind, tuple(stages[pp][own]), chosen.get(pp, "ring")) for kind, pp, own in sets)
    alone = tuple(group for group in listed if config.cp_of(config.coordinates(group.ranks[0])[2]) == 1)
    return alone + tuple(with_transport(plan.fleet, plan.placement, derived))
