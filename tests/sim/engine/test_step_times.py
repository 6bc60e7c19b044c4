"""Quick simulations of steps have the engine's result, and are abandoned only above their limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from sim.engine.compiled import COMPUTE, PAUSE, SEND, Compiler, Program
from sim.engine.engine import simulate
from sim.engine.step_times import StepTimes
from sim.engine.symmetry import fold
from sim.errors import NotModelled
from sim.plan.plan import Plan
from tests import builders
from tests.builders import any_plan, nic
from tests.sim.engine.test_abandonment import crowded
from tests.sim.engine.test_steady_state import longer


def compiled(plan: Plan) -> tuple[StepTimes, list[Program]]:
    """A plan's programs, one for each class of ranks, and what simulates them."""
    compiler = Compiler(fold(plan))
    found = dict[int, Program]()
    for pp_rank in range(plan.config.pp):
        found |= compiler.programs(plan, pp_rank)
    return StepTimes(compiler), [found[index] for index in range(len(found))]


@given(data=st.data())
def test_steps_are_those_of_the_engine(data: st.DataObject) -> None:
    plan = longer(data.draw(any_plan(ranks=16)), data.draw(st.sampled_from((1, 4))))
    try:
        steps, programs = compiled(plan)
    except NotModelled:
        event("not modelled")
        assume(False)
    step = simulate(plan).step_s
    event(f"{plan.config.schedule}, ZeRO {plan.config.zero_stage}")
    assert steps.seconds(programs) == pytest.approx(step, rel=1e-9)
    assert max(left[0] for left in steps.left(programs)) <= step * (1 + 1e-9)
    share = data.draw(st.floats(0.5, 1.1))
    found = steps.seconds(programs, share * step)
    assert found == pytest.approx(step, rel=1e-9) or (found == math.inf and share < 1)
    assert steps.seconds(programs, step * (1 + 1e-9)) < math.inf


def test_messages_that_share_a_link_take_longer_than_alone() -> None:
    """Eight replicas send over one NIC: what is left at the begin, on an idle network, is far below the step."""
    steps, programs = compiled(crowded())
    step = simulate(crowded()).step_s
    assert steps.seconds(programs) == pytest.approx(step, rel=1e-12)
    assert max(left[0] for left in steps.left(programs)) < 0.9 * step
    assert steps.seconds(programs, 0.99 * step) == math.inf


def test_compute_is_one_pause_where_no_collective_runs_beside_it() -> None:
    """Two stages of one rank each: a forward, a send, and so on, with the optimizer at the end."""
    machines = builders.fleet(builders.cluster(nodes=2, nics=(nic(),)))
    plan = builders.plan(machines, pp=2, microbatches=3, schedule="gpipe")
    _, (first, last) = compiled(plan)
    assert sum(one[0] == SEND for one in first) == sum(one[0] == SEND for one in last) == 3
    assert [one[0] for one in (*first, *last)].count(COMPUTE) == 0
    assert sum(one[0] == PAUSE for one in first) == 3 + 3  # forwards; backwards, the last with the optimizer
