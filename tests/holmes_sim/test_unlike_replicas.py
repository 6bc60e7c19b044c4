"""What `plan` says of unlike pipelines beside a plan of alike replicas."""

from __future__ import annotations

import html
import io
import itertools
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.certificates.pipelines import owned
from holmes_sim import exporters, printing, targets, unlike_pipelines, unlike_replicas
from holmes_sim.intervals import plan_facts
from holmes_sim.reporting.pipelines_page import pipelines_page
from holmes_sim.results import Planned
from holmes_sim.unlike_replicas import (
    UnlikeReplicas,
    beside,
    idle,
    in_words,
    is_wanted,
    remove_former,
    searched,
    spared,
)
from planner import api
from planner.bounds.unlike_pipelines import SPACE, least_step
from planner.costs.context import PlanningContext
from planner.limits import Limits
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from planner.search.branch_and_bound import Proof
from sim.engine.engine import simulate
from sim.formats import pipelinesfile, planfile
from sim.formats.proofs import UnlikePipelinesFacts
from sim.hardware.cluster import Trunk
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner.builders import request, shape


def asked() -> Request:
    """Two fast nodes of one device, and one of three slow ones: nothing but pipelines of five stages uses all of them."""
    clusters = [
        make.cluster(name, nodes, devices, (make.nic(bandwidth=1e11),), make.device(f"chip-{name}", speed, 1e12))
        for name, nodes, devices, speed in (("a", 2, 1, 3e12), ("b", 1, 3, 1e12))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e11, 0.0),))
    return replace(request(machines, make.model(3), 16, seq_len=256), target=targets.any_framework())


@pytest.fixture(scope="module")
def fast_nodes() -> Plan:
    """Two replicas of one stage on the fast nodes; the slow one is idle, a third of the fleet's peak."""
    return simulate_plan(build(asked(), shape(1, 2), (("a", 3),), "by hand"))


@pytest.fixture(scope="module")
def found(fast_nodes: Plan) -> UnlikeReplicas:
    """What is known of unlike pipelines beside the plan on the fast nodes."""
    known = searched(asked(), fast_nodes, math.inf)
    assert known is not None
    return known


def test_the_idle_node_saves_more_than_a_quarter_of_the_step(fast_nodes, found):
    """It takes a third of the batch; microbatches of several samples save the rest."""
    assert idle(asked(), fast_nodes) == pytest.approx(3 / 9)
    assert found.plan is not None
    assert found.saved > 0.25
    assert found.saved == pytest.approx(1 - found.step / step(fast_nodes))
    assert {device.cluster for device in found.plan.placement} == {"a", "b"}
    assert found.plan.workload.global_batch_size == 16
    assert "unlike pipelines (" in str(found)
    assert f"{found.saved:.0%} less time; no searched plan of alike replicas, and none of" in str(found)


def test_pipelines_with_as_many_devices_and_samples_are_told_together(fast_nodes):
    slow = build(asked(), shape(1, 1), (("b", 3),), "by hand")
    assert in_words([fast_nodes, slow, fast_nodes]) == "2 on 2 devices with 16 samples each, 1 on 1 device with 16 samples"


def test_its_simulation_confirms_its_prediction(found):
    assert found.plan is not None
    run = unlike_pipelines.simulate_pipelines(found.plan)
    assert run.timeline.step_s == pytest.approx(found.step)
    assert run.confirmed


def test_its_file_is_beside_that_of_the_plan():
    assert str(beside(Path("out/plan.json"))) == "out/plan.pipelines.json"


def test_nothing_is_searched_where_it_was_not_asked_for(fast_nodes):
    free = asked()
    assert searched(replace(free, wishes=Wishes(tp=1)), fast_nodes, math.inf) is None
    assert searched(replace(free, limits=Limits(devices=2)), fast_nodes, math.inf) is None
    assert searched(replace(free, target=exporters.target("megatron")), fast_nodes, math.inf) is None
    assert searched(replace(free, target=exporters.joined(("torchrun", "kubernetes"))), fast_nodes, math.inf) is None
    assert searched(free, fast_nodes, 0.0) is None


