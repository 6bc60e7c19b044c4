"""A simulation is abandoned only if its step is above the limit, and else gives the same timeline as without a limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.engine import abandonment
from sim.engine.abandonment import Abandoned, Abandonment
from sim.engine.engine import simulate, simulate_up_to
from sim.engine.state import Rank
from sim.engine.timeline import Timeline
from sim.plan.plan import Plan
from tests import builders
from tests.builders import any_plan, nic
from tests.sim.engine.test_steady_state import longer


def crowded(microbatches: int = 24) -> Plan:
    """Eight replicas of a pipeline over two nodes, whose messages share one slow NIC for each node."""
    card = nic(bandwidth=2e7, latency=5e-6, interference=0.1)
    machines = builders.fleet(builders.cluster(nodes=2, devices=8, nics=(card,)))
    numbers = tuple(microbatches - replica % 3 for replica in range(8))
    return builders.plan(machines, pp=2, dp=8, microbatches=numbers, schedule="1f1b")


@given(data=st.data())
def test_a_step_up_to_the_limit_is_never_abandoned(data: st.DataObject) -> None:
    plan = longer(data.draw(any_plan(ranks=16)), data.draw(st.sampled_from((1, 4))))
    whole, share = simulate(plan), data.draw(st.one_of(st.just(1.0), st.floats(0.5, 1.1)))
    found = simulate_up_to(plan, share * whole.step_s)
    event(f"{type(found).__name__}, limit {'below' if share < 1 else 'at least'} the step")
    if isinstance(found, Abandoned):
        assert share < 1
        assert found.limit_s == share * whole.step_s < found.estimate_s
        assert 0 < found.events <= whole.events
    else:
        assert found == whole


@given(data=st.data())
def test_the_time_of_a_piece_and_its_remaining_time_are_within_the_step(data: st.DataObject) -> None:
    plan, bounds = data.draw(any_plan(ranks=16)), list[float]()

    class Recorded(Abandonment):
        def check(self, rank: Rank, now: float) -> None:
            if not self._remaining:
                self._remaining = self.compute()
            bounds.append(now + self._remaining[rank.index][rank.piece])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sim.engine.engine.Abandonment", Recorded)
        step = simulate(plan).step_s
    event(f"{plan.config.schedule}: largest bound {round(10 * max(bounds) / step)} tenths of the step")
    assert max(bounds) <= step * (1 + 1e-9)


def test_reductions_of_stages_that_share_a_link_follow_each_other() -> None:
    """Two stages on two nodes of two devices each reduce their gradients over one slow NIC of each node. The second stage
    begins first, and the step is no shorter than both reductions one after the other, which are most of it."""
    machines = builders.fleet(builders.cluster(nodes=2, devices=2, nics=(nic(bandwidth=1e5, latency=0.0),)))
    first, other, third, last = builders.every_device(machines)
    plan = builders.plan(machines, pp=2, dp=2, microbatches=2, placement=(first, third, other, last), zero_stage=0)
    step, begun = simulate(plan).step_s, list[float]()

    class Recorded(Abandonment):
        def check(self, rank: Rank, now: float) -> None:
            begun.append(now + self.compute()[rank.index][rank.piece])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sim.engine.engine.Abandonment", Recorded)
        simulate(plan)
    assert 0.98 * step < begun[0] <= step * (1 + 1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "1f1b-deepspeed", "gpipe", "zb-h1", "zb-h2", "interleaved"])
def test_without_contention_any_limit_below_the_step_abandons(schedule: str) -> None:
    machines = builders.fleet(builders.cluster(nodes=4, devices=1, nics=(nic(latency=5e-6),)))
    plan = builders.plan(machines, pp=4, vpp=2 if schedule == "interleaved" else 1, microbatches=8, schedule=schedule)
    step = simulate(plan).step_s
    assert isinstance(simulate_up_to(plan, step * (1 - 1e-6)), Abandoned)
    assert isinstance(simulate_up_to(plan, step), Timeline)


def test_contention_is_extrapolated_to_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that share a NIC delay every microbatch: the simulation ends early, and its estimate is near the step."""
    plan, pieces = crowded(), list[int]()
    step, idle = simulate(plan).step_s, plan_costs.step_seconds(plan)
    assert idle < 0.8 * step
    check = Abandonment.check

    def counted(self: Abandonment, rank: Rank, now: float) -> None:
        pieces.append(rank.piece)
        check(self, rank, now)

    monkeypatch.setattr(Abandonment, "check", counted)
    simulate_up_to(plan, math.inf)
    every = len(pieces)
    pieces.clear()
    found = simulate_up_to(plan, idle + 0.2 * (step - idle))
    assert isinstance(found, Abandoned)
    assert len(pieces) < 0.5 * every
    assert found.estimate_s == pytest.approx(step, rel=0.15)


def test_a_step_of_a_repeating_pipeline_needs_no_remaining_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steady state is found before the first `BEGIN` of all pieces, so a limit costs nothing."""
    machines = builders.fleet(builders.cluster(nodes=4, devices=1, nics=(nic(latency=5e-6),)))
    plan, whole = builders.plan(machines, pp=4, microbatches=4000), []
    monkeypatch.setattr("sim.engine.engine.remaining_times", lambda *_: whole.append(1))
    assert simulate_up_to(plan, 1e9) == simulate(plan)
    assert not whole and abandonment.BEGIN > 0
