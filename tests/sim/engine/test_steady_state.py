"""Steady-state extrapolation gives the timeline of a full simulation, and events do not grow with the microbatches."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sim.engine.components import components
from sim.engine.engine import simulate, simulate_at_length
from sim.engine.spans import Label, SpanLog
from sim.engine.state import Rank
from sim.engine.steady_state import MANY, Moment, SteadyState
from sim.engine.symmetry import fold, unfolded
from sim.engine.timeline import Timeline
from sim.hardware.cluster import Device, Fabric, Fleet, Trunk
from sim.plan.groups import groups_of
from sim.plan.plan import Plan
from sim.plan.program import Action
from sim.results.explain import critical_path
from tests import builders, corpus
from tests.builders import any_plan, device, nic, wire
from tests.more import after

SCHEDULES = ("1f1b", "1f1b-deepspeed", "gpipe", "interleaved", "zb-h1", "zb-h2")


def longer(plan: Plan, times: int) -> Plan:
    """The same plan with so many times the microbatches."""
    numbers = tuple(number * times for number in plan.config.num_microbatches)
    workload = replace(plan.workload, global_batch_size=plan.workload.global_batch_size * times)
    return replace(plan, config=replace(plan.config, num_microbatches=numbers), workload=workload)


def rows(timeline: Timeline) -> list[tuple[Any, ...]]:
    """Spans, sorted, times last; spans shorter than a billionth of the step are rounding of equal times and left out."""
    long = (span for span in timeline.spans if span.seconds > 1e-9 * timeline.step_s)
    return sorted((s.rank, s.lane, s.kind, s.name, s.stage, s.microbatch, s.group, s.start, s.end) for s in long)


def assert_equal(short: Timeline, whole: Timeline) -> None:
    """Both timelines have the same spans at the same times."""
    assert short.step_s == pytest.approx(whole.step_s, rel=1e-9, abs=0)
    ours, theirs = rows(short), rows(whole)
    assert [row[:-2] for row in ours] == [row[:-2] for row in theirs]
    at, there = ([time for row in listed for time in row[-2:]] for listed in (ours, theirs))
    assert at == pytest.approx(there, rel=1e-9, abs=1e-9 * whole.step_s)


def assert_is_led(timeline: Timeline) -> None:
    """Every span begins exactly when the one that it came after ends, and the critical path fills the step."""
    spans = timeline.spans
    assert all(spans[span.after].end == span.start for span in spans if span.after >= 0)
    assert all(0 <= span.start < span.end <= timeline.step_s for span in spans)
    path = critical_path(timeline)
    assert path[0].start == 0
    assert path[-1].end == timeline.step_s


@given(data=st.data())
def test_an_extrapolated_step_equals_a_fully_simulated_one(data: st.DataObject) -> None:
    plan = longer(data.draw(any_plan(ranks=16)), data.draw(st.integers(8, 10)))
    short, whole = simulate(plan), simulate_at_length(plan)
    event(f"{plan.config.schedule}: {'extrapolated' if short.events < whole.events else 'simulated'}")
    assert_equal(short, whole)
    assert_is_led(short)


@given(data=st.data())
def test_extrapolation_without_symmetry_reduction_is_exact(data: st.DataObject) -> None:
    plan = longer(data.draw(any_plan(ranks=8)), 8)
    short, whole = simulate(plan, unfolded(plan)), simulate_at_length(plan)
    assert short.step_s == pytest.approx(whole.step_s, rel=1e-9, abs=0)


def replica_by_replica(plan: Plan) -> Plan:
    """The same plan with its devices filled replica by replica, so that replicas and not stages stand on unlike devices."""
    config = plan.config
    placement = list(plan.placement)
    for rank in range(config.world_size):
        tp, dp_cp, pp_rank = config.coordinates(rank)
        placement[rank] = plan.placement[(dp_cp * config.pp + pp_rank) * config.tp + tp]
    return replace(plan, placement=tuple(placement), groups=groups_of(plan.fleet, config, tuple(placement)))


def unlike(nodes: int, devices: int, kinds: int = 2, fabric: Fabric | None = None) -> Fleet:
    """Clusters of devices that are quick, slow and slower, every two of them joined by a trunk; nothing is free."""
    card = nic(latency=5e-6, overhead=1e-5, interference=0.1)
    found = [
        builders.cluster(name, nodes, devices, (card,), device(name, speed), fabric=fabric)
        for name, speed in (("quick", 1.7e14), ("slow", 1e14), ("slower", 0.9e14))[:kinds]
    ]
    pairs = combinations([cluster.name for cluster in found], 2)
    return builders.fleet(*found, trunks=tuple(Trunk(pair, "infiniband", 1e10, 1e-5) for pair in pairs))


@given(data=st.data())
def test_extrapolated_replicas_on_different_devices_equal_fully_simulated_ones(data: st.DataObject) -> None:
    def any_of(*values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    (tp, pp, cp), (kinds, each) = any_of((2, 2, 1), (1, 3, 1), (1, 1, 1), (1, 2, 2)), any_of((2, 1), (3, 1), (2, 2))
    schedule = any_of(*SCHEDULES)
    unit, dp = (pp if schedule == "interleaved" else 1), kinds * each
    number = st.integers(6 // unit, 24 // unit).map(lambda times: times * unit)
    numbers = data.draw(st.one_of(number.map(lambda n: (n,) * dp), st.lists(number, min_size=dp, max_size=dp).map(tuple)))
    fabric = any_of(None, Fabric(1, 4.0))
    plan = builders.plan(
        unlike(pp * cp * each, tp, kinds, fabric), tp, pp, dp, 2 if schedule == "interleaved" else 1, numbers,
        schedule=schedule, cp=cp, ep=any_of(1, cp), zero_stage=any_of(1, 0), recompute=any_of("none", "full"),
        overlap_grad_reduce=any_of(True, False), overlap_param_gather=any_of(True, False),
        shape={"hidden": any_of(96, 1536), "tied_embeddings": any_of(False, True), "experts": 12, "experts_per_token": 2},
    )  # fmt: skip
    plan = replica_by_replica(plan)
    short, whole = simulate(plan), simulate_at_length(plan)
    parts = len(components(fold(plan), plan.config))
    event(f"{'several' if parts > 1 else 'one'}: {'extrapolated' if short.events < whole.events else 'simulated'}")
    assert_equal(short, whole)
    assert_is_led(short)


@pytest.fixture
def nodes() -> Any:
    """Four nodes of two devices; nothing is free."""
    card = nic(latency=5e-6, overhead=1e-5, interference=0.1)
    return builders.fleet(builders.cluster(nodes=4, devices=2, nics=(card,), intra_node=wire(latency=1e-6)))


SETTLE_SOON = [(schedule, 1) for schedule in SCHEDULES]
SETTLE_SOON += [(schedule, stage) for schedule in ("1f1b", "1f1b-deepspeed", "interleaved") for stage in (2, 3)]


@pytest.mark.parametrize(("schedule", "zero_stage"), SETTLE_SOON)
def test_events_do_not_grow_with_the_number_of_microbatches(schedule: str, zero_stage: int, nodes: Any) -> None:
    def simulated(microbatches: int) -> Timeline:
        chunks = {"vpp": 2} if schedule == "interleaved" else {}
        plan = builders.plan(
            nodes, tp=2, pp=2, dp=2, microbatches=microbatches, schedule=schedule, zero_stage=zero_stage, **chunks
        )
        return simulate(plan)

    few, many = simulated(40), simulated(400)
    assert many.events == few.events
    assert len([s for s in many.spans if s.kind == "F"]) == 10 * len([s for s in few.spans if s.kind == "F"])


@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sharding_without_overlap_is_extrapolated_as_simulated_at_length(schedule: str, zero_stage: int, nodes: Any) -> None:
    facts = {"vpp": 2} if schedule == "interleaved" else {}
    plan = builders.plan(
        nodes, tp=2, pp=2, dp=2, microbatches=40, schedule=schedule, zero_stage=zero_stage, overlap_grad_reduce=False, **facts
    )
    short, whole = simulate(plan), simulate_at_length(plan)
    assert short.events < whole.events
    assert_equal(short, whole)


@pytest.mark.parametrize("overlaps", after(1, [True, False]))
@pytest.mark.parametrize("zero_stage", [0, 1])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_replicas_on_different_devices_are_extrapolated_independently(schedule: str, zero_stage: int, overlaps: bool) -> None:
    """Their periods differ, so the state of both together never comes again. Rounding makes a few events coincide or not; the
    number of events must not grow tenfold."""

    def made(microbatches: int) -> Plan:
        chunks = {"vpp": 2} if schedule == "interleaved" else {}
        plan = builders.plan(
            unlike(2, 2), tp=2, pp=2, dp=2, microbatches=microbatches, schedule=schedule, zero_stage=zero_stage,
            overlap_grad_reduce=overlaps, overlap_param_gather=overlaps, **chunks,
        )  # fmt: skip
        return replica_by_replica(plan)

    few, many = simulate(made(30)), simulate(made(300))
    assert len(components(fold(made(30)), made(30).config)) == 2
    assert many.events == pytest.approx(few.events, rel=0.02)
    assert_equal(few, simulate_at_length(made(30)))
    assert_is_led(many)


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_replicas_that_reduce_in_every_microbatch_stay_together(zero_stage: int) -> None:
    plan = replica_by_replica(builders.plan(unlike(2, 2), tp=2, pp=2, dp=2, microbatches=30, zero_stage=zero_stage))
    assert len(components(fold(plan), plan.config)) == 1
    assert_equal(simulate(plan), simulate_at_length(plan))


def test_uneven_replicas_are_extrapolated_each_as_far_as_it_repeats(nodes: Any) -> None:
    def simulated(microbatches: tuple[int, ...]) -> tuple[Timeline, Timeline]:
        plan = builders.plan(nodes, tp=2, pp=2, dp=2, microbatches=microbatches, schedule="1f1b")
        return simulate(plan), simulate_at_length(plan)

    short, whole = simulated((100, 90))
    assert short.events == simulated((40, 30))[0].events == simulated((1000, 30))[0].events
    assert_equal(short, whole)


def test_replicas_that_share_a_trunk_repeat_together_or_not_at_all() -> None:
    """Two pipelines from one cluster to another, over a trunk that is busy most of the time. Extrapolated independently,
    each as though the other went on beside it to its end, they would make the step a fifth longer."""
    ends = tuple(builders.cluster(name, nodes=2, nics=(nic("ethernet"),)) for name in "ab")
    fleet = builders.fleet(*ends, trunks=(Trunk(("a", "b"), "ethernet", 2e7, 1e-4),))
    placement = tuple(Device(name, node, 0) for name in "ab" for node in range(2))

    plan = builders.plan(fleet, pp=2, dp=2, microbatches=(100, 60), placement=placement)
    short, whole = simulate(plan), simulate_at_length(plan)
    assert components(fold(plan), plan.config) == ((0, 1, 2, 3),)
    assert components(fold(aside := replica_by_replica(plan)), aside.config) == ((0, 2), (1, 3))
    assert short.events < whole.events / 2
    assert_equal(short, whole)


def test_a_wait_that_is_rounding_is_left_out() -> None:
    program = SimpleNamespace(rates=SimpleNamespace(of_action=lambda action: 1))
    rank = cast(Rank, SimpleNamespace(rank=3, component=SimpleNamespace(skipped=0, spans=[]), program=program))
    log, label = SpanLog(), Label(Action("F", 0, 5), "pp", "wait ")
    assert log.add(rank, "wait", "bubble", 2.0, 2.0 + 1e-14, label) == -1
    assert log.add(rank, "wait", "bubble", 2.0, 2.0 + 1e-12, label) == 0
    assert log.add(rank, "compute", "F", 2.0, 2.0 + 1e-14, Label(Action("F", 0, 5)), 0) == 1
    assert [(span.name, span.lane) for span in log.spans] == [("wait F5", "wait"), ("F5", "compute")]


def test_waits_that_are_rounding_do_not_prevent_extrapolation() -> None:
    """Some receives of this plan's periods wait for 1e-15 s, since times that should be equal are rounded."""
    plan = dict(corpus.plans("peers/metis-64-odd"))["metis"]
    short, whole = simulate(plan), simulate_at_length(plan)
    assert whole.events > 1.6 * short.events
    assert_equal(short, whole)
    assert_is_led(short)