@pytest.mark.parametrize("names", [(), ("torchrun",), ("torchrun", "slurm")])
def test_it_is_searched_for_no_framework_and_for_targets_that_start_the_run_command(names):
    assert is_wanted(replace(asked(), target=exporters.joined(names) if names else None))


def test_nothing_is_searched_where_nodes_are_alike_and_none_is_idle():
    every = simulate_plan(build(asked(), shape(), (("a", 1), ("a", 1), ("b", 1)), "by hand"))
    only = replace(asked(), machines=(("a", 2),))
    assert idle(asked(), every) == pytest.approx(2 / 9)
    assert idle(only, every) <= 0
    whole = replace(asked(), topology=replace(asked().topology, fleet=make.fleet(asked().topology.fleet.cluster("a"))))
    known = searched(whole, simulate_plan(build(whole, shape(1, 2), (("a", 3),), "by hand")), math.inf)
    assert known is not None
    assert (known.plan, known.not_searched, str(known)) == (
        None,
        "all nodes are alike, and the plan uses nearly all devices",
        "",
    )
    assert known.saved == 0.0


def test_large_fleets_are_not_searched_and_the_proof_has_the_time(fast_nodes):
    free = replace(asked(), time_limit=1000.0)
    slow = free.topology.fleet.cluster("b")
    large = replace(free, topology=replace(free.topology, fleet=replace(free.topology.fleet, clusters=(
        free.topology.fleet.cluster("a"), replace(slow, nodes=683),
    ))))  # fmt: skip
    known = searched(large, fast_nodes, math.inf)
    assert known is not None
    assert (known.plan, known.not_searched) == (None, "the fleet has more than 2,048 devices")
    assert (spared(large, fast_nodes), spared(free, fast_nodes)) == (0.0, 30.0)


def test_large_fleets_in_use_are_not_searched(monkeypatch):
    """The plan uses all of four devices."""
    unlike = replace(owned(0), target=targets.any_framework(), time_limit=100.0)
    every = simulate_plan(build(unlike, shape(1, 2), (("c0", 2), ("c1", 1)), "by hand"))
    monkeypatch.setattr(unlike_replicas, "LARGEST_IN_USE", 3)
    known = searched(unlike, every, math.inf)
    assert known is not None
    assert (known.plan, known.not_searched) == (None, "the plan uses nearly all of more than 3 devices")


def test_unlike_nodes_are_searched_and_a_pipeline_on_each_cluster_is_faster():
    """The plan has one stage, on one cluster: 30.10 ms. Both clusters take 29.77 ms."""
    unlike = replace(owned(0), target=targets.any_framework(), time_limit=100.0)
    every = api.plan(unlike)
    known = searched(unlike, every, math.inf)
    assert known is not None
    assert known.plan is not None
    assert known.alike_s == pytest.approx(0.0301044, rel=1e-5)
    assert known.saved == pytest.approx(0.01115, rel=1e-3)


def test_the_plan_is_the_same_on_a_machine_on_which_the_search_takes_ten_times_as_long(monkeypatch):
    """Counts end the search, where the plan of alike replicas uses all devices, too: the clock is read equally often, and each
    time 2.9 or 29 s over that number have passed, of 30 s."""
    unlike = replace(owned(0), target=targets.any_framework(), time_limit=100.0)
    every = simulate_plan(build(unlike, shape(1, 2), (("c0", 2), ("c1", 1)), "by hand"))
    assert idle(unlike, every) == 0.0
    reads = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(reads) * 1e-9)
    found = [searched(unlike, every, 30.0)]
    for seconds in (2.9, 29.0):
        now, each = itertools.count(), seconds / next(reads)
        monkeypatch.setattr(time, "monotonic", lambda now=now, each=each: next(now) * each)
        found.append(searched(unlike, every, 30.0))
    assert found[0] is not None
    assert found[0].plan is not None
    assert found[1:] == found[:1] * 2


