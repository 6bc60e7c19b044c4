"""The simulation gives the times of the closed form on an idle network, and shares links where exchanges meet."""

from __future__ import annotations

import random

import pytest

from sim.disaggregation import costs
from sim.disaggregation.costs import TaskCosts, step_seconds
from sim.disaggregation.simulation import _uses, simulate, simulated_parts, simulated_step
from sim.disaggregation.tasks import tasks
from sim.disaggregation.timetable import timetable
from tests.sim.disaggregation.builders import EXCHANGE, machines, stage
from tests.sim.disaggregation.seconds import SECONDS


@pytest.fixture
def whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute takes the seconds of `SECONDS`; exchanges take what the network takes."""
    for kind, name in (("A", "_of_attention"), ("E", "_of_experts"), ("X", "_of_kept")):
        monkeypatch.setattr(TaskCosts, name, lambda self, number, kind=kind: (SECONDS[kind, False], SECONDS[kind, True]))


@pytest.mark.usefixtures("whole_seconds")
def test_the_literal_timetable_on_the_network():
    """A NIC takes half a second for the tokens of a microbatch."""
    times = {str(task): (begin, end) for task, begin, end in simulate(stage())}
    assert times["D1F0"] == pytest.approx((1.0, 1.5))
    assert times["E1F0"] == pytest.approx((1.5, 3.5))
    assert times["C1F1"] == pytest.approx((5.5, 6.0))
    assert times["A2B1"] == pytest.approx((12.0, 14.0))
    assert times["C1B1"] == pytest.approx((27.5, 28.0))
    assert times["A0B1"] == pytest.approx((28.0, 30.0))


@pytest.mark.parametrize("seed", range(20))
def test_closed_form_and_simulation_are_equal_on_an_idle_network(seed):
    rng = random.Random(seed)
    attention, experts, groups = rng.choice([(1, 1, 1), (2, 1, 1), (2, 4, 2), (4, 4, 1), (4, 2, 2)])
    fleet = machines(attention, experts, EXCHANGE * rng.choice([1e3, 1e5, 1e7]), launch=rng.choice([0.0, 1e-5]))
    whole = stage(
        fleet, attention * 12, {"layers": rng.choice([1, 2, 5])}, groups=groups, microbatches=rng.choice([1, 2, 3]),
        rounds=rng.choice([1, 2]), recompute=rng.choice(["none", "full"]),
    )  # fmt: skip
    listed = tasks(whole.kept, whole.microbatches, whole.rounds)
    expected = timetable(listed, TaskCosts(whole).seconds)
    assert [pytest.approx(times) for times in expected] == [(begin, end) for _, begin, end in simulate(whole)]
    assert simulated_step(whole) == pytest.approx(step_seconds(whole))


@pytest.mark.usefixtures("whole_seconds")
def test_seconds_of_exchanges_are_summed():
    """Two layers and two microbatches: eight dispatches and eight combines of half a second, which share no link."""
    assert simulated_parts(stage())[1:] == pytest.approx((4.0, 4.0))


def test_links_that_are_loaded_alike_are_one():
    """NICs of attention ranks and of expert ranks. Of eight experts four attention ranks keep four: of its tokens, half a
    second of its NIC, a rank sends half to two expert ranks and three eighths to other attention ranks."""
    uses = _uses(TaskCosts(stage(machines(4, 2), batch=8, kept=(0, 4))))
    assert set(uses) == {(0, False), (0, True), (4, False), (4, True)}
    by_seconds = {kind: sorted(seconds for _, seconds in use if seconds > 0.01) for kind, use in uses.items()}
    assert by_seconds[0, False] == by_seconds[0, True] == pytest.approx([0.5, 1.0])
    assert by_seconds[4, False] == by_seconds[4, True] == pytest.approx([0.1875, 0.4375, 0.5])


@pytest.mark.usefixtures("whole_seconds")
def test_kept_experts_make_dispatch_and_combine_share_links(monkeypatch):
    """Two attention ranks keep half of the experts. Of a dispatch they send three quarters of their tokens and receive one
    quarter, so combines that run beside it get less of the links than the closed form thinks."""
    monkeypatch.setattr(costs.TaskCosts, "closing", lambda self: {"attention": 0.0, "experts": 0.0})
    slow = machines(2, 2, EXCHANGE / 4)
    whole = stage(slow, 8, microbatches=4, kept=(4, 4))
    assert simulated_step(whole) > 1.01 * step_seconds(whole)
    assert simulated_step(stage(slow, 8, microbatches=4)) == pytest.approx(step_seconds(stage(slow, 8, microbatches=4)))
