"""Plans of changed topologies: each search begins with a plan, has its share of the time, and is left out if there is none."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from holmes_sim import change_planning, commands
from holmes_sim.change_planning import LATE, Answer, Task, answers
from holmes_sim.plan_numbers import PlanNumbers
from planner import api
from planner.request import Request, Wishes
from sim.formats.edits import edited
from sim.hardware.topology import Topology
from tests.more import more

NAME = "lab/lab-slow-trunk"


@pytest.fixture
def here(monkeypatch):
    """No further processes."""
    monkeypatch.setattr(change_planning, "pooled", lambda work, tasks, count: map(work, tasks))


def plan_of(topology: Topology, time_limit: float = 1e9, **wishes: int):
    return api.plan(Request(topology, topology.workload, Wishes(**wishes), time_limit))


def test_an_answer_is_the_plan_of_the_topology(here):
    topology = edited(commands.load(NAME), {"links[0].bandwidth": "80 Gbit/s"})
    (found,) = answers([Task(7, topology, None)], 1e9, 1.0)
    plan = plan_of(topology)
    numbers = PlanNumbers(plan.prediction.step_s, plan.prediction.tokens_per_s, plan.certificate.gap)
    assert (found.index, found.found, found.reason) == (7, numbers, "")


@more
def test_a_search_without_time_returns_the_plan_that_it_begins_with_or_a_faster_one(here):
    topology = commands.load(NAME)
    for start in (plan_of(topology), plan_of(topology, pp=4), plan_of(topology, pp=2)):
        (found,) = answers([Task(0, topology, start, target="none")], 0.0, -1e9)
        assert found.found.step_s <= start.prediction.step_s


def test_a_topology_without_a_plan_has_a_reason(here):
    small = commands.load(NAME)
    for name in ("east", "west"):
        small = edited(small, {f"clusters.{name}.node.devices.type.memory": "1 MiB"})
    topology = commands.load(NAME)
    found = list(answers([Task(0, small, None), Task(1, topology, None)], 1e9, 1.0))
    assert "memory" in found[0].reason
    assert not found[1].reason, "the others are planned"


def test_an_error_that_nobody_expects_is_the_reason_of_one_change(here, monkeypatch):
    monkeypatch.setattr(change_planning, "api", SimpleNamespace(plan=lambda *_: 1 / 0, DEFAULT=api.DEFAULT))
    (found,) = answers([Task(0, commands.load(NAME), None)], 1e9, 1.0)
    assert found.reason == "ZeroDivisionError: division by zero"


def test_searches_share_the_time_and_the_last_are_left_out(monkeypatch):
    """Two processes, six tasks, 30 s: three rounds of 10 s; where each takes 12 s or more, tasks that begin after 18 s are
    left out."""
    monkeypatch.setattr(change_planning, "os", SimpleNamespace(cpu_count=lambda: 2))
    topology = commands.load(NAME)
    tasks = [Task(index, topology, None) for index in range(6)]

    def shares(least: float, begins: list[float]) -> list[float]:
        clock = itertools.chain(begins, itertools.repeat(30.0))
        monkeypatch.setattr(change_planning, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        given = list[Task]()

        def pooled(work, tasks, count):
            given.extend(tasks)
            return (Answer(task.index) for task in given[:count])

        monkeypatch.setattr(change_planning, "pooled", pooled)
        assert [answer.index for answer in answers(tasks, 30.0 + LATE, least)] == list(range(len(given)))
        assert {task.due for task in given} == {30.0}
        return [task.share for task in given]

    assert shares(1.0, [0.0, 0.0, 10.0, 10.0, 20.0, 20.0]) == [10.0] * 6
    assert shares(12.0, [0.0, 0.0, 12.0, 12.0, 24.0]) == [12.0] * 4
    assert shares(1.0, [0.0, 0.0, 2.0, 2.0, 4.0, 4.0]) == [10.0, 10.0, 14.0, 14.0, 26.0, 26.0]


def test_time_that_searches_leave_goes_to_those_that_their_share_ended(monkeypatch):
    """Two processes, four tasks; 19 s are left after all have searched, and two searches were ended by their shares. If these
    were 10 s, they search again, the largest gap first, from the plans that they found; if 20 s, 19 s are too short."""
    monkeypatch.setattr(change_planning, "os", SimpleNamespace(cpu_count=lambda: 2))
    topology = commands.load(NAME)
    tasks = [Task(index, topology, None) for index in range(4)]
    plan = plan_of(topology)
    first = [PlanNumbers(1.0, 100.0, gap) for gap in (0.1, 0.001, 0.3, 0.001)]
    again = {0: PlanNumbers(1.0, 100.0, 0.05), 2: PlanNumbers(0.8, 125.0, 0.5)}
    searched = list[Task]()

    def told(took: float) -> dict[int, PlanNumbers]:
        """The last answers, where the first searches took so many seconds and 19 s are left after them."""
        clock = [0.0]
        searched.clear()
        monkeypatch.setattr(change_planning, "time", SimpleNamespace(monotonic=lambda: clock[0]))

        def pooled(work, given, count):
            for task in given:
                new = again[task.index] if task.start else first[task.index]
                searched.append(task)
                yield Answer(task.index, new, plan=None if task.start or new.gap < 0.005 else plan, seconds=took)
                clock[0] = 40.0 - 19.0 if len(searched) == 4 else clock[0]

        monkeypatch.setattr(change_planning, "pooled", pooled)
        return {answer.index: answer.found for answer in answers(tasks, 40.0 + LATE, 1.0)}

    assert told(20.0) == dict(enumerate(first))
    found = told(10.0)
    assert [(task.index, task.start, task.share) for task in searched[4:]] == [(2, plan, 19.0), (0, plan, 19.0)]
    assert found[0] == PlanNumbers(1.0, 100.0, pytest.approx(0.05))
    assert found[2] == PlanNumbers(0.8, 125.0, pytest.approx(1 - 125 * 0.7 / 100)), "the faster plan, by the greater bound"
    assert (found[1], found[3]) == (first[1], first[3])


def test_an_answer_keeps_the_plan_of_a_search_that_the_limit_ended(here):
    topology = commands.load(NAME)
    start = plan_of(topology)
    (ended,) = answers([Task(0, topology, start)], 0.0, -1e9)
    (whole,) = answers([Task(0, topology, None)], 1e9, 1.0)
    assert ended.found.step_s <= start.prediction.step_s and ended.plan.prediction.step_s == ended.found.step_s
    assert whole.plan is None