def test_another_plan_of_alike_replicas_may_be_faster(fast_nodes, found):
    """One that no framework runs."""
    known = searched(asked(), fast_nodes, math.inf, fastest_s=found.step)
    assert known is not None
    assert (known.plan, known.not_searched, known.alike_s) == (None, "", step(fast_nodes))


def test_the_bound_is_told_with_its_gap_and_space(found):
    """In the file and for programs: step, bound and gap of the fastest plan, and the plans that the bound holds for."""
    assert found.plan is not None
    assert 0 < found.bound_s < found.step
    gap = 1 - found.bound_s / found.step
    proof = {"lower_bound_s": found.bound_s, "gap": gap, "space": SPACE, "counted": "compute, fill and drain"}
    known = {"step_s": found.step, "not_searched": None, "both": found.both.facts(), "held_open": "alike replicas"}
    assert found.facts() == known | proof
    assert found.plan.certificate is not None
    assert found.plan.certificate.facts() == {"objective_s": found.step} | proof
    assert f"at most {proof['gap']:.1%}" in found.explained
    run, console = unlike_pipelines.simulate_pipelines(found.plan), Console(width=400, file=io.StringIO(), record=True)
    console.print(printing.simulated_pipelines(run))
    for text in (console.export_text(), html.unescape(pipelines_page(run))):
        assert f"at most {proof['gap']:.1%}" in text
        assert SPACE in text


@pytest.mark.parametrize(
    ("alike_bound_s", "bound_s", "told", "held_open"),
    [
        (1.99, 1.5, "1.5 s, counting compute only: at most 25.0% of the step could be saved.", "unlike pipelines"),
        (1.99, 1.995, "1.99 s either.", ""),
        (1.5, 1.75, "1.5 s either.", "alike replicas"),
        (2.0, 1.992, "1.992 s, counting compute only: at most 0.4% of the step could be saved.", ""),
    ],
)
def test_one_line_says_what_holds_the_bound_for_both_kinds_open(alike_bound_s, bound_s, told, held_open):
    """The space with the lower bound, where it leaves more than 0.5 % of 2 s."""
    known = UnlikeReplicas(2.0, bound_s, alike_bound_s=alike_bound_s, counted="compute")
    assert known.told == f"If replicas may be unlike pipelines, no plan takes less than {told}"
    assert known.held_open == held_open
    assert known.facts()["held_open"] == (held_open or None)
    assert known.facts()["both"]["counted"] == ("compute" if "compute" in told else None)
    assert ("hold this open" in known.explained) == bool(held_open)


def test_the_line_says_how_much_of_the_gap_is_that_of_alike_replicas():
    known = UnlikeReplicas(2.0, 1.5, alike_bound_s=1.99, counted="compute")
    said = "takes less than 1.5 s, by compute alone: at most 25.0% of 2 s could be saved; unlike pipelines hold this open"
    assert known.explained.endswith(f"{said} (alike replicas alone: 0.5%).")


def test_nothing_is_told_of_both_kinds_without_both_bounds(found):
    """Without a certificate of alike replicas, or room for unlike pipelines; and a plan that was found has its own line."""
    known = UnlikeReplicas(2.0, 1.5, counted="compute")
    assert (
        known.told == replace(known, bound_s=math.inf, alike_bound_s=1.99).told == replace(found, alike_bound_s=0.1).told == ""
    )


def test_nothing_is_searched_where_no_whole_nodes_can_pay(fast_nodes):
    """On a network of 1e3 bytes a second, gradients alone take longer than the step."""
    free = asked()
    clusters = [replace(one, node=replace(one.node, nics=(make.nic(bandwidth=1e3),))) for one in free.topology.fleet.clusters]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e3, 0.0),))
    slow = replace(free, topology=replace(free.topology, fleet=machines))
    known = searched(slow, fast_nodes, math.inf)
    assert known is not None
    assert known.plan is None
    assert "their gradients alone take" in known.not_searched
    assert known.facts()["step_s"] is None
    assert known.facts()["not_searched"] == known.not_searched
    assert "not searched" in known.explained


