"""Simulated steps: slots and bubbles of schedules, messages, interference, and laws that hold for every plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.engine.timeline import to_json
from sim.kernels import compute
from sim.plan import schedules
from sim.results.report import split
from sim.results.sums import seconds_by_rank
from tests import builders
from tests.builders import any_plan
from tests.sim.ideal_machines import free_wires, slot


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("m", "p"), [(1, 1), (4, 1), (1, 4), (4, 2), (8, 4), (3, 8), (16, 8)])
def test_equal_stages_take_m_plus_p_minus_one_slots(schedule: str, m: int, p: int, free_ends: None) -> None:
    plan = builders.plan(free_wires(), pp=p, microbatches=m, schedule=schedule)
    assert simulate(plan).step_s == pytest.approx((m + p - 1) * slot(plan, layers=2), rel=1e-9)


@pytest.mark.parametrize(("m", "p", "v"), [(4, 2, 2), (8, 2, 2), (8, 4, 2), (12, 4, 3), (16, 8, 2), (2, 2, 1), (8, 4, 1)])
def test_interleaving_divides_the_bubble_by_the_number_of_chunks(m: int, p: int, v: int, free_ends: None) -> None:
    plan = builders.plan(free_wires(), pp=p, vpp=v, microbatches=m, schedule="interleaved")
    chunk = slot(plan, layers=2)
    assert simulate(plan).step_s == pytest.approx(m * v * chunk + (p - 1) * chunk, rel=1e-9)


@pytest.mark.parametrize(("m", "p"), [(4, 1), (4, 2), (8, 4), (4, 4), (16, 8)])
def test_zb_h1_leaves_p_minus_one_times_f_plus_b_minus_w_of_the_bubble(m: int, p: int, free_ends: None) -> None:
    """Qi et al., arXiv 2401.10241, table 2."""
    plan = builders.plan(free_wires(), pp=p, microbatches=m, schedule="zb-h1")
    parts = compute.layer_parts(plan.fleet.spec(plan.placement[0]), plan.workload, plan.config)
    f, b, w = (2 * seconds for seconds in parts)
    assert w < f < b
    assert simulate(plan).step_s == pytest.approx(m * (f + b + w) + (p - 1) * (f + b - w), rel=1e-9)
    assert plan_costs.step_seconds(plan) == pytest.approx(simulate(plan).step_s, rel=1e-9)


def test_zb_h2_idles_as_long_as_published(free_ends: None) -> None:
    """Qi et al., table 2: rank 0 idles (p - 1)(F + B - 2 W); the last rank begins (p - 1) F later and never idles."""
    plan = builders.plan(free_wires(), pp=4, microbatches=8, schedule="zb-h2")
    parts = compute.layer_parts(plan.fleet.spec(plan.placement[0]), plan.workload, plan.config)
    f, b, w = (2 * seconds for seconds in parts)
    timeline = simulate(plan)
    done = [[s for s in timeline.of(rank) if s.lane == "compute"] for rank in (0, 3)]
    idle = [spans[-1].end - spans[0].start - sum(s.seconds for s in spans) for spans in done]
    assert idle == pytest.approx([3 * (f + b - 2 * w), 0.0], rel=1e-9, abs=1e-12)
    assert done[1][0].start == pytest.approx(3 * f, rel=1e-9)


def test_the_slowest_stage_sets_the_step(free_ends: None) -> None:
    """Four layers on the last stage, two on the first: one slot of the first, then eight of the last."""
    plan = builders.plan(free_wires(), pp=2, microbatches=8, layers=(2, 4))
    assert simulate(plan).step_s == pytest.approx(slot(plan, layers=2) + 8 * slot(plan, layers=4), rel=1e-9)


def test_the_replica_with_most_microbatches_sets_the_step(free_ends: None) -> None:
    plan = builders.plan(free_wires(), pp=2, dp=3, microbatches=(2, 5, 1))
    assert simulate(plan).step_s == pytest.approx((5 + 2 - 1) * slot(plan, layers=2), rel=1e-9)


def test_timetable_of_a_pipeline_of_two_stages(free_ends: None) -> None:
    """1F1B, two pipeline ranks, two microbatches; f and b are the seconds of a forward and a backward."""
    plan = builders.plan(free_wires(), pp=2, microbatches=2)
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


def test_a_message_takes_overhead_latency_and_bytes_over_bandwidth() -> None:
    """64 tokens of 96 values of 2 bytes are 12,288 bytes: 12.288 us at 1 GB/s, after 25 us of overhead and latency."""
    card = builders.nic(bandwidth=1e9, latency=5e-6, overhead=20e-6)
    timeline = simulate(builders.plan(builders.fleet(builders.cluster(nodes=2, nics=(card,))), pp=2))
    sent = [(span.name, span.rank, span.seconds) for span in timeline.spans if span.kind == "send"]
    assert sent == [("send F0", 0, pytest.approx(37.288e-6, rel=1e-9)), ("send B0", 1, pytest.approx(37.288e-6, rel=1e-9))]


def test_a_sender_waits_for_its_message_unless_the_schedule_overlaps_it() -> None:
    machines = builders.fleet(builders.cluster(nodes=2, nics=(builders.nic(bandwidth=1e6),)))

    def gap_after_first_forward(schedule: str) -> float:
        spans = [
            s for s in simulate(builders.plan(machines, pp=2, microbatches=4, schedule=schedule)).of(0) if s.lane == "compute"
        ]
        return spans[1].start - spans[0].end

    assert gap_after_first_forward("gpipe") == pytest.approx(12.288e-3, rel=1e-9)
    assert gap_after_first_forward("interleaved") == 0.0


def test_overlapped_communication_slows_compute_by_the_interference_of_its_link() -> None:
    """The gather of the parameters overlaps all of the forward, which takes 1.25 times as long."""

    assert parts_of_forward(0.25, 1e24)[0] == pytest.approx(1.25 * parts_of_forward(0.0, 1e24)[0], rel=1e-9)


@pytest.mark.parametrize(("memory_bandwidth", "longer"), [(24e9, 4 / 3), (12e9, 2.0), (6e9, 2.0)])
def test_overlapped_gathers_take_their_memory_traffic_from_compute(memory_bandwidth: float, longer: float) -> None:
    """A gather on two ranks sends half of its payload at 1 GB/s, so it moves 3 bytes for each of 2 GB/s through memory. Of
    24 GB/s it takes a quarter, and compute beside it takes 4/3 as long; it takes no more than half. The last part of the
    forward runs when all is gathered."""
    first, *_, last = parts_of_forward(0.0, memory_bandwidth)
    assert first == pytest.approx(longer * last, rel=1e-9)


def parts_of_forward(interference: float, memory_bandwidth: float) -> list[float]:
    """Seconds of the parts of the forward of one of two replicas on two nodes, each beside the gather of the weights of the
    next one, which takes longer."""
    card = builders.nic(bandwidth=1e9, interference=interference)
    chip = builders.device(memory_bandwidth=memory_bandwidth)
    machines = builders.fleet(builders.cluster(nodes=2, nics=(card,), spec=chip))
    plan = builders.plan(machines, dp=2, layers=(64,), shape={"hidden": 3072}, seq_len=512, overlap_grad_reduce=False)
    return [span.seconds for span in simulate(plan).of(0) if span.kind == "F"]


@given(data=st.data())
def test_every_second_of_every_rank_is_compute_exposed_communication_or_bubble(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=16))
    timeline = simulate(plan)
    for sums in seconds_by_rank(timeline).values():
        assert sum(split(sums)) == pytest.approx(timeline.step_s, rel=1e-9)


@given(data=st.data())
def test_a_rank_computes_all_passes_of_its_schedule(data: st.DataObject) -> None:
    """A stage that has the embedding alone has no weight gradients (W)."""
    plan = data.draw(any_plan(ranks=16))
    timeline = simulate(plan)
    for rank in range(plan.config.world_size):
        _, dp_cp, pp_rank = plan.config.coordinates(rank)
        wanted = [
            (kind, stage, m)
            for kind in ("FBW" if schedules.get(plan.config.schedule).SPLITS_BACKWARD else "FB")
            for stage in plan.stages_of(pp_rank)
            for m in range(plan.config.microbatches_of(dp_cp, pp_rank))
            if kind != "W" or plan.stages[stage].layers or stage == plan.head_stage
        ]
        computed = {(s.kind, s.stage, s.microbatch) for s in timeline.of(rank) if s.kind in ("F", "B", "W")}
        assert computed == set(wanted)


@given(data=st.data())
def test_no_pass_begins_before_the_passes_that_it_depends_on_end(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=16))
    timeline, config = simulate(plan), plan.config
    for dp in range(config.dp):
        ends, begins = {}, {}
        for pp_rank in range(config.pp):
            for span in timeline.of(config.rank(0, dp * config.dp_cp_of(pp_rank) // config.dp, pp_rank)):
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
def test_simulation_is_deterministic(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=16))
    assert to_json(simulate(plan)) == to_json(simulate(plan))


def test_a_slower_nic_lengthens_a_step_by_the_time_of_its_messages() -> None:
    """One microbatch through four stages: three messages forward and three back, of 12,288 bytes each, one at a time."""

    def step(bandwidth: float) -> float:
        machines = builders.fleet(builders.cluster(nodes=4, nics=(builders.nic(bandwidth=bandwidth),)))
        return simulate(builders.plan(machines, pp=4)).step_s

    assert step(1e6) - step(2e6) == pytest.approx(6 * 12288 / 2e6, rel=1e-9)