def test_a_short_step_is_fully_simulated(nodes: Any) -> None:
    plan = builders.plan(nodes, pp=4, microbatches=4)
    assert simulate(plan) == simulate_at_length(plan)


def test_a_moment_repeats_where_everything_happened_equally_long_ago() -> None:
    earlier = Moment(10.0, 3, 7, (5,), (("busy", 0),), (-1.0, 2.0))
    assert Moment(14.0, 4, 9, (7,), (("busy", 0),), (-1.0, 2.0 + 1e-13)).repeats(earlier)
    assert not Moment(14.0, 4, 9, (7,), (("busy", 0),), (-1.0, 2.0 + 1e-11)).repeats(earlier)
    assert not Moment(14.0, 4, 9, (7,), (("busy", 1),), (-1.0, 2.0)).repeats(earlier)


def test_a_growing_queue_of_gradients_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    moment = SteadyState._moment

    def counted(self: SteadyState, *at: Any) -> Moment:
        looked.append(len(self.communication.transfers))
        return moment(self, *at)

    monkeypatch.setattr(SteadyState, "_moment", counted)
    slow = builders.fleet(builders.cluster(nodes=2, nics=(nic("ethernet", 1e7),)))  # two ranks that behave alike
    plan = builders.plan(slow, dp=2, zero_stage=2, layers=(24,), microbatches=60, overlap_grad_reduce=True)
    short, whole = simulate(plan), simulate_at_length(plan)
    assert_equal(short, whole)
    assert max(looked) == MANY  # of up to 60 reductions under way
    assert len(looked) == 34  # of 120 passes