def test_nothing_is_searched_below_the_bound(fast_nodes):
    """The prediction says that the plan takes as long as the bound of unlike pipelines."""
    assert fast_nodes.prediction is not None
    bound = least_step(PlanningContext(asked()))
    known = searched(asked(), fast_nodes.annotated(prediction=replace(fast_nodes.prediction, step_s=bound)), math.inf)
    assert known is not None
    assert (known.plan, known.bound_s) == (None, bound)
    assert known.not_searched == "none saves 1%, by their lower bound"


def test_a_search_that_its_time_limit_ends_says_so(fast_nodes):
    known = searched(asked(), fast_nodes, 1e-9)
    assert known is not None
    assert known.plan is None
    assert "none found that saves 1% before the time limit of their search; no plan" in known.explained


@pytest.mark.parametrize("seconds", [1.5, math.inf])
def test_a_plan_for_programs_has_what_is_known(fast_nodes, seconds):
    """`plan --json` has the key, with null for a bound of plans that have no room; the file of a plan has not."""
    known = UnlikeReplicas(2.0, seconds, not_searched="all nodes are alike, and the plan uses nearly all devices")
    answer = Planned(fast_nodes, simulate(fast_nodes), (), (), 1.0, replicas=known)
    facts = answer.plan_facts()["unlike_pipelines"]
    assert UnlikePipelinesFacts(**facts).model_dump() == facts
    assert (facts["lower_bound_s"], facts["gap"]) == ((1.5, 0.25) if seconds == 1.5 else (None, 0.0))
    assert "unlike_pipelines" not in planfile.facts(fast_nodes, plan_facts(fast_nodes))
    assert "unlike_pipelines" not in replace(answer, replicas=None).plan_facts()


def test_time_is_spared_for_the_search_where_devices_are_idle(fast_nodes):
    """Three tenths of the limit, at most 30 s; nothing where the plan uses all devices, or where the request wants none."""
    free = asked()
    assert [spared(replace(free, time_limit=limit), fast_nodes) for limit in (10.0, 1000.0)] == [3.0, 30.0]
    assert spared(replace(free, target=exporters.target("megatron")), fast_nodes) == 0.0
    only = replace(free, topology=replace(free.topology, fleet=make.fleet(free.topology.fleet.cluster("a"))))
    assert spared(only, simulate_plan(build(only, shape(1, 2), (("a", 3),), "by hand"))) == 0.0


@pytest.mark.parametrize(("wanted", "least", "most"), [(1000.0, 190.0, 200.0), (500.0, 480.0, 495.0)])
def test_a_search_that_follows_leaves_the_proof_a_fifth_of_the_time(wanted, least, most, monkeypatch):
    """Of 1000 s, beside 5 s for plans with mixed stages and some for other plans that the bound does not cover."""
    context = PlanningContext(replace(asked(), time_limit=1000.0))
    asked_for, left = list[Plan](), list[float]()
    run = Proof.run

    def timed(proof: Proof, *arguments: Any) -> list[float]:
        left.append(context.limit.seconds_left)
        return run(proof, *arguments)

    def spare(plan: Plan) -> float:
        asked_for.append(plan)
        return wanted

    context.spared = spare
    monkeypatch.setattr(Proof, "run", timed)
    found = api.plan(context.request, context=context)
    assert found.certificate is not None
    assert not found.certificate.time_limit_reached
    assert len(asked_for) == 1
    assert least < left[0] < most
    assert context.limit.seconds_left > 900.0


def test_the_file_of_an_earlier_plan_is_removed(found, tmp_path):
    plan = tmp_path / "plan.json"
    beside(plan).write_text(pipelinesfile.to_json(found.plan), encoding="utf-8")
    assert remove_former(plan) == beside(plan)
    assert not beside(plan).exists()
    beside(plan).write_text("{}", encoding="utf-8")
    assert remove_former(plan) is None
    assert beside(plan).exists()
