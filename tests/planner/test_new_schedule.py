"""A new schedule is one new module: the planner uses it, and without declared facts its bounds still hold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from planner import api
from planner.costs.cluster_costs import single_replica
from planner.costs.context import PlanningContext
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.search.searched_space import axes
from planner.space.runnable import schedules_for
from planner.space.shape import split_backward
from sim.errors import Infeasible
from sim.hardware.cluster import Trunk
from sim.hardware.topology import Topology
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.workload.workload import Workload
from tests import builders

MUST = ("CHUNKED", "OVERLAPS_SENDS", "SPLITS_BACKWARD", "RECEIVES_FIRST", "actions")
NUMBERS = itertools.count()


@pytest.fixture
def copied(monkeypatch) -> Iterator[Callable[..., str]]:
    """Registers a copy of a schedule that declares only what it must, and the given facts; returns its name.

    Every copy has another name, because programs are cached by the name of their schedule. Shapes that were made with a copy
    are forgotten afterwards."""

    def register(original: str, **facts: object) -> str:
        name, registry = f"copy-{next(NUMBERS)}-of-{original}", schedules.REGISTRY
        module = SimpleNamespace(NAME=name, **{key: getattr(schedules.get(original), key) for key in MUST}, **facts)
        monkeypatch.setattr(registry, "names", tuple(sorted((*registry.names, name))))
        get = registry.get
        monkeypatch.setattr(registry, "get", lambda wanted: module if wanted == name else get(wanted))
        forget()
        return name

    def forget() -> None:
        split_backward.cache_clear()
        single_replica.cache_clear()
        schedules_for.cache_clear()

    yield register
    forget()


@pytest.fixture
def request_of():
    """Two clusters of unequal devices and a batch of eight. With 3.08e9 bytes, the microbatches in flight decide what fits."""

    def request(memory: float = 80e9, **wishes: object) -> Request:
        nics = (builders.nic("ethernet", 1e9, latency=1e-6),)
        clusters = (
            builders.cluster(name, nodes=2, devices=1, nics=nics, spec=builders.device(name, speed, memory=memory))
            for name, speed in (("a", 1e12), ("b", 2e12))
        )
        workload = Workload(builders.model(layers=8), 8, 64, "bf16")
        fleet = builders.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 1e-6),))
        topology = Topology("small", "", fleet, workload, json.dumps({"name": "small"}))
        return Request(topology, workload, Wishes(**wishes))

    return request


def planned(request: Request) -> Plan:
    return api.plan(request, "certified", PlanningContext(request))


def test_a_copy_of_1f1b_gives_the_plan_of_1f1b(request_of, copied):
    facts = {name: getattr(schedules.get("1f1b"), name) for name in ("FORWARDS_FIRST", "WHOLE_ROUNDS", "WARM_UP")}
    copy = copied("1f1b", **facts)
    plan, expected = (planned(request_of(schedule=name, tp=1, pp=4)) for name in (copy, "1f1b"))
    assert plan.config.schedule == copy
    assert (plan.stages, plan.placement, plan.prediction) == (expected.stages, expected.placement, expected.prediction)
    assert plan.certificate.lower_bound_s == expected.certificate.lower_bound_s


@pytest.mark.parametrize("original", ["1f1b", "gpipe", "zb-h1", "zb-h2", "interleaved"])
@pytest.mark.parametrize("memory", [80e9, 3.084e9, 3.081e9])
def test_bounds_of_a_schedule_that_declares_nothing_hold(request_of, copied, original, memory):
    """No bound of the copy is above a plan of the original, which is a plan of the copy, too."""
    copy = copied(original)
    wishes = {"tp": 1, "dp": 1, "microbatch_size": 1, "recompute": "none"}
    try:
        best = planned(request_of(memory, schedule=original, **wishes))
    except Infeasible:
        with pytest.raises(Infeasible):
            planned(request_of(memory, schedule=copy, **wishes))
        return
    plan = planned(request_of(memory, schedule=copy, **wishes))
    assert plan.config.schedule == copy and fits(plan)
    assert plan.certificate.lower_bound_s <= best.prediction.step_s * (1 + 1e-9)


@pytest.mark.parametrize("facts", [{}, {"SEARCHED": True}, {"SEARCHED": False}])
def test_a_new_schedule_is_searched_unless_it_says_otherwise(request_of, copied, facts):
    request = request_of(tp=1, dp=1, pp=4, vpp=1)
    before = planned(request)
    copy = copied("1f1b", **facts)
    (found,) = (axis.values for axis in axes(request) if axis.name == "schedule")
    assert (copy in found) == facts.get("SEARCHED", True)
    after = planned(request)
    assert after.prediction.step_s <= before.prediction.step_s
    assert after.certificate.lower_bound_s <= before.prediction.step_s


@pytest.mark.parametrize("strategy", ["alpa", "amp", "dt_fm", "hethub", "holmes", "megatron", "metis", "random"])
def test_every_strategy_plans_with_a_new_schedule(request_of, copied, strategy):
    request = request_of(schedule=copied("1f1b"), tp=1, pp=4)
    assert api.plan(request, strategy, PlanningContext(request)).config.schedule == request.wishes.schedule


@pytest.mark.parametrize(("original", "pairs"), [("1f1b", (24, 0)), ("interleaved", (72, 0)), ("zb-h1", (24, 24))])
def test_without_a_warm_up_all_microbatches_may_be_in_flight(copied, original, pairs):
    assert schedules.most_in_flight(copied(original), 4, 24, 3 if original == "interleaved" else 1) == pairs
    assert schedules.most_in_flight("1f1b", 4, 24, 1) == (4, 0)


def test_without_declared_rounds_the_program_says_where_a_schedule_is_defined(copied):
    copy = copied("interleaved")
    assert [schedules.is_defined(copy, ranks, 12, 2) for ranks in range(1, 7)] == [True, True, True, True, False, True]
