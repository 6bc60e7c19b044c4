"""The communication groups of a plan with two sets of ranks, which are numbered set by set (`sim.disaggregation.plan`)."""

from __future__ import annotations

from collections.abc import Iterator

from sim.disaggregation.stage import DisaggregatedStage
from sim.hardware.transport import common_transport
from sim.plan.groups import Group

DISPATCH, COMBINE = "dispatch", "combine"
"""Kinds of groups, and streams, that carry tokens to their experts, and results back."""


def group_members(stage: DisaggregatedStage) -> tuple[tuple[int, ...], ...]:
    """The ranks of each group, attention ranks first."""
    m, n, first = stage.attention_ranks, stage.expert_ranks, len(stage.attention)
    return tuple(
        (*range(group * m, (group + 1) * m), *range(first + group * n, first + (group + 1) * n))
        for group in range(stage.groups)
    )


def set_groups(stage: DisaggregatedStage) -> tuple[Group, ...]:
    """All groups of several ranks: dispatch and combine of each group of ranks; dp, all attention ranks, which sum the
    gradients of dense weights; edp, ranks of equal number in their groups, which sum those of the experts that they hold."""
    return tuple(_with_transport(stage))


def _with_transport(stage: DisaggregatedStage) -> Iterator[Group]:
    devices = stage.attention + stage.experts
    for kind, ranks in _listed(stage):
        if len(ranks) > 1:
            nic, transport = common_transport(stage.topology.fleet, tuple(devices[rank] for rank in ranks))
            yield Group(kind, ranks, nic, transport, "ring")


def _listed(stage: DisaggregatedStage) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(kind, ranks) of all groups, in the order in which each of their ranks makes them."""
    members = group_members(stage)
    for kind in (DISPATCH, COMBINE):
        yield from ((kind, ranks) for ranks in members)
    yield "dp", tuple(range(len(stage.attention)))
    without = 0 if any(stage.kept) else stage.attention_ranks  # attention ranks without experts have none to sum
    yield from (("edp", alike) for alike in list(zip(*members, strict=True))[without:])
