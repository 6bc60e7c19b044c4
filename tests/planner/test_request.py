"""Requests: the clusters that may be used, and pins as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import strategies
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from planner.space.shapes import searched
from sim.analytic.plan_costs import upper_bound_seconds
from sim.errors import OptionError, PlanError
from sim.hardware.memory_facts import MEGATRON
from sim.hardware.stack import DEFAULT
from tests import builders as make
from tests.planner.builders import request


def test_wishes_read_like_the_command_line():
    assert str(Wishes()) == ""
    assert str(Wishes(tp=2, offload="optimizer")) == "--tp 2 --offload optimizer"
    assert Wishes(offload="optimizer+activations").offloaded == ("optimizer", "activations")
    with pytest.raises(PlanError, match="--recompute block with --offload activations: none or full, whichever is faster"):
        Wishes(offload="activations", recompute="block")
    assert (Wishes(offload="optimizer").offloaded, Wishes(offload="none").offloaded) == (("optimizer",), ())
    single = Wishes(offload="parameters", microbatch_size=2)
    assert single.offloaded == ("optimizer", "parameters")
    assert (single.tp, single.pp, single.dp, single.zero_stage, single.schedule) == (1, 1, 1, 0, "gpipe")
    with pytest.raises(PlanError, match="--offload parameters is for single devices, with dp 1, not 2"):
        Wishes(offload="parameters", dp=2)
    assert str(Wishes(tp=2, microbatch_size=4, recompute="full", zero_stage=0)) == (
        "--tp 2 --microbatch-size 4 --recompute full --zero-stage 0"
    )


def test_clusters_are_those_allowed_with_the_allowed_number_of_nodes():
    question = request(make.fleet(make.cluster("a", 3), make.cluster("b", 2), make.cluster("c")), make.model())
    assert [(cluster.name, cluster.nodes) for cluster in question.clusters()] == [("a", 3), ("b", 2), ("c", 1)]
    part = replace(question, machines=(("a", 2), ("c", 1)))
    assert [(cluster.name, cluster.nodes) for cluster in part.clusters()] == [("a", 2), ("c", 1)]


def test_clusters_whose_devices_lack_the_precision_are_not_used():
    old = make.cluster("old", spec=make.device("old", peak=(("fp16", 1e14), ("fp32", 2e13))))
    fleet = make.fleet(make.cluster("new"), old)
    for precision, names in (("bf16", ["new"]), ("fp16", ["new", "old"]), ("fp8", [])):
        question = request(fleet, make.model(), precision=precision)
        assert [cluster.name for cluster in question.clusters()] == names


FACTS = (
    "all_reduces",
    "early_stop",
    "tp_backward_overlap",
    "copied_sequences",
    "whole_messages",
    "separate_qkv",
    "separate_gate",
    "held_receivers",
    "whole_latents",
)


@pytest.mark.parametrize("fact", FACTS)
def test_plans_have_the_facts_of_the_software_of_the_topology(fact):
    question = request(make.fleet(make.cluster("a", 2)), make.model(8), batch=8)
    question = replace(question, topology=replace(question.topology, stack=replace(DEFAULT, **{fact: True})))
    assert all(getattr(shape, fact) for shape in searched(question))
    assert getattr(strategies.get("megatron").plan(question, PlanningContext(question)).config, fact)


def test_plans_keep_in_memory_what_the_software_of_the_topology_keeps():
    plain = request(make.fleet(make.cluster("a", 2)), make.model(8), batch=8)
    eager = replace(plain, topology=replace(plain.topology, stack=replace(DEFAULT, memory=make.EAGER)))
    assert {shape.memory for shape in searched(plain)} == {MEGATRON}
    assert {shape.memory for shape in searched(eager)} == {make.EAGER}
    assert strategies.get("megatron").plan(eager, PlanningContext(eager)).config.memory == make.EAGER


def test_plans_stop_recomputation_where_the_software_of_the_topology_does():
    plain = replace(request(make.fleet(make.cluster("a", 2)), make.model(8), batch=8), wishes=Wishes(recompute="full"))
    early = replace(plain, topology=replace(plain.topology, stack=replace(DEFAULT, early_stop=True)))
    plans = [strategies.get("certified").plan(one, PlanningContext(one)) for one in (plain, early)]
    assert [plan.config.early_stop for plan in plans] == [False, True]
    assert plans[0].prediction and plans[1].prediction
    assert plans[1].prediction.step_s < plans[0].prediction.step_s
    assert upper_bound_seconds(plans[1]) < upper_bound_seconds(replace(plans[1], config=plans[0].config))


def test_a_schedule_with_a_list_is_not_pinned():
    """Its warm-ups are those of the stages of one plan."""
    with pytest.raises(PlanError) as caught:
        Wishes(schedule="zb-latency=3,0")
    assert (
        str(caught.value) == "--schedule zb-latency=3,0: a list belongs to one plan file; pin --schedule zb-latency without it"
    )


def test_a_pinned_recomputation_is_known():
    assert Wishes(recompute="block").recompute == "block"
    with pytest.raises(PlanError, match="recompute 'some' is unknown; known: none, selective, full, block"):
        Wishes(recompute="some")
    known = r"none, optimizer, parameters, activations, optimizer\+activations"
    with pytest.raises(PlanError, match=f"offload 'gradients' is unknown; known: {known}"):
        Wishes(offload="gradients")


def test_a_time_limit_is_a_number_of_seconds():
    asked = request(make.fleet(make.cluster()), make.model())
    with pytest.raises(OptionError, match="time_limit: a number of seconds is expected, not '30s'"):
        Request(asked.topology, asked.workload, time_limit="30s")  # type: ignore[arg-type]
