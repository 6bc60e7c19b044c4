"""The engine keeps the laws of pipelines: slots, bubbles, who waits for whom; and it is never faster than the closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.engine.symmetry import fold
from sim.engine.timeline import Timeline, to_json
from sim.hardware.cluster import Device, Fabric, Fleet, Trunk
from sim.kernels import compute
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.results.report import split

Make = Callable[..., Any]
FREE = 1e40
"""A bandwidth at which nothing takes time."""


@pytest.fixture
def free_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding, head and optimizer cost nothing, so that equal layers make equal stages."""
    monkeypatch.setattr(compute, "embedding_seconds", lambda *_: (0.0, 0.0))
    monkeypatch.setattr(compute, "head_parts", lambda *_: (0.0, 0.0, 0.0))
    monkeypatch.setattr(compute, "optimizer_seconds", lambda *_: 0.0)


@pytest.fixture
def free_wires(make_fleet: Make, make_cluster: Make, make_nic: Make, make_wire: Make) -> Fleet:
    """Eight nodes of eight devices, and communication that takes no time."""
    fast = make_cluster(nodes=8, devices=8, nics=(make_nic(bandwidth=FREE),), intra_node=make_wire(bandwidth=FREE))
    return make_fleet(replace(fast, node=replace(fast.node, device=replace(fast.node.device, host_bandwidth=FREE))))


def slot(plan: Plan, layers: int) -> float:
    """Forward and backward of `layers` layers and one microbatch."""
    device = plan.fleet.spec(plan.placement[0])
    return layers * sum(compute.layer_seconds(device, plan.workload, plan.config))


def with_fleet(plan: Plan, fleet: Fleet) -> Plan:
    """The same plan on other machines."""
    return replace(plan, topology=replace(plan.topology, fleet=fleet))


def with_devices(plan: Plan, faster: float) -> Plan:
    """The same plan on devices that are `faster` times as fast in every respect but the fixed time of a kernel."""
    clusters = []
    for cluster in plan.fleet.clusters:
        device = cluster.node.device
        spec = replace(
            device,
            peak=tuple((name, rate * faster) for name, rate in device.peak),
            memory_bandwidth=device.memory_bandwidth * faster,
        )
        clusters.append(replace(cluster, node=replace(cluster.node, device=spec)))
    return with_fleet(plan, replace(plan.fleet, clusters=tuple(clusters)))


def with_nics(plan: Plan, faster: float) -> Plan:
    """The same plan with NICs of `faster` times the bandwidth."""
    clusters = []
    for cluster in plan.fleet.clusters:
        nics = tuple(replace(nic, bandwidth=nic.bandwidth * faster) for nic in cluster.node.nics)
        clusters.append(replace(cluster, node=replace(cluster.node, nics=nics)))
    return with_fleet(plan, replace(plan.fleet, clusters=tuple(clusters)))


def last_end(timeline: Timeline, kind: str) -> float:
    return max(span.end for span in timeline.spans if span.kind == kind)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("m", "p"), [(1, 1), (4, 1), (1, 4), (4, 2), (8, 4), (3, 8), (16, 8)])
def test_equal_stages_take_m_plus_p_minus_one_slots(
    schedule: str, m: int, p: int, make_plan: Make, free_wires: Fleet, free_ends: None
) -> None:
    plan = make_plan(free_wires, pp=p, microbatches=m, schedule=schedule)
    assert simulate(plan).step_s == pytest.approx((m + p - 1) * slot(plan, layers=2), rel=1e-9)


@pytest.mark.parametrize(("m", "p", "v"), [(4, 2, 2), (8, 2, 2), (8, 4, 2), (12, 4, 3), (16, 8, 2), (2, 2, 1), (8, 4, 1)])
def test_interleaving_divides_the_bubble_by_the_number_of_chunks(
    m: int, p: int, v: int, make_plan: Make, free_wires: Fleet, free_ends: None
) -> None:
    plan = make_plan(free_wires, pp=p, vpp=v, microbatches=m, schedule="interleaved")
    chunk = slot(plan, layers=2)
    assert simulate(plan).step_s == pytest.approx(m * v * chunk + (p - 1) * chunk, rel=1e-9)


