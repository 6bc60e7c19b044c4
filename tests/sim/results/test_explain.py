"""Every second of a step is accounted for, on every rank and along the chain that sets the step."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.engine import simulate
from sim.engine.symmetry import unfolded
from sim.engine.timeline import Span, Timeline
from sim.hardware.cluster import Fleet, Trunk
from sim.kernels import compute
from sim.plan.plan import Plan
from sim.results.explain import Account, Explanation, critical_path, explain
from tests import builders
from tests.builders import any_plan, cluster, device, fleet, nic, wire
from tests.sim.ideal_machines import FREE


@pytest.fixture
def free_wires() -> Fleet:
    """Eight nodes of one device, and communication that takes no time."""
    fast = cluster(nodes=8, nics=(nic(bandwidth=FREE),), intra_node=wire(bandwidth=FREE))
    return fleet(replace(fast, node=replace(fast.node, device=replace(fast.node.device, host_bandwidth=FREE))))


def explained(plan: Plan) -> Explanation:
    return explain(plan, simulate(plan))


def said(plan: Plan) -> list[str]:
    return [passage.text for passage in explained(plan).chain]


def layer(plan: Plan) -> tuple[float, float]:
    """Forward and backward seconds of one layer and microbatch on the first device."""
    return compute.layer_seconds(plan.fleet.spec(plan.placement[0]), plan.workload, plan.config)


# both accounts add up


@given(data=st.data())
def test_the_parts_of_every_rank_add_up_to_the_step(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=16))
    found = explained(plan)
    assert sum(account.ranks for account in found.ranks) == plan.config.world_size
    for account in found.ranks:
        assert account.total == pytest.approx(found.step_s, rel=1e-12)
        assert all(seconds > 0 for _, seconds in account.seconds)
    assert sum(seconds for _, seconds in found.mean) == pytest.approx(found.step_s, rel=1e-12)


@given(data=st.data())
def test_the_critical_path_leads_without_a_gap_from_the_begin_to_the_end(data: st.DataObject) -> None:
    timeline = simulate(data.draw(any_plan(ranks=16)))
    path = critical_path(timeline)
    assert path[0].start == 0
    assert path[-1].end == timeline.step_s
    assert all(earlier.end == later.start for earlier, later in pairwise(path))
    assert all(span.lane != "wait" for span in path)


@given(data=st.data())
def test_the_parts_of_the_critical_path_add_up_to_the_step(data: st.DataObject) -> None:
    found = explained(data.draw(any_plan(ranks=16)))
    assert sum(account.total for account in found.path) == pytest.approx(found.step_s, rel=1e-12)
    assert sum(passage.seconds for passage in found.chain) == pytest.approx(found.step_s, rel=1e-12)
    assert [p.start for p in found.chain[1:]] == pytest.approx([p.start + p.seconds for p in found.chain[:-1]], rel=1e-12)


@given(data=st.data())
def test_folded_ranks_are_explained_as_unfolded_ones(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=16))
    folded, whole = explained(plan), explain(plan, simulate(plan, unfolded(plan)))
    for kind, seconds in whole.mean:
        assert dict(folded.mean).get(kind, 0.0) == pytest.approx(seconds, rel=1e-8, abs=1e-8 * whole.step_s)


# where the seconds of a rank go


def test_one_device_only_computes() -> None:
    plan = builders.plan(fleet(cluster()), microbatches=4)
    (account,) = explained(plan).ranks
    assert [kind for kind, _ in account.seconds] == ["forward", "backward", "optimizer"]
    assert (account.pp_rank, account.rank, account.ranks) == (0, 0, 1)
    assert account.of("bubble") == 0


def test_equal_stages_wait_p_minus_one_slots(free_wires: Fleet, free_ends: None) -> None:
    plan = builders.plan(free_wires, pp=4, microbatches=8)
    forward, backward = layer(plan)
    for account in explained(plan).ranks:
        assert dict(account.seconds) == pytest.approx(
            {"forward": 8 * 2 * forward, "backward": 8 * 2 * backward, "bubble": 3 * 2 * (forward + backward)}, rel=1e-9
        )


def test_full_recomputation_is_the_forward_again(free_wires: Fleet, free_ends: None) -> None:
    (account,) = explained(builders.plan(free_wires, microbatches=3, recompute="full")).ranks
    assert account.of("recompute") == pytest.approx(account.of("forward"), rel=1e-9)
    (without,) = explained(builders.plan(free_wires, microbatches=3)).ranks
    assert account.of("backward") == pytest.approx(without.of("backward"), rel=1e-9)


def test_communication_is_listed_by_kind_of_group() -> None:
    plan = builders.plan(
        fleet(cluster(nodes=4, devices=2)), tp=2, pp=2, dp=2, shape={"tied_embeddings": True},
        overlap_grad_reduce=False, overlap_param_gather=False,
    )  # fmt: skip
    for account in explained(plan).ranks:
        assert {kind for kind, _ in account.seconds} >= {"tp", "pp", "dp", "embedding"}


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("overlap", [True, False])
def test_equal_replicas_have_no_bubble(zero_stage: int, overlap: bool) -> None:
    """What a bucket waits for the bucket before it is communication, not a bubble."""
    plan = builders.plan(
        fleet(cluster(nodes=4)), dp=4, microbatches=2, layers=(6,), zero_stage=zero_stage,
        overlap_grad_reduce=overlap, overlap_param_gather=overlap, shape={"hidden": 3072},
    )  # fmt: skip
    (account,) = explained(plan).ranks
    assert account.of("dp") > 0
    assert account.of("bubble") == 0


# what sets the step


def test_a_path_follows_what_each_span_came_after() -> None:
    """Rank 1 waits for the message of rank 0; what rank 0 does after it has sent is not on the path."""
    spans = (
        Span(0, "compute", "F0", "F", 0.0, 2.0, 0, 0),
        Span(0, "send", "send F0", "send", 2.0, 3.0, 0, 0, "pp", after=0),
        Span(1, "wait", "recv F0", "exposed", 0.0, 3.0, 1, 0, "pp"),
        Span(0, "compute", "F1", "F", 2.0, 4.0, 0, 1, after=0),
        Span(1, "compute", "F0", "F", 3.0, 6.0, 1, 0, after=1),
    )
    timeline = Timeline("t", "simulated", "", 6.0, 1, 1.0, ((0,), (1,)), spans)
    assert [(span.rank, span.name) for span in critical_path(timeline)] == [(0, "F0"), (0, "send F0"), (1, "F0")]


def test_the_slow_stage_sets_the_pace(free_wires: Fleet, free_ends: None) -> None:
    """Four layers on the last stage, two on the others: fill, eight slots of the last stage, drain."""
    plan = builders.plan(free_wires, pp=3, microbatches=8, layers=(2, 2, 4))
    assert said(plan) == [
        "stages 0 to 1, each: forward",
        "stage 2: 8 x (forward, backward)",
        "stages 1 to 0, each: backward",
    ]
    forward, backward = layer(plan)
    last = explained(plan).path[2]
    assert dict(last.seconds) == pytest.approx({"forward": 8 * 4 * forward, "backward": 8 * 4 * backward}, rel=1e-9)


def test_a_slow_wire_is_on_the_path() -> None:
    machines = fleet(cluster("a"), cluster("b"), trunks=(Trunk(("a", "b"), "infiniband", 1e3, 0.0),))
    plan = builders.plan(machines, pp=2)
    found = explained(plan)
    assert said(plan) == ["stage 0: forward, send", "stage 1: forward, backward, send back", "stage 0: backward, optimizer"]
    assert sum(account.of("pp") for account in found.path) > 0.99 * found.step_s


def test_a_collective_waits_for_the_last_of_its_ranks() -> None:
    """Replica 1 stands on the slow device: the path is its compute, the reduction and the optimizer step after it."""
    slow = cluster("slow", spec=device("slow", speed=1e12, memory_bandwidth=1e11))
    machines = fleet(cluster("fast"), slow, trunks=(Trunk(("fast", "slow"), "infiniband", 1e9, 0.0),))
    plan = builders.plan(machines, dp=2, overlap_grad_reduce=False, overlap_param_gather=False)
    path = critical_path(simulate(plan))
    assert [(span.rank, span.name) for span in path] == [
        (1, "F0"), (1, "B0"), (1, "dp reduce_scatter"), (1, "optimizer"), (1, "dp all_gather")
    ]  # fmt: skip
    assert said(plan) == ["stage 0 (rank 1): forward, backward, dp reduce_scatter, optimizer, dp all_gather"]


def test_a_faster_device_off_the_critical_path_changes_nothing() -> None:
    slow = cluster("slow", spec=device("slow", speed=1e12))
    trunk = Trunk(("fast", "slow"), "infiniband", 1e9, 0.0)

    def step(speed: float) -> float:
        fast = cluster("fast", spec=device("fast", speed=speed))
        plan = builders.plan(fleet(fast, slow, trunks=(trunk,)), dp=2)
        assert {span.rank for span in critical_path(simulate(plan))} == {1}
        return simulate(plan).step_s

    assert step(1e13) == step(1e14)


def test_repetitions_are_listed_once(free_ends: None) -> None:
    """Where messages take long, the middle of a 1F1B pipeline sets the pace: it sends twice for every microbatch."""
    far = fleet(cluster(nodes=3, nics=(nic(bandwidth=FREE, latency=1e-3),)))
    assert said(builders.plan(far, microbatches=5, schedule="gpipe")) == ["stage 0: 5 x forward, 5 x backward"]
    assert said(builders.plan(far, pp=3, microbatches=6))[2] == "stage 1: 4 x (backward, send back, forward, send)"


def test_round_trips_are_listed_once(free_wires: Fleet) -> None:
    there = [(0, "compute", "F"), (0, "send", "send"), (1, "compute", "B"), (1, "return", "send"), (0, "compute", "W")]
    spans = tuple(
        Span(rank, lane, "", kind, time, time + 1.0, rank, time // 5, after=time - 1)
        for time, (rank, lane, kind) in enumerate(3 * there)
    )
    plan = builders.plan(free_wires, pp=2, microbatches=3)
    found = explain(plan, replace(simulate(plan), spans=spans, step_s=15.0))
    assert [(p.start, p.seconds, p.text) for p in found.chain] == [
        (0.0, 2.0, "stage 0: forward, send"),
        (2.0, 10.0, "2 x (stage 1: backward, send back; stage 0: weight gradient, forward, send)"),
        (12.0, 2.0, "stage 1: backward, send back"),
        (14.0, 1.0, "stage 0: weight gradient"),
    ]


def test_every_type_of_device_has_its_layer() -> None:
    both = cluster("fast", nodes=2), cluster("slow", spec=device("slow", speed=1e12))
    trunk = Trunk(("fast", "slow"), "infiniband", 1e9, 0.0)
    plan = builders.plan(fleet(*both, trunks=(trunk,)), pp=3, recompute="full")
    fast, slow = explained(plan).layers
    assert (fast.device, slow.device) == ("ideal", "slow")
    assert sum(kernel.forward for kernel in fast.kernels) < sum(kernel.forward for kernel in slow.kernels)
    without = replace(plan.config, recompute="none")
    assert slow.backward == compute.layer_seconds(plan.fleet.spec(plan.placement[2]), plan.workload, without)[1]


def test_facts_are_plain_data(free_wires: Fleet, free_ends: None) -> None:
    plan = builders.plan(free_wires, microbatches=2)
    forward, backward = (pytest.approx(4 * seconds, rel=1e-9) for seconds in layer(plan))
    both = {"forward": forward, "backward": backward}
    step = pytest.approx(4 * sum(layer(plan)), rel=1e-9)
    kernels = compute.kernel_times(plan.fleet.spec(plan.placement[0]), plan.workload, plan.config)
    assert explained(plan).facts() == {
        "step_s": step,
        "ranks": [{"stage": 0, "rank": 0, "ranks": 1, "seconds": both}],
        "mean": both,
        "critical_path": [{"stage": 0, "seconds": both}],
        "chain": [{"start_s": 0.0, "seconds": step, "what": "stage 0: 2 x (forward, backward)"}],
        "layers": [
            {
                "device": "ideal",
                "forward": layer(plan)[0],
                "backward": layer(plan)[1],
                "kernels": tuple(map(asdict, kernels)),
                "measured": False,
            }
        ],
    }


def test_an_explanation_is_a_line_when_printed() -> None:
    """Three ranks that only compute, one that only waits: a mean rank computes three quarters of the step."""
    ranks = (Account(0, 0, 3, (("forward", 2.0),)), Account(1, 3, 1, (("bubble", 2.0),)))
    assert repr(Explanation(2.0, ranks, (), (), ())) == "a step of 2 s, of a mean rank: forward 75.0%, bubble 25.0%"


def test_a_stage_after_the_head_only_waits() -> None:
    plan = builders.plan(fleet(cluster(devices=3)), pp=3, microbatches=4, layers=(2, 2, 0), head=1, recompute="full")
    found = explain(plan, simulate(plan))
    last = found.ranks[-1]
    assert (last.pp_rank, last.of("forward"), last.of("backward"), last.of("recompute")) == (2, 0.0, 0.0, 0.0)
    assert last.of("bubble") + last.of("optimizer") == pytest.approx(found.step_s)
