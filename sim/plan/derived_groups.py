"""Groups that follow from a plan but are not listed in it: for gradients and for tied embeddings."""

from __future__ import annotations

from collections.abc import Iterable

from sim.plan.groups import Group, with_transport
from sim.plan.plan import Plan


def embedding_groups(plan: Plan, groups: Iterable[Group]) -> tuple[Group, ...]:
    """The ranks of every pipeline among `groups` that hold the same part of a tied embedding, those of the first stage and of
    the head: they all_reduce its gradient in a ring of two. Where one of both has a smaller tp, its ranks are in several."""
    head = plan.head_stage % plan.config.pp
    pipelines = ((group, sorted(group.ranks)) for group in groups if group.kind == "pp")
    ends = {(ranks[0], ranks[head]): group for group, ranks in pipelines}
    return tuple(Group("embedding", pair, group.nic, group.transport, "ring") for pair, group in ends.items())


def gradient_groups(plan: Plan) -> tuple[Group, ...]:
    """Groups that reduce gradients: kind dp for dense weights, and kind edp for experts under expert parallelism.

    Without cp the groups for dense weights are the plan's dp groups. With cp each of them spans cp of those (Megatron-LM's
    dp-cp and expert-data-parallel groups). Groups that are not in the plan get the NIC that `common_transport` selects, and the
    collective of the dp groups of their pipeline rank, else a ring.
    """
    config = plan.config
    listed = tuple(group for group in plan.groups if group.kind == "dp")
    chosen = {config.coordinates(group.ranks[0])[2]: group.collective for group in listed}
    sets: list[tuple[str, range]] = []
    if config.cp > 1:
        sets.append(("dp", range(config.dp_cp)))
    if config.ep > 1 and config.edp > 1:
        sets += [("edp", range(first, config.dp_cp, config.ep)) for first in range(config.ep)]
    derived = (
        (kind, tuple(config.rank(tp, index, pp) for index in indices), chosen.get(pp, "ring"))
        for pp in range(config.pp)
        for kind, indices in sets
        for tp in range(config.tp_of(pp))
    )
    return (listed if config.cp == 1 else ()) + tuple(with_transport(plan.fleet, plan.placement, derived))