@pytest.mark.parametrize(("m", "p"), [(4, 1), (4, 2), (8, 4), (4, 4), (16, 8)])
def test_zb_h1_leaves_p_minus_one_times_f_plus_b_minus_w_of_the_bubble(
    m: int, p: int, make_plan: Make, free_wires: Fleet, free_ends: None
) -> None:
    """Qi et al., arXiv 2401.10241, table 2."""
    plan = make_plan(free_wires, pp=p, microbatches=m, schedule="zb-h1")
    parts = compute.layer_parts(plan.fleet.spec(plan.placement[0]), plan.workload, plan.config)
    f, b, w = (2 * seconds for seconds in parts)
    assert w < f < b
    assert simulate(plan).step_s == pytest.approx(m * (f + b + w) + (p - 1) * (f + b - w), rel=1e-9)
    assert plan_costs.step_seconds(plan) == pytest.approx(simulate(plan).step_s, rel=1e-9)


def test_zb_h2_idles_less_and_ends_one_stage_after_the_other(make_plan: Make, free_wires: Fleet, free_ends: None) -> None:
    """Table 2 again: place 0 idles (p - 1)(F + B - 2 W); the last place begins (p - 1) F later and never idles."""
    plan = make_plan(free_wires, pp=4, microbatches=8, schedule="zb-h2")
    parts = compute.layer_parts(plan.fleet.spec(plan.placement[0]), plan.workload, plan.config)
    f, b, w = (2 * seconds for seconds in parts)
    timeline = simulate(plan)
    done = [[s for s in timeline.of(rank) if s.lane == "compute"] for rank in (0, 3)]
    idle = [spans[-1].end - spans[0].start - sum(s.seconds for s in spans) for spans in done]
    assert idle == pytest.approx([3 * (f + b - 2 * w), 0.0], rel=1e-9, abs=1e-12)
    assert done[1][0].start == pytest.approx(3 * f, rel=1e-9)


def test_a_slow_stage_sets_the_pace(make_plan: Make, free_wires: Fleet, free_ends: None) -> None:
    """Four layers on the last stage, two on the first: one slot of the first, then eight of the last."""
    plan = make_plan(free_wires, pp=2, microbatches=8, layers=(2, 4))
    assert simulate(plan).step_s == pytest.approx(slot(plan, layers=2) + 8 * slot(plan, layers=4), rel=1e-9)


def test_the_replica_with_most_microbatches_sets_the_pace(make_plan: Make, free_wires: Fleet, free_ends: None) -> None:
    plan = make_plan(free_wires, pp=2, dp=3, microbatches=(2, 5, 1))
    assert simulate(plan).step_s == pytest.approx((5 + 2 - 1) * slot(plan, layers=2), rel=1e-9)


def test_a_pipeline_of_two_as_a_timetable(make_plan: Make, free_wires: Fleet, free_ends: None) -> None:
    """1F1B, two places, two microbatches; times in units of a forward f and a backward b."""
    plan = make_plan(free_wires, pp=2, microbatches=2)
    f, b = (2 * seconds for seconds in compute.layer_seconds(plan.fleet.spec(plan.placement[0]), plan.workload, plan.config))
    timeline = simulate(plan)
    done = [(s.rank, s.name, s.start, s.end) for rank in (0, 1) for s in timeline.of(rank) if s.lane == "compute"]
    expected = [
        (0, "F0", 0.0, f),
        (0, "F1", f, 2 * f),
        (0, "B0", 2 * f + b, 2 * f + 2 * b),
        (0, "B1", 3 * f + 2 * b, 3 * f + 3 * b),
        (1, "F0", f, 2 * f),
        (1, "B0", 2 * f, 2 * f + b),
        (1, "F1", 2 * f + b, 3 * f + b),
        (1, "B1", 3 * f + b, 3 * f + 2 * b),
    ]
    assert [row[:2] for row in done] == [row[:2] for row in expected]
    assert [t for row in done for t in row[2:]] == pytest.approx([t for row in expected for t in row[2:]], rel=1e-9)


def test_a_message_takes_overhead_latency_and_bytes_over_bandwidth(
    make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make
) -> None:
    """64 tokens of 96 values of 2 bytes are 12,288 bytes: 12.288 us at 1 GB/s, and 25 us before."""
    card = make_nic(bandwidth=1e9, latency=5e-6, overhead=20e-6)
    timeline = simulate(make_plan(make_fleet(make_cluster(nodes=2, nics=(card,))), pp=2))
    sent = [(span.name, span.rank, span.seconds) for span in timeline.spans if span.kind == "send"]
    assert sent == [("send F0", 0, pytest.approx(37.288e-6, rel=1e-9)), ("send B0", 1, pytest.approx(37.288e-6, rel=1e-9))]


