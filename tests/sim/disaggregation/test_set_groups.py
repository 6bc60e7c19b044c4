"""Communication groups of two sets of ranks."""

from __future__ import annotations

from sim.disaggregation.set_groups import group_members, set_groups
from tests.sim.disaggregation.builders import machines, stage


def listed(**options: object) -> list[tuple[str, tuple[int, ...]]]:
    return [(group.kind, group.ranks) for group in set_groups(stage(machines(4, 2), batch=24, microbatches=3, **options))]


def test_groups_have_consecutive_ranks_of_both_sets():
    """Ranks 0 to 3 have attention, 4 and 5 experts."""
    whole = stage(machines(4, 2), batch=24, groups=2, microbatches=3)
    assert group_members(whole) == ((0, 1, 4), (2, 3, 5))


def test_ranks_with_the_same_experts_sum_their_gradients():
    exchanges = [("dispatch", (0, 1, 4)), ("dispatch", (2, 3, 5)), ("combine", (0, 1, 4)), ("combine", (2, 3, 5))]
    dense, expert_ranks = ("dp", (0, 1, 2, 3)), ("edp", (4, 5))
    assert listed(groups=2) == [*exchanges, dense, expert_ranks]
    assert listed(groups=2, kept=(0, 4)) == [*exchanges, dense, ("edp", (0, 2)), ("edp", (1, 3)), expert_ranks]


def test_one_group_sums_dense_gradients_alone():
    everyone = tuple(range(6))
    assert listed() == [("dispatch", everyone), ("combine", everyone), ("dp", (0, 1, 2, 3))]


def test_groups_use_the_nic_that_joins_their_ranks():
    (first, *_) = set_groups(stage())
    assert (first.kind, first.nic, first.transport) == ("dispatch", "infiniband", "rdma")
