"""The symmetry reduction is exact: one simulated rank of each class has the timeline of all ranks of the class."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.engine import simulate
from sim.engine.symmetry import fold, unfolded
from sim.engine.timeline import Timeline
from sim.hardware.cluster import Device, Fabric, Fleet, Trunk
from sim.plan.plan import Plan
from tests import builders
from tests.builders import any_plan, cluster, device, fleet, nic

History = list[tuple[tuple[str, str, str, int, int], float, float]]
"""What a span is, with its begin and end."""


def history(timeline: Timeline, rank: int) -> History:
    """Spans of a rank, sorted. A folded rank sends one message to a class of peers and shares one sum with it; the spans of
    those to several peers are joined."""
    found: History = []
    joined: dict[tuple[str, str, str, int, int], tuple[float, float]] = {}
    for span in timeline.of(rank):
        what = span.lane, span.name, span.kind, span.stage, span.microbatch
        if span.kind == "send" or (span.kind == "collective" and span.group == "embedding"):
            begin, end = joined.get(what, (span.start, span.end))
            joined[what] = min(begin, span.start), max(end, span.end)
        else:
            found.append((what, span.start, span.end))
    return sorted([*found, *((what, *both) for what, both in joined.items())])


def times(spans: History) -> list[float]:
    """Begin and end of every span."""
    return [moment for _, *both in spans for moment in both]


def without_rounding(timeline: Timeline) -> Timeline:
    """Spans shorter than a billionth of the step are rounding of equal times, and left out."""
    kept = tuple(span for span in timeline.spans if span.seconds > 1e-9 * timeline.step_s)
    return Timeline(
        timeline.name, timeline.origin, timeline.plan_digest, timeline.step_s, timeline.tokens, timeline.flops,
        timeline.alike, kept, timeline.events,
    )  # fmt: skip


def assert_alike(plan: Plan) -> None:
    folded, whole = without_rounding(simulate(plan, fold(plan))), without_rounding(simulate(plan, unfolded(plan)))
    assert folded.step_s == pytest.approx(whole.step_s, rel=1e-9, abs=0)
    for rank in range(plan.config.world_size):
        mine, other = history(folded, rank), history(whole, rank)
        assert [what for what, *_ in mine] == [what for what, *_ in other]
        assert times(mine) == pytest.approx(times(other), rel=1e-9, abs=1e-9 * whole.step_s)


@settings(max_examples=15)
@given(data=st.data())
def test_folded_and_unfolded_timelines_are_equal_for_every_rank(data: st.DataObject) -> None:
    assert_alike(data.draw(any_plan()))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved"])
def test_sixty_four_ranks_on_two_clusters_fold_exactly(schedule: str) -> None:
    ethernet = nic("ethernet", 3e9, latency=5e-5, overhead=3e-5, efficiency=0.8)
    east = cluster("east", 4, 8, (nic("infiniband", 2.5e10, 4, latency=1e-5), ethernet), fabric=Fabric(2, 2.0))
    west = cluster("west", 4, 8, (nic("roce", 2.5e10, 2, latency=1e-5), ethernet))
    machines = fleet(east, west, trunks=(Trunk(("east", "west"), "ethernet", 5e9, 1e-3),))
    assert_alike(builders.plan(machines, tp=4, pp=4, dp=4, microbatches=4, schedule=schedule, shape={"tied_embeddings": True}))


def test_a_uniform_cluster_folds_to_one_class_a_pipeline_rank() -> None:
    plan = builders.plan(fleet(cluster(nodes=8, devices=8)), tp=4, pp=4, dp=4, microbatches=4)
    folding = fold(plan)
    assert folding.sizes == (16, 16, 16, 16)
    assert folding.representatives == (0, 16, 32, 48)


def test_without_folding_every_rank_is_a_class() -> None:
    plan = builders.plan(fleet(cluster(nodes=2, devices=4)), tp=2, pp=2, dp=2)
    assert unfolded(plan).classes == (0, 1, 2, 3, 4, 5, 6, 7)


def test_a_replica_with_more_microbatches_is_in_a_class_of_its_own() -> None:
    plan = builders.plan(fleet(cluster(nodes=4, devices=1)), pp=1, dp=4, microbatches=(2, 2, 3, 2))
    assert fold(plan).classes[2] not in {fold(plan).classes[rank] for rank in (0, 1, 3)}


def test_a_replica_on_another_device_is_in_a_class_of_its_own() -> None:
    fast, slow = cluster("fast", 2, 2), cluster("slow", 1, 2, spec=device("slow", 1e12))
    trunk = Trunk(("fast", "slow"), "infiniband", 1e11, 0.0)
    plan = builders.plan(fleet(fast, slow, trunks=(trunk,)), tp=2, dp=3)
    assert [len(set(fold(plan).classes[2 * r : 2 * r + 2])) for r in range(3)] == [1, 1, 1]
    assert fold(plan).classes[4] not in fold(plan).classes[:4]


def test_ranks_behind_a_narrower_leaf_are_in_classes_of_their_own() -> None:
    """Nodes 0 and 1 share a leaf; node 2 has the next one to itself. Pipelines 0 -> 1 stay under one leaf, 2 -> 3 do not."""
    machines = fleet(cluster(nodes=4, devices=1, fabric=Fabric(3, 8.0)))
    assert len(fold(builders.plan(machines, pp=2, dp=2)).representatives) == 4


def test_a_fleet_of_a_thousand_equal_ranks_has_two_classes() -> None:
    machines: Fleet = fleet(cluster(nodes=128, devices=8))
    assert fold(builders.plan(machines, tp=8, pp=2, dp=64)).sizes == (512, 512)


def test_a_replica_whose_messages_cross_a_trunk_is_in_a_class_of_its_own() -> None:
    """Replica 0 stays on its node, replica 1 sends its activations over the trunk: the same program, another route."""
    machines = fleet(cluster("a", 1, 3), cluster("b", 1, 1), trunks=(Trunk(("a", "b"), "infiniband", 1e9, 0.0),))
    crossing = (Device("a", 0, 0), Device("a", 0, 2), Device("a", 0, 1), Device("b", 0, 0))
    assert len(fold(builders.plan(machines, pp=2, dp=2, placement=crossing)).representatives) == 4


def test_a_trunk_as_wide_as_a_nic_is_not_in_its_class() -> None:
    """Two nodes a side: a NIC carries the messages of its node's two ranks, the trunk those of all four."""
    nics = (nic("infiniband"), nic("ethernet", 1e9))
    sides = [cluster(name, 2, 2, nics) for name in "ab"]
    assert_alike(builders.plan(fleet(*sides, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),)), pp=2, dp=4))