def test_a_sender_waits_until_its_message_has_left_unless_the_schedule_overlaps_it(
    make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make
) -> None:
    machines = make_fleet(make_cluster(nodes=2, nics=(make_nic(bandwidth=1e6),)))

    def gap_after_first_forward(schedule: str) -> float:
        spans = [s for s in simulate(make_plan(machines, pp=2, microbatches=4, schedule=schedule)).of(0) if s.lane == "compute"]
        return spans[1].start - spans[0].end

    assert gap_after_first_forward("gpipe") == pytest.approx(12.288e-3, rel=1e-9)
    assert gap_after_first_forward("interleaved") == 0.0


def test_overlapped_communication_slows_compute_by_the_interference_of_its_link(
    make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make
) -> None:
    """The gather of the parameters of stage 1 lies behind all of its forward: 1.25 times as long."""

    def last_forward(interference: float) -> float:
        card = make_nic(bandwidth=1e9, interference=interference)
        machines = make_fleet(make_cluster(nodes=2, nics=(card,)))
        plan = make_plan(machines, dp=2, layers=(64,), shape={"hidden": 3072}, seq_len=2048, overlap_grad_reduce=False)
        first = next(span for span in simulate(plan).of(0) if span.kind == "F")
        return first.seconds

    assert last_forward(0.25) == pytest.approx(1.25 * last_forward(0.0), rel=1e-9)


@given(data=st.data())
def test_every_second_of_every_rank_is_compute_exposed_communication_or_bubble(data: st.DataObject, plans: Make) -> None:
    plan = data.draw(plans(ranks=16))
    timeline = simulate(plan)
    for rank in range(plan.config.world_size):
        assert sum(split(timeline.of(rank))) == pytest.approx(timeline.step_s, rel=1e-9)


