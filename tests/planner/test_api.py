"""The planner's face: one plan by one strategy, or a row for each of several."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from holmes_sim import commands
from planner import api, strategies
from planner.costs.context import PlanningContext
from planner.placement import simulation
from planner.placement.simulation import step
from planner.request import Request, Wishes
from sim.errors import Infeasible, OptionError
from sim.formats.edits import edited
from sim.plan.plan import Plan
from tests.planner.builders import NO_LIMIT
from tests.planner.unlike import PINNED as UNLIKE_PINNED
from tests.planner.unlike import question as unlike_layers

PINNED = Wishes(tp=2, pp=2, dp=8, microbatch_size=4, recompute="none")


def hybrid(wishes: Wishes = PINNED) -> Request:
    """A request on holmes-hybrid-4."""
    topology = commands.load("holmes-hybrid-4")
    return Request(topology, topology.workload, wishes, NO_LIMIT)


def test_the_usual_strategy_is_certified():
    assert api.DEFAULT == "certified"
    assert api.plan(hybrid()).made_by.strategy == "certified"


def test_an_unknown_strategy_is_named_with_the_known_ones():
    with pytest.raises(OptionError) as caught:
        api.plan(hybrid(), "magic")
    assert str(caught.value) == f"strategy 'magic' is unknown; known: {', '.join(strategies.names())}"
    with pytest.raises(OptionError):
        api.compare(hybrid(), ("magic",))


def test_a_row_for_each_strategy_in_the_requested_order():
    rows = api.compare(hybrid(), ("megatron", "certified", "holmes"))
    assert [row.name for row in rows] == ["megatron", "certified", "holmes"]
    assert all(row.plan is not None and row.reason == "" for row in rows)
    assert [row.plan.made_by.strategy for row in rows] == ["megatron", "certified", "holmes"]
    assert step(rows[1].plan) <= min(step(rows[0].plan), step(rows[2].plan))


def test_a_strategy_without_a_plan_says_why():
    """All 32 devices are 4 x 8 = 2 stages of 16; three stages are not a layout of megatron or holmes."""
    rows = api.compare(
        hybrid(Wishes(tp=2, pp=3, dp=4, microbatch_size=4, recompute="none")), ("megatron", "holmes", "certified")
    )
    assert rows[0].plan is None and rows[0].reason.startswith("megatron: no layout with equal stages over all devices ")
    assert rows[1].plan is None and rows[1].reason.startswith("holmes: no layout of whole stages per cluster ")
    assert rows[2].plan is not None and rows[2].plan.config.pp == 3


def test_one_workshop_thinks_every_answer_out_once(monkeypatch):
    question, progress = hybrid(), []
    context = PlanningContext(question, progress.append)
    first = api.plan(question, "megatron", context)
    assert api.row(question, "megatron", context).plan is first
    assert [text for text in progress if text == "strategy megatron"] == ["strategy megatron"]


@dataclass
class Clocked:
    """A strategy that takes so many seconds of a clock, as the real one does, or is stopped by Ctrl-C."""

    seconds: float
    clock: list[float]
    real: strategies.Strategy
    stops: str = ""

    def plan(self, question: Request, context: PlanningContext) -> Plan:
        self.clock[0] += self.seconds
        if self.stops == "at once":
            raise KeyboardInterrupt
        context.interrupted = self.stops == "with the best so far"
        return self.real.plan(question, context)


@pytest.fixture
def clocked(monkeypatch):
    """Replace holmes and megatron, and the clock, by ones that take 5 and 3 seconds."""

    def replace(stops: str = "") -> None:
        clock, real = [0.0], strategies.get
        known = {"holmes": Clocked(5.0, clock, real("holmes"), stops), "megatron": Clocked(3.0, clock, real("megatron"))}
        monkeypatch.setattr(api.time, "perf_counter", lambda: clock[0])
        monkeypatch.setattr(strategies, "get", lambda name: known.get(name) or real(name))

    return replace


def test_seconds_to_plan_are_each_strategys_own(clocked):
    """The second holmes thinks again: nothing is taken over from the first."""
    clocked()
    rows = api.compare(hybrid(), ("holmes", "megatron", "holmes"))
    assert [row.planning_s for row in rows] == [5.0, 3.0, 5.0]
    assert rows[0].plan is not rows[2].plan and rows[0].plan == rows[2].plan


def test_what_a_workshop_knows_costs_nothing(clocked):
    clocked()
    context = PlanningContext(hybrid())
    assert [api.row(hybrid(), "holmes", context).planning_s for _ in range(2)] == [5.0, 0.0]


@pytest.mark.parametrize(("stops", "left"), [("at once", [("megatron", False)]),
                                             ("with the best so far", [("megatron", False), ("holmes", True)])])  # fmt: skip
def test_ctrl_c_leaves_the_rows_done_so_far(clocked, stops, left):
    clocked(stops)
    rows = api.compare(hybrid(), ("megatron", "holmes", "certified"))
    assert [(row.name, row.interrupted) for row in rows] == left


def test_progress_names_the_strategy_at_work():
    progress: list[str] = []
    api.compare(hybrid(), ("megatron", "certified"), progress.append)
    assert progress[:2] == ["megatron (1 of 2)", "certified (2 of 2)"]
    assert len(progress) > 2
    assert all(text.startswith("certified (2 of 2): ") for text in progress[2:])


def test_what_was_infeasible_once_is_so_again():
    question = hybrid(Wishes(dp=5))
    context = PlanningContext(question)
    for _ in range(2):
        with pytest.raises(Infeasible, match="dp 5 must divide global_batch_size 768"):
            api.plan(question, "holmes", context)


@pytest.mark.parametrize(("time_limit", "reached"), [(0.0, True), (3600.0, False)])
def test_a_plan_says_whether_the_time_limit_ended_its_search(time_limit, reached):
    found = api.plan(replace(hybrid(), time_limit=time_limit))
    assert found.certificate is not None
    assert found.certificate.time_limit_reached is reached


def test_no_strategy_beside_the_search_of_a_models_own_layers_is_faster(monkeypatch):
    """The search does not begin with their plans, which another process may make meanwhile, and ends with them."""
    given: list[float] = []

    def certified(request, context, best, others):
        given.extend(step(plan) for plan in others())
        return min([best, *others()], key=step)

    monkeypatch.setattr(api.unlike_certificate, "certified", certified)
    wanted = unlike_layers()
    other = step(api.plan(wanted, "megatron", PlanningContext(wanted)))
    found = api.plan(wanted, context=PlanningContext(wanted, beside=("megatron",)))
    assert given == [other]
    assert step(found) <= other


def test_stand_ins_that_follow_seek_nothing_slower_than_the_first():
    """With recomputation, nothing is faster where all activations fit: the second stand-in ends with the plan of the first."""
    wanted = unlike_layers(replace(UNLIKE_PINNED, recompute=None))
    context = PlanningContext(wanted)
    api.plan(wanted, context=context)
    first, second = (context.stand_ins[number] for number in range(2))
    assert second.request.wishes.recompute == "full"
    assert second.start is not None
    assert step(second.start) == min(map(step, first.simulated)) == min(map(step, second.simulated))
    assert min(second.simulated, key=step).config.recompute == "none"


def test_the_winner_is_not_simulated_again(monkeypatch):
    """`plan` shows the timeline of the simulation that the search ran; another plan's is simulated."""
    context = PlanningContext(hybrid())
    found = api.plan(hybrid(), context=context)
    timeline, begun = simulation.simulate(found), []
    monkeypatch.setattr(simulation, "simulate", lambda plan: begun.append(plan))
    assert context.timelines.of(found) == timeline
    assert begun == []
    assert context.timelines.of(replace(found, groups=(*found.groups[1:], found.groups[0]))) is None
    assert len(begun) == 1


def test_tensor_parallel_groups_span_the_nodes_of_a_domain():
    wishes = Wishes(tp=16, pp=1, microbatch_size=4, recompute="none", schedule="1f1b", zero_stage=1)
    apart = commands.load("holmes-infiniband-4")
    (name,) = (cluster.name for cluster in apart.fleet.clusters)
    with pytest.raises(Infeasible):
        api.plan(Request(apart, apart.workload, wishes, NO_LIMIT))
    joined = edited(apart, {f"clusters.{name}.nvlink_domain": 16})
    plan = api.plan(Request(joined, joined.workload, wishes, NO_LIMIT))
    assert (plan.config.tp, plan.config.dp) == (16, 2)
    assert {group.nic for group in plan.groups if group.kind == "tp"} == {"intra_node"}
    assert plan.certificate.lower_bound_s <= step(plan)
