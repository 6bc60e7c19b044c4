"""Errors of different meaning have different types, and a planner drops a candidate for the expected ones only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import holmes_sim as hs
from holmes_sim import commands, exporting
from holmes_sim.torch_backend import supported
from planner import api
from planner.costs.context import PlanningContext
from planner.placement import simulation
from planner.placement.ranks import assemble
from planner.request import Request, Wishes
from planner.search import fitting
from planner.space.shape import Shape
from planner.time_limit import TimeLimit
from sim import collectives
from sim.analytic import evaluator
from sim.errors import (
    HolmesError,
    Infeasible,
    NoRoute,
    NotDefined,
    NotModelled,
    NotSupported,
    OptionError,
    PlanError,
    TimelineError,
    TopologyError,
)
from sim.formats.lost_nodes import parse_node
from sim.hardware.cluster import Device
from sim.hardware.transport import common_transport
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from tests import builders

Make = Callable[..., Any]
TYPES = (TopologyError, OptionError, PlanError, NoRoute, NotDefined, NotModelled, NotSupported, TimelineError, Infeasible)


@pytest.fixture
def request_of() -> Callable[..., Request]:
    def make(**wishes: Any) -> Request:
        topology = commands.load("holmes-hybrid-4")
        assert topology.workload is not None
        return Request(topology, topology.workload, Wishes(**wishes))

    return make


@pytest.fixture
def plan() -> Plan:
    """tp 2, pp 2, dp 2 on two nodes of four devices."""
    made: Plan = builders.plan(builders.fleet(builders.cluster(nodes=2, devices=4)), tp=2, pp=2, dp=2, microbatches=2)
    return made


def raised(call: Callable[[], object]) -> type[HolmesError]:
    with pytest.raises(HolmesError) as caught:
        call()
    return type(caught.value)


@pytest.mark.parametrize("kind", TYPES)
def test_exit_codes(kind: type[HolmesError]) -> None:
    assert kind.exit_code == (3 if kind is Infeasible else 2)


def test_an_inconsistent_plan_is_a_plan_error(plan: Plan) -> None:
    assert raised(lambda: ParallelConfig(dp=2)) is PlanError
    assert raised(lambda: replace(plan, placement=plan.placement[:4])) is PlanError
    assert raised(lambda: replace(plan, stages=plan.stages[:1])) is PlanError
    assert raised(lambda: schedules.get("1f2b")) is PlanError
    assert raised(lambda: collectives.get("rings")) is PlanError


def test_a_wrong_option_or_argument_is_an_option_error(plan: Plan, request_of: Make) -> None:
    request = request_of()
    context = PlanningContext(request)
    assert raised(lambda: api.plan(request, "magic")) is OptionError
    assert raised(lambda: api.plan_for("speed", request, "certified", context)) is OptionError
    assert raised(lambda: api.plan_for("cost", request, "holmes", context)) is OptionError
    assert raised(lambda: parse_node(plan.fleet, "node9")) is OptionError
    assert raised(lambda: hs.simulate("plan.json")) is OptionError
    assert not issubclass(OptionError, PlanError)


def test_devices_that_nothing_joins_have_no_route() -> None:
    fleet = builders.fleet(
        *(builders.cluster(name, 1, 1, (builders.nic(kind),)) for name, kind in (("a", "infiniband"), ("b", "roce")))
    )
    assert raised(lambda: common_transport(fleet, (Device("a", 0, 0), Device("b", 0, 0)))) is NoRoute


def test_numbers_for_which_no_schedule_or_collective_exists_are_not_defined(request_of: Make) -> None:
    assert raised(lambda: schedules.actions("interleaved", 0, 4, 6, 2)) is NotDefined
    assert raised(lambda: schedules.actions("1f1b", 0, 4, 8, 2)) is NotDefined
    assert raised(lambda: ParallelConfig(vpp=2)) is NotDefined
    assert raised(lambda: ParallelConfig(dp=2, zero_stage=2, num_microbatches=(1, 2))) is NotDefined
    assert raised(lambda: collectives.rounds("hierarchical", "all_reduce", ((0, 1), (2,)))) is NotDefined
    shape = Shape(1, 4, 1, "none", "interleaved", 3, 1)
    assert raised(lambda: assemble(request_of(), shape, (28, 2), (), "by hand")) is NotDefined


def test_configurations_without_a_cost_model_are_not_modelled() -> None:
    assert raised(lambda: ParallelConfig(dp=4, ep=2, zero_shard_size=2, num_microbatches=(1,) * 4)) is NotModelled
    config = ParallelConfig(dp=4, ep=2, vpp=2, schedule="interleaved", zero_stage=3, num_microbatches=(2,) * 4)
    assert raised(lambda: evaluator.check(config)) is NotModelled


def test_a_target_that_cannot_run_a_plan_does_not_support_it(plan: Plan) -> None:
    hierarchical = replace(plan, groups=tuple(replace(group, collective="hierarchical") for group in plan.groups))
    assert raised(lambda: exporting.export(hierarchical, "chakra")) is NotSupported
    rounded = replace(plan, config=replace(plan.config, message_compression="top-k=1%"))
    assert raised(lambda: supported.check(rounded)) is NotSupported


@pytest.mark.parametrize("error", [NoRoute("x"), NotDefined("x")])
def test_candidates_that_cannot_be_built_are_skipped(plan: Plan, error: HolmesError) -> None:
    found = simulation.fastest([_raising(error), lambda: None, lambda: plan], 3, 1, TimeLimit(math.inf))
    assert found is not None
    assert found.stages == plan.stages


@pytest.mark.parametrize("error", [PlanError("fault"), NotModelled("fault"), ValueError("fault")])
def test_other_errors_of_a_candidate_propagate(plan: Plan, error: Exception) -> None:
    with pytest.raises(type(error), match="fault"):
        simulation.fastest([_raising(error), lambda: plan], 2, 1, TimeLimit(math.inf))


def _raising(error: Exception) -> Callable[[], Plan]:
    def build() -> Plan:
        raise error

    return build


def test_one_pipeline_without_a_route_does_not_hide_the_others_of_its_shape(
    request_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, failed = fitting.build, []

    def failing_once(*given: Any) -> Plan:
        if not failed:
            failed.append(given)
            raise NoRoute("nothing joins them")
        return built(*given)

    monkeypatch.setattr(fitting, "build", failing_once)
    found = fitting.fitting(request_of(tp=2, dp=2))
    assert found is not None
    assert failed
    assert found.config.dp == failed[0][1].dp


def test_a_fault_of_the_program_is_not_a_plan_that_does_not_fit(request_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "build", lambda *given: _raising(PlanError("fault"))())
    with pytest.raises(PlanError, match="fault"):
        fitting.fitting(request_of(tp=2, dp=2))


def test_pins_that_contradict_each_other_fit_no_plan(request_of: Make) -> None:
    assert fitting.fitting(request_of(schedule="1f1b", vpp=2)) is None
    assert fitting.fitting(request_of(zero_stage=0, zero_shard_size=2)) is None