@given(data=st.data())
def test_a_rank_computes_everything_its_schedule_asks_for_once(data: st.DataObject, plans: Make) -> None:
    plan = data.draw(plans(ranks=16))
    timeline = simulate(plan)
    for rank in range(plan.config.world_size):
        _, dp_cp, place = plan.config.place(rank)
        wanted = [
            (kind, stage, m)
            for kind in ("FBW" if schedules.get(plan.config.schedule).SPLITS_BACKWARD else "FB")
            for stage in plan.stages_of(place)
            for m in range(plan.config.num_microbatches[dp_cp // plan.config.cp])
        ]
        computed = {(s.kind, s.stage, s.microbatch) for s in timeline.of(rank) if s.kind in ("F", "B", "W")}
        assert computed == set(wanted)


@given(data=st.data())
def test_no_forward_begins_before_the_stage_ahead_has_ended_it(data: st.DataObject, plans: Make) -> None:
    plan = data.draw(plans(ranks=16))
    timeline, config = simulate(plan), plan.config
    for dp in range(config.dp):
        ends, begins = {}, {}
        for place in range(config.pp):
            for span in timeline.of(config.rank(0, dp * config.cp, place)):
                key = span.kind, span.stage, span.microbatch
                ends[key] = max(span.end, ends.get(key, 0.0))
                begins[key] = min(span.start, begins.get(key, span.start))
        for m in range(config.num_microbatches[dp]):
            for stage in range(1, config.num_stages):
                assert begins["F", stage, m] >= ends["F", stage - 1, m]
                assert begins["B", stage - 1, m] >= ends["B", stage, m]
            assert begins["B", config.num_stages - 1, m] >= ends["F", config.num_stages - 1, m]
            weights = [stage for stage in range(config.num_stages) if ("W", stage, m) in begins]
            assert all(begins["W", stage, m] >= ends["B", stage, m] for stage in weights)


@given(data=st.data())
def test_the_closed_form_is_never_later_than_the_engine_where_replicas_are_alike(data: st.DataObject, plans: Make) -> None:
    plan = data.draw(plans(ranks=32))
    chunks = [{plan.stages[stage].layers for stage in plan.stages_of(place)} for place in range(plan.config.pp)]
    assume(len(fold(plan).representatives) == plan.config.pp and all(len(sizes) == 1 for sizes in chunks))
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


def test_chunks_of_different_sizes_do_not_make_the_closed_form_late(make_plan: Make, free_wires: Fleet) -> None:
    """Places 1 and 2 begin with the first of their chunks, which is not the mean of them."""
    plan = make_plan(free_wires, pp=3, vpp=2, microbatches=6, layers=(1, 1, 3, 3, 1, 3), schedule="interleaved")
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


@pytest.mark.parametrize("shards", [None, 2])
def test_the_closed_form_goes_round_a_ring_as_it_is_listed(
    shards: int | None, make_plan: Make, make_fleet: Make, make_cluster: Make
) -> None:
    """Ranks alternate between two leaves with a narrow spine; the ring of the second plan enters each leaf once."""
    machines = make_fleet(make_cluster(nodes=4, fabric=Fabric(2, 8.0)))
    placement = tuple(Device("c", node, 0) for node in (0, 2, 1, 3))
    ranked = make_plan(machines, dp=4, placement=placement, zero_shard_size=shards)
    listed = replace(ranked, groups=tuple(replace(group, ranks=(0, 2, 1, 3)) for group in ranked.groups))
    for plan in (ranked, listed):
        assert plan_costs.step_seconds(plan) == pytest.approx(simulate(plan).step_s, rel=1e-9)
    if shards is None:  # blocks of shards go on in the order of ranks
        assert simulate(listed).step_s < simulate(ranked).step_s


def test_a_slow_replica_is_not_charged_for_the_microbatches_of_a_fast_one(
    make_plan: Make, make_fleet: Make, make_cluster: Make, make_device: Make
) -> None:
    """Three microbatches on the fast device, one on the device of a third of its speed: both need the same time."""
    fast, slow = make_cluster("fast", spec=make_device("fast", 3e10)), make_cluster("slow", spec=make_device("slow", 1e10))
    machines = make_fleet(fast, slow, trunks=(Trunk(("fast", "slow"), "infiniband", 1e12, 0.0),))
    plan = make_plan(machines, dp=2, microbatches=(3, 1))
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


def test_slices_of_a_message_are_gathered_before_the_first_bucket_of_weights_is_waited_for(
    make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make, make_wire: Make, make_device: Make
) -> None:
    """Wires that take time by latency alone: the gather of a message, 0.1 s, lies within that of weights, 3 s."""
    inside, chip = make_wire(bandwidth=FREE, latency=0.1), make_device(host_bandwidth=FREE)

    def place(name: str, latency: float) -> Any:
        return make_cluster(name, 4, 2, (make_nic(bandwidth=FREE, latency=latency),), chip, inside)

    machines = make_fleet(place("a", 0.0), place("b", 1.0), trunks=(Trunk(("a", "b"), "infiniband", FREE, 0.0),))
    plan = make_plan(machines, tp=2, pp=2, dp=4)
    assert plan_costs.step_seconds(plan) == pytest.approx(simulate(plan).step_s, rel=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_one_replica_of_one_stage_takes_exactly_the_closed_form(
    schedule: str,
    tp: int,
    recompute: str,
    sequence_parallel: bool,
    make_plan: Make,
    make_fleet: Make,
    make_cluster: Make,
    make_wire: Make,
) -> None:
    machines = make_fleet(make_cluster(devices=8, intra_node=make_wire(latency=1e-6, overhead=8e-6, efficiency=0.7)))
    plan = make_plan(
        machines, tp=tp, microbatches=5, layers=(3,), recompute=recompute, sequence_parallel=sequence_parallel and tp > 1,
        schedule=schedule,
    )  # fmt: skip
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize("zero_stage", [0, 1])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("hidden", [96, 3072])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_data_parallel_replicas_take_exactly_the_closed_form(
    schedule: str,
    zero_stage: int,
    overlap: bool,
    hidden: int,
    make_plan: Make,
    make_fleet: Make,
    make_cluster: Make,
    make_nic: Make,
) -> None:
    machines = make_fleet(make_cluster(nodes=4, nics=(make_nic(latency=5e-6, overhead=8e-6),)))
    plan = make_plan(
        machines, dp=4, microbatches=3, layers=(6,), shape={"hidden": hidden}, zero_stage=zero_stage,
        overlap_grad_reduce=overlap, overlap_param_gather=overlap, schedule=schedule,
    )  # fmt: skip
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize(("m", "p"), [(1, 4), (4, 2), (8, 4), (16, 8)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_equal_stages_on_free_wires_take_exactly_the_closed_form(
    schedule: str, m: int, p: int, make_plan: Make, free_wires: Fleet, free_ends: None
) -> None:
    plan = make_plan(free_wires, pp=p, microbatches=m, schedule=schedule)
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@given(data=st.data())
def test_the_same_plan_gives_the_same_bytes(data: st.DataObject, plans: Make) -> None:
    plan = data.draw(plans(ranks=16))
    assert to_json(simulate(plan)) == to_json(simulate(plan))


@st.composite
def calm_plans(draw: st.DrawFn, make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make, make_wire: Make) -> Plan:
    """Plans in which no unlike flows ever meet on a link: one GPipe pipeline, or data parallelism across nodes alone.

    Elsewhere a faster NIC may bring two messages together that were apart before, and slow the more urgent one: fair sharing
    has the anomalies of list scheduling (Graham, SIAM J. Appl. Math. 1969), so there the law does not hold.
    """
    tp = draw(st.sampled_from([1, 2, 4]))
    slow = {"latency": draw(st.sampled_from([0.0, 1e-5])), "overhead": draw(st.sampled_from([0.0, 2e-5]))}
    card = make_nic(bandwidth=draw(st.sampled_from([1e7, 1e9, 1e11])), count=draw(st.integers(1, tp)), **slow)
    machines = make_fleet(make_cluster(nodes=8, devices=tp, nics=(card,), intra_node=make_wire(**slow)))
    pipeline = draw(st.booleans())
    degrees = {"pp": draw(st.integers(1, 8))} if pipeline else {"dp": draw(st.integers(1, 8))}
    layers = tuple(draw(st.lists(st.integers(1, 4), min_size=degrees.get("pp", 1), max_size=degrees.get("pp", 1))))
    return make_plan(
        machines, tp=tp, **degrees, layers=layers, microbatches=draw(st.integers(1, 6)), schedule="gpipe",
        shape={"hidden": draw(st.sampled_from([96, 3072]))}, recompute=draw(st.sampled_from(["none", "full"])),
        zero_stage=draw(st.integers(0, 3)), sequence_parallel=tp > 1 and draw(st.booleans()),
        overlap_grad_reduce=draw(st.booleans()), overlap_param_gather=draw(st.booleans()),
    )  # fmt: skip


@pytest.fixture(scope="session")
def calm(make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make, make_wire: Make) -> st.SearchStrategy[Plan]:
    return calm_plans(make_plan, make_fleet, make_cluster, make_nic, make_wire)


@given(data=st.data())
def test_nics_of_twice_the_bandwidth_are_never_slower(data: st.DataObject, calm: st.SearchStrategy[Plan]) -> None:
    plan = data.draw(calm)
    assert simulate(with_nics(plan, 2.0)).step_s <= simulate(plan).step_s * (1 + 1e-9)


@given(data=st.data())
def test_devices_of_twice_the_speed_are_never_slower(data: st.DataObject, calm: st.SearchStrategy[Plan]) -> None:
    plan = data.draw(calm)
    assert simulate(with_devices(plan, 2.0)).step_s <= simulate(plan).step_s * (1 + 1e-9)


def test_a_thin_nic_makes_a_step_longer_by_what_its_messages_take(
    make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make
) -> None:
    """One microbatch over four places: three messages forward and three back, 12,288 bytes each, nothing beside them."""

    def step(bandwidth: float) -> float:
        machines = make_fleet(make_cluster(nodes=4, nics=(make_nic(bandwidth=bandwidth),)))
        return simulate(make_plan(machines, pp=4)).step_s

    assert step(1e6) - step(2e6) == pytest.approx(6 * 12288 / 2e6, rel=1e-9)


@pytest.mark.parametrize(("pp", "layers"), [(1, (2, 2)), (2, (1, 1, 1, 1)), (2, (1, 1, 1, 3))])
def test_the_closed_form_of_virtual_stages_counts_no_reduction_that_hides(
    pp: int, layers: tuple[int, ...], make_plan: Make, make_fleet: Make, make_cluster: Make, make_nic: Make, make_wire: Make
) -> None:
    """Thin wires: gradients of the earlier virtual stages are on their way while the later ones compute."""
    machines = make_fleet(make_cluster(nodes=4, nics=(make_nic(bandwidth=1e9),), intra_node=make_wire(bandwidth=4e9)))
    plan = make_plan(machines, pp=pp, dp=2, vpp=2, microbatches=4, layers=layers, schedule="interleaved", shape={"hidden": 960})
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s


def test_groups_side_by_side_may_have_unlike_rounds(make_plan: Make, make_fleet: Make, make_cluster: Make) -> None:
    """The first tensor-parallel ranks stand on one node, the second on two: one hierarchical collective has no ring across."""
    on = [(0, replica) if rank == 0 else (1 + replica // 2, replica % 2) for replica in range(4) for rank in range(2)]
    placement = tuple(Device("c", node, index) for node, index in on)
    machines = make_fleet(make_cluster(nodes=3, devices=4))
    plan = make_plan(machines, tp=2, dp=4, zero_stage=0, placement=placement, collective={"dp": "hierarchical"})
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)
