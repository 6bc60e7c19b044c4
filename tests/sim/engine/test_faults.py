"""Faults change durations and capacities, the symmetry reduction stays exact, and the seconds can be counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine import durations, faults
from sim.engine.durations import Durations
from sim.engine.engine import simulate, simulate_at_length, step_seconds
from sim.engine.faults import Degraded, DrawnFaults, Faults, Flaps, Stragglers, draw
from sim.engine.symmetry import fold, unfolded
from sim.engine.timeline import Span, Timeline, to_json
from sim.errors import HolmesError
from sim.hardware.cluster import Device, Fabric, Trunk
from sim.plan.plan import Plan
from sim.plan.program import Action
from tests import builders
from tests.builders import any_plan, cluster, fleet, nic
from tests.more import after


def moments(timeline: Timeline, rank: int) -> list[float]:
    """Begin and end of every span of a rank that is longer than rounding, lane by lane.

    Slices of a message to several ranks of a wider stage that travel at the same time count once: those ranks may be folded."""
    shortest = 1e-9 * timeline.step_s
    spans = (span for span in timeline.of(rank) if span.seconds > shortest)
    ordered = sorted(spans, key=lambda s: (s.lane, s.name, s.kind, s.stage, s.microbatch, s.start))
    pairs = zip(ordered, (None, *ordered), strict=False)
    return [moment for span, before in pairs if not is_slice(span, before, shortest) for moment in (span.start, span.end)]


def is_slice(span: Span, before: Span | None, tolerance: float) -> bool:
    """Whether a span is a slice of the same message as the span before it, at the same time."""
    if before is None or span.lane not in ("send", "return") or span[1:4] != before[1:4] or span[6:8] != before[6:8]:
        return False
    return abs(span.start - before.start) <= tolerance and abs(span.end - before.end) <= tolerance


def assert_alike(plan: Plan, drawn: DrawnFaults) -> None:
    folded, whole = simulate(plan, fold(plan, drawn), drawn), simulate_at_length(plan, unfolded(plan, drawn), drawn)
    assert folded.step_s == pytest.approx(whole.step_s, rel=1e-9, abs=0)
    for rank in range(plan.config.world_size):
        assert moments(folded, rank) == pytest.approx(moments(whole, rank), rel=1e-9, abs=1e-9 * whole.step_s)


TROUBLES = (
    Faults(Stragglers(0.3, 1.5)),
    Faults(degraded=Degraded(0.3, 0.4)),
    Faults(Stragglers(0.1, 2.0), degraded=Degraded(0.5, 0.5)),
    Faults(flaps=Flaps(1.0, 0.2)),
)


@given(data=st.data(), what=st.sampled_from(TROUBLES), seed=st.integers(0, 9))
def test_a_disturbed_step_is_the_same_folded_and_unfolded(data: st.DataObject, what: Faults, seed: int) -> None:
    plan = data.draw(any_plan())
    fault_free = simulate(plan).step_s
    if what.flaps is not None:
        what = Faults(flaps=Flaps(fault_free * what.flaps.up, fault_free * what.flaps.down))
    assert_alike(plan, draw(what, plan.fleet, seed, fault_free))


@pytest.mark.parametrize("seed", after(1, range(6), last=2))
def test_sixty_four_ranks_with_faults_fold_exactly_and_still_fold(seed: int) -> None:
    ethernet = nic("ethernet", 3e9, latency=5e-5, overhead=3e-5, efficiency=0.8)
    east = cluster("east", 4, 8, (nic("infiniband", 2.5e10, 4, latency=1e-5), ethernet), fabric=Fabric(2, 2.0))
    west = cluster("west", 4, 8, (nic("roce", 2.5e10, 2, latency=1e-5), ethernet))
    machines = fleet(east, west, trunks=(Trunk(("east", "west"), "ethernet", 5e9, 1e-3),))
    plan = builders.plan(machines, tp=2, pp=2, dp=16, layers=(2, 2), microbatches=4)
    drawn = draw(Faults(Stragglers(0.02, 1.5), degraded=Degraded(0.03, 0.5)), machines, seed)
    assert_alike(plan, drawn)
    assert len(fold(plan).representatives) <= len(fold(plan, drawn).representatives) <= 48


@given(data=st.data(), seed=st.integers(0, 9))
@settings(max_examples=10)
def test_no_fault_is_the_plain_step_and_a_seed_is_one_timeline(data: st.DataObject, seed: int) -> None:
    plan = data.draw(any_plan())
    nothing = draw(Faults(Stragglers(0.0, 2.0), 0.0, Degraded(0.0, 0.5)), plan.fleet, seed)
    assert nothing == faults.NO_FAULTS
    assert to_json(simulate(plan, drawn=nothing)) == to_json(simulate(plan))
    jittered = draw(Faults(jitter=0.1), plan.fleet, seed)
    assert to_json(simulate(plan, drawn=jittered)) == to_json(simulate(plan, drawn=jittered))


@given(data=st.data(), seed=st.integers(0, 9))
def test_the_seconds_of_a_step_are_those_of_its_timeline(data: st.DataObject, seed: int) -> None:
    """Without spans, under jitter and outages, and with them under faults that last."""
    plan = data.draw(any_plan())
    step = simulate(plan).step_s
    for what in (Faults(jitter=0.1), Faults(flaps=Flaps(step, 0.2 * step)), Faults(Stragglers(0.3, 1.5), 0.05), TROUBLES[0]):
        drawn = draw(what, plan.fleet, seed, step)
        assert step_seconds(plan, drawn) == simulate(plan, drawn=drawn).step_s


def test_a_slow_device_holds_up_its_pipeline() -> None:
    """The second of two pipeline ranks, twice as slow, is never idle: F0 of the first, its own work with
    four messages held up behind it, and the message to it; then the later of both ends."""
    machines = fleet(cluster("c", 2, 1, (nic("infiniband", 1e20),)))
    plan = builders.plan(machines, pp=2, layers=(1, 1), microbatches=4)
    fault_free = {(span.rank, span.name): span.seconds for span in simulate(plan).spans if span.lane == "compute"}
    slow = simulate(plan, drawn=DrawnFaults(slow=((Device("c", 1, 0), 2.0),)))
    found = {(span.rank, span.name): span.seconds for span in slow.spans if span.lane == "compute"}
    assert found == pytest.approx({(rank, name): (rank + 1) * seconds for (rank, name), seconds in fault_free.items()})
    work = sum(seconds for (rank, name), seconds in found.items() if rank == 1 and name[0] in "FB")
    ends = fault_free[0, "B3"] + fault_free[0, "optimizer"], found[1, "optimizer"]
    messages = [span.seconds for span in slow.spans if (span.lane, span.kind) in (("send", "send"), ("return", "send"))]
    assert slow.step_s == pytest.approx(fault_free[0, "F0"] + 5 * messages[0] + work + max(ends))


def sends(timeline: Timeline) -> list[tuple[float, float]]:
    return [(span.start, span.end) for span in timeline.spans if span.lane == "send"]


def one_message() -> Plan:
    machines = fleet(cluster("c", 2, 1, (nic("infiniband", 1e6),)))
    return builders.plan(machines, pp=2, layers=(1, 1), microbatches=1)


def test_a_degraded_nic_sends_more_slowly() -> None:
    plan = one_message()
    ((begin, end),) = sends(simulate(plan))
    weak = DrawnFaults(weak=((("nic", "c", 0, "infiniband", 0, "out"), 0.25),))
    ((late, later),) = sends(simulate(plan, drawn=weak))
    assert (late, later - late) == pytest.approx((begin, 4 * (end - begin)))


def test_transfers_on_a_flapping_link_wait_until_it_is_back() -> None:
    plan = one_message()
    ((begin, end),) = sends(simulate(plan))
    length = end - begin
    out = ("nic", "c", 0, "infiniband", 0, "out")

    def down(*times: tuple[float, float]) -> tuple[float, float]:
        ((late, later),) = sends(simulate(plan, drawn=DrawnFaults(down=((out, times),))))
        return late, later

    assert down((begin + length / 4, begin + length)) == pytest.approx((begin, end + 0.75 * length))
    assert down((0.0, begin + 2 * length)) == pytest.approx((begin, begin + 3 * length))
    assert down((end + length, end + 2 * length)) == pytest.approx((begin, end))
    twice = (begin + 0.1 * length, begin + 0.2 * length), (begin + 0.5 * length, begin + 0.9 * length)
    assert down(*twice) == pytest.approx((begin, end + 0.5 * length))


def test_jitter_has_mean_one_and_the_requested_spread() -> None:
    stream = DrawnFaults(jitter=0.2, seed=3).jitter_factors(Device("c", 0, 0))
    factors = [next(stream) for _ in range(20000)]
    mean = sum(factors) / len(factors)
    spread = (sum((factor - mean) ** 2 for factor in factors) / len(factors)) ** 0.5
    assert mean == pytest.approx(1.0, abs=4 * 0.2 / 20000**0.5)
    assert spread == pytest.approx(0.2, rel=0.05)


def test_kinds_of_faults_do_not_change_each_other() -> None:
    machines = fleet(cluster("c", 50, 8))
    alone = draw(Faults(Stragglers(0.1, 1.5)), machines, 7)
    together = draw(Faults(Stragglers(0.1, 1.5), 0.1, Degraded(0.2, 0.5), Flaps(10.0, 1.0)), machines, 7, 1.0)
    assert together.slow == alone.slow
    assert 15 < len(alone.slow) < 65  # 400 devices at 1 in 10: 40, within four standard deviations of 6
    wider = draw(Faults(Stragglers(0.2, 1.5)), machines, 7)
    assert set(alone.slow) < set(wider.slow)


def test_a_seed_draws_the_same_in_every_process() -> None:
    machines = fleet(cluster("c", 50, 8))
    slow = draw(Faults(Stragglers(0.1, 1.5)), machines, 7).slow
    assert [str(device) for device, _ in slow][:3] == ["c/node0/dev4", "c/node1/dev1", "c/node1/dev6"]
    weak = draw(Faults(degraded=Degraded(0.1, 0.5)), machines, 7).weak
    assert [link[2] for link, _ in weak][:4] == [0, 0, 9, 9]
    stream = DrawnFaults(jitter=0.1, seed=7).jitter_factors(Device("c", 0, 0))
    assert [next(stream), next(stream)] == pytest.approx([1.0478890565, 0.8507147703])


def test_both_ways_of_a_port_fail_together() -> None:
    clusters = cluster("a", 1, 1, (nic("roce", 1e9, 2),)), cluster("b", 1, 1, (nic("roce"),))
    machines = fleet(*clusters, trunks=(Trunk(("a", "b"), "roce", 1e9, 0.0),))
    drawn = draw(Faults(degraded=Degraded(1.0, 0.5)), machines, 0)
    nics = (("a", 0), ("a", 1), ("b", 0))
    assert [link for link, _ in drawn.weak] == [
        *(("nic", name, 0, "roce", index, way) for name, index in nics for way in ("out", "in")),
        ("trunk", "a", "b", "roce", "out"), ("trunk", "b", "a", "roce", "out"),
    ]  # fmt: skip


def test_the_text_forms() -> None:
    assert faults.stragglers("1%:1.5") == Stragglers(0.01, 1.5)
    assert faults.stragglers("0.25 : 2") == Stragglers(0.25, 2.0)
    assert faults.degraded("2%:50%") == Degraded(0.02, 0.5)
    assert faults.jitter("3%") == 0.03
    assert faults.flaps("100h:5s") == Flaps(360000.0, 5.0)


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (faults.stragglers, "often", "--stragglers 'often' is not a share and an effect; write for example 1%:1.5"),
        (
            faults.stragglers,
            "1%:0.5",
            "--stragglers '1%:0.5': a straggler takes at least 1 times as long, not 0.5; write for example 1%:1.5",
        ),
        (faults.stragglers, "120%:2", "--stragglers '120%:2': a share is at most 1 (100%); write for example 1%:1.5"),
        (
            faults.degraded,
            "1%:0%",
            "--degrade '1%:0%': the rate that a link keeps must be above 0 and at most 1 (100%); write for example 1%:50%",
        ),
        (faults.jitter, "some", "--jitter 'some' is not a standard deviation over the mean; write for example 3%"),
        (faults.flaps, "3", "--flaps '3' is not the mean time up between flaps and the time down; write for example 100h:5s"),
        (faults.flaps, "0s:1s", "--flaps '0s:1s': the time between flaps must be above 0; write for example 100h:5s"),
    ],
)
def test_a_wrong_text_is_an_error_of_one_line(read: Callable[[str], object], text: str, said: str) -> None:
    with pytest.raises(HolmesError) as error:
        read(text)
    assert str(error.value) == said


@pytest.mark.parametrize(("measured", "factors"), [(False, [1.0, 2.0]), (True, [2.0, 2.0])])
def test_a_group_whose_collectives_are_measured_with_it_is_as_slow_as_its_slowest(
    measured: bool, factors: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durations.compute, "includes_collectives", lambda *arguments: measured)
    plan = builders.plan(fleet(cluster("c", 1, 2)), tp=2)
    fault_free, slow = Durations(plan), Durations(plan, DrawnFaults(slow=((Device("c", 0, 1), 2.0),)))
    forward = Action("F", 0, 0)
    assert [slow.of(rank, forward) / fault_free.of(rank, forward) for rank in (0, 1)] == factors
    jittered = Durations(plan, DrawnFaults(jitter=0.1))
    assert (jittered.of(0, forward) == jittered.of(1, forward)) == measured
