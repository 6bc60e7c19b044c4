"""The contract of every strategy, the rules of the published ones, and what a certificate may claim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from holmes_sim import commands
from planner import strategies
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from planner.space.shapes import shapes
from planner.strategies import amp
from planner.strategies.holmes import layers_by_speed
from planner.strategies.metis import balance_layers, batch_shares, relieve
from sim.errors import Infeasible
from sim.formats import planfile
from sim.formats.topology import load
from sim.hardware.cluster import Fleet, Trunk
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.workload.workload import Workload

LIMIT = 20.0
"""Seconds that no search here takes: it ends by what it has done, on a busy machine too."""
SHORT = 1.0
FEW = Wishes(microbatch_size=1, recompute="none")
"""A tenth of the shapes."""
KNOWN: dict[tuple[Request, str], Plan | None] = {}
FLEETS = ("alike", "two speeds", "infiniband and roce", "three clusters", "odd numbers")


@pytest.fixture(scope="session")
def question(make_cluster, make_device, make_fleet, make_model, make_nic, make_wire):
    """A name of `FLEETS` -> a question about it."""
    fast, slow = (make_device(name, speed, 1e11) for name, speed in (("fast", 1e12), ("slow", 4e11)))
    ethernet, inside = make_nic("ethernet", 1e9, latency=2e-5), make_wire(bandwidth=5e10)

    def some(name: str, nodes: int, devices: int, spec, rdma: str | None):
        nics = ((make_nic(rdma, 1e10, latency=5e-6),) if rdma else ()) + (ethernet,)
        return make_cluster(name, nodes, devices, nics, spec, inside)

    machines = {
        "alike": [some("a", 2, 4, fast, "infiniband")],
        "two speeds": [some("a", 1, 4, fast, "infiniband"), some("b", 1, 4, slow, "infiniband")],
        "infiniband and roce": [some("a", 2, 2, fast, "infiniband"), some("b", 2, 2, fast, "roce")],
        "three clusters": [some("a", 1, 2, fast, "infiniband"), some("b", 1, 2, slow, "roce"), some("c", 1, 2, fast, None)],
        "odd numbers": [some("a", 3, 2, fast, "infiniband"), some("b", 1, 3, slow, "roce")],
    }

    def asked(name: str, wishes: Wishes | None = None, time_limit: float = LIMIT) -> Request:
        clusters = machines[name]
        trunks = tuple(
            Trunk((a.name, b.name), "ethernet", 1e9, 5e-5)
            for i, a in enumerate(clusters)
            for b in clusters[i + 1 :]
        )  # fmt: skip
        workload = Workload(make_model(12, 768), 24, 256, "bf16")
        return Request(_topology(make_fleet(*clusters, trunks=trunks), workload), workload, wishes or Wishes(), time_limit)

    return asked


def _topology(machines: Fleet, workload: Workload) -> Topology:
    return Topology("tiny", "", machines, workload, json.dumps({"name": "tiny"}))


def answer(question: Request, strategy: str) -> Plan | None:
    """What a strategy answers, thought out once for all tests; None where it has no plan."""
    if (question, strategy) not in KNOWN:
        KNOWN[question, strategy] = thought_out(question, strategy)
    return KNOWN[question, strategy]


def thought_out(question: Request, strategy: str) -> Plan | None:
    try:
        return strategies.get(strategy).plan(question, PlanningContext(question))
    except Infeasible:
        return None


# what every strategy promises


@pytest.mark.parametrize("name", FLEETS)
@pytest.mark.parametrize("strategy", strategies.names())
def test_a_plan_fits_and_promises_what_is_played(question, strategy, name):
    asked = question(name, FEW)
    plan = answer(asked, strategy)
    if plan is None:
        assert strategy != "certified", "these fleets can all be planned"
        return
    assert plan.made_by.strategy == strategy
    assert plan.prediction is not None
    assert fits(plan)
    assert simulate_plan(replace(plan, prediction=None)).prediction == plan.prediction
    assert plan.workload == asked.workload
    assert sum(plan.config.num_microbatches) * plan.config.microbatch_size == 24
    assert (plan.certificate is not None) == (strategy == "certified")


@pytest.mark.parametrize("strategy", strategies.names())
def test_pinned_dimensions_are_kept(question, strategy):
    wishes = Wishes(tp=2, pp=2, dp=2, microbatch_size=2, recompute="full", zero_stage=0, schedule="gpipe")
    plan = answer(question("alike", wishes), strategy)
    config = plan.config
    assert (config.tp, config.pp, config.dp, config.microbatch_size) == (2, 2, 2, 2)
    assert (config.recompute, config.zero_stage, config.schedule) == ("full", 0, "gpipe")


@pytest.mark.parametrize("strategy", strategies.names())
def test_a_pinned_vpp_interleaves(question, strategy):
    config = answer(question("alike", Wishes(tp=1, pp=2, dp=4, vpp=3, microbatch_size=1)), strategy).config
    assert (config.vpp, config.schedule, config.pp) == (3, "interleaved", 2)


@pytest.mark.parametrize("strategy", strategies.names())
@pytest.mark.parametrize(("cp", "ep"), [(2, 1), (1, 2), (2, 4)])
def test_pinned_context_and_expert_degrees_are_kept(question, strategy, cp, ep):
    asked = question("infiniband and roce" if cp < 2 else "alike", Wishes(tp=1, cp=cp, ep=ep, recompute="none"))
    model = replace(asked.workload.model, experts=4, experts_per_token=2, ffn_hidden=768)
    asked = replace(asked, workload=replace(asked.workload, model=model))
    asked = replace(asked, topology=replace(asked.topology, workload=asked.workload))
    plan = strategies.get(strategy).plan(asked, PlanningContext(asked))
    assert (plan.config.tp, plan.config.cp, plan.config.ep) == (1, cp, ep)
    assert plan.config.world_size == len(plan.placement) <= 8
    assert fits(plan)
    assert simulate_plan(replace(plan, prediction=None)).prediction == plan.prediction
    if plan.certificate is not None:
        assert plan.certificate.lower_bound_s <= step(plan)


@pytest.mark.parametrize("strategy", strategies.names())
def test_what_cannot_be_is_infeasible(question, strategy):
    for wishes in (Wishes(tp=5), Wishes(dp=7), Wishes(pp=13), Wishes(microbatch_size=5)):
        with pytest.raises(Infeasible):
            strategies.get(strategy).plan(asked := question("alike", wishes), PlanningContext(asked))


@pytest.mark.parametrize("name", FLEETS)
def test_certified_is_never_slower_than_the_others(question, name):
    asked = question(name, FEW)
    best = step(answer(asked, "certified"))
    for strategy in strategies.names():
        other = answer(asked, strategy)
        assert other is None or step(other) >= best


# the published rules


@pytest.mark.parametrize(
    ("speeds", "layers", "split"),
    [
        ([197, 160], 48, [27, 21]),  # alpha 1.05; 26 | 22 with alpha 1, as in the scripts released with the paper
        ([197, 160], 30, [17, 13]),  # 16 | 14 with alpha 1
        ([1, 1], 30, [15, 15]),
        ([160, 197], 48, [22, 26]),
        ([1, 1, 1], 30, [10, 10, 10]),
        ([3, 2, 1], 12, [6, 4, 2]),
        ([5.0], 7, [7]),
    ],
)
def test_holmes_gives_layers_by_speed(speeds, layers, split):
    """floor(1.05 S(i) / sum S x layers) for all but the last."""
    assert layers_by_speed(speeds, layers) == split


def test_holmes_gives_the_faster_environment_more_layers_and_uses_all_machines(question):
    plan = answer(question("two speeds", Wishes(tp=1, dp=4)), "holmes")
    assert plan.config.world_size == 8
    by_cluster = {
        plan.placement[plan.config.rank(0, 0, place)].cluster: stage.layers for place, stage in enumerate(plan.stages)
    }
    assert by_cluster["a"] > by_cluster["b"]
    assert sum(by_cluster.values()) == 12


def test_holmes_keeps_data_parallel_groups_in_one_environment(question):
    plan = answer(question("infiniband and roce", Wishes(tp=1, dp=4)), "holmes")
    nics = {(group.nic, *{plan.placement[rank].cluster for rank in group.ranks}) for group in plan.groups if group.kind == "dp"}
    assert nics == {("infiniband", "a"), ("roce", "b")}


@pytest.mark.parametrize("name", ["alike", "two speeds", "infiniband and roce", "three clusters"])
def test_megatron_uses_all_devices_in_order_and_even_layers(question, name):
    plan = answer(question(name), "megatron")
    machines = plan.fleet
    assert plan.config.world_size == machines.devices
    assert len({stage.layers for stage in plan.stages}) == 1
    in_order = [(c.name, node, index) for c in machines.clusters for node in range(c.nodes) for index in range(c.node.count)]
    assert [(d.cluster, d.node, d.index) for d in plan.placement] == in_order


def test_more_virtual_stages_than_layers_are_infeasible():
    """A model of 30 layers in stages of one place: not a stage of no layers, but a message that says what is too many."""
    read = load("topologies/holmes-infiniband-4.yaml")
    question = Request(read, read.workload, Wishes(vpp=31))
    with pytest.raises(Infeasible, match="a layer for each of its pp x vpp stages"):
        strategies.get("certified").plan(question, PlanningContext(question))


def test_megatron_tries_powers_of_two_as_microbatch_sizes():
    """Among every divisor, more even layouts than are played would look alike, and the best would not be among them."""
    read = load("topologies/holmes-39b-4.yaml")
    question = Request(read, read.workload)
    plan = strategies.get("megatron").plan(question, PlanningContext(question))
    assert (plan.config.tp, plan.config.pp, plan.config.dp, plan.config.microbatch_size) == (4, 2, 4, 4)


@pytest.mark.parametrize(
    ("speeds", "total", "shares"),
    [
        ([1, 1], 8, (4, 4)),
        ([2, 1], 9, (6, 3)),
        ([3, 2], 8, (5, 3)),  # 4.8 and 3.2: the larger rest gets the one that is over
        ([5, 5, 2], 10, (4, 4, 2)),  # 4.17, 4.17, 1.67
        ([1, 1, 1], 8, (3, 3, 2)),  # equals: the first
        ([9, 1], 4, (4, 0)),
    ],
)
def test_metis_shares_the_batch_by_speed(speeds, total, shares):
    """The data balancer: proportional to speed, by largest remainder."""
    assert batch_shares(speeds, total) == shares


@pytest.mark.parametrize(
    ("capacities", "layers", "ends", "split"),
    [
        ([1, 1], 12, (0, 0), (6, 6)),
        ([2, 1], 12, (0, 0), (8, 4)),
        ([3, 1], 10, (0, 0), (8, 2)),  # the border falls at 7.5: most of layer 7 is not after it
        ([1, 1, 1], 12, (0, 3), (5, 5, 2)),  # logits as heavy as three layers
        ([1, 1], 12, (2, 0), (5, 7)),
        ([20, 1, 1], 6, (0, 0), (4, 1, 1)),  # one at least
        ([2, 3, 2], 16, (0, 0), (4, 7, 5)),  # 4.57, 6.86, 4.57: filled 5, 6, 5; then the second, short of 0.86, takes one
    ],
)
def test_metis_balances_layers_by_capacity(capacities, layers, ends, split):
    assert balance_layers(capacities, layers, *ends) == split


def test_metis_moves_capacity_from_groups_short_of_memory_to_those_with_room():
    """0.9 x what fits is kept, and the rest goes to where there is room, by capacity."""
    assert relieve([0.5, 0.5], [0.5, 2.0]) == pytest.approx([0.225, 0.775])
    assert relieve([0.5, 0.25, 0.25], [0.8, 4.0, 4.0]) == pytest.approx([0.36, 0.32, 0.32])
    assert relieve([0.4, 0.4, 0.2], [0.5, 1.1, 4.0]) == pytest.approx([0.18, 0.44, 0.38])  # the second has room for 0.04
    assert relieve([0.5, 0.5], [0.5, 1.2]) is None


def test_metis_gives_fast_replicas_of_a_mixed_group_more_of_the_batch(question):
    """One group over both types: replicas on devices of 1 and 0.4 PFLOP/s, 24 samples."""
    config = answer(question("two speeds", Wishes(tp=1, pp=1, dp=8, microbatch_size=1)), "metis").config
    fast, slow = config.num_microbatches[:4], config.num_microbatches[4:]
    assert sum(config.num_microbatches) == 24
    assert min(fast) > max(slow)


def test_metis_takes_the_least_tensor_parallelism_that_fits(question):
    config = answer(question("alike", Wishes(pp=1, microbatch_size=1)), "metis").config
    assert (config.tp, config.dp) == (1, 8)


def test_hethub_never_mixes_types_in_a_stage_and_gives_the_faster_more_layers(question):
    plan = answer(question("two speeds", Wishes(tp=1)), "hethub")
    width = plan.config.tp * plan.config.dp
    types = [{device.cluster for device in plan.placement[i : i + width]} for i in range(0, len(plan.placement), width)]
    assert all(len(kinds) == 1 for kinds in types)
    layers = {name: sum(s.layers for s, kinds in zip(plan.stages, types, strict=True) if kinds == {name}) for name in "ab"}
    assert layers["a"] > layers["b"] > 0
    assert plan.config.world_size == 8


def test_a_stage_of_hethub_may_stand_on_two_clusters_of_one_type(question):
    """NICs are no level of its search."""
    plan = answer(question("infiniband and roce", Wishes(tp=1, dp=8, microbatch_size=1)), "hethub")
    assert {device.cluster for device in plan.placement} == {"a", "b"}
    assert plan.config.pp == 1


@pytest.mark.parametrize(
    ("microbatches", "stages", "messages", "sync", "seconds"),
    [
        (1, [2.0, 3.0], [0.5], 1.0, 6.5),
        (4, [2.0, 3.0, 2.0], [0.5, 0.25], 1.0, 17.75),  # 3 x 3 + 7 + 0.75 + 1
        (8, [2.0], [], 0.0, 16.0),
    ],
)
def test_the_cost_of_amp(microbatches, stages, messages, sync, seconds):
    """(m - 1) max t + sum t + sum e + sync."""
    assert amp.cost(microbatches, stages, messages, sync) == seconds


def test_the_gradient_sum_of_amp_is_a_ring_over_its_slowest_link():
    assert amp.ring_seconds(4, 100.0, 0.02) == pytest.approx(3.0)  # 2 x 3/4 x 100 x 0.02
    assert amp.ring_seconds(1, 100.0, 0.02) == 0.0


def test_amp_splits_a_single_microbatch_evenly():
    assert amp.even(10, 4) == (3, 3, 2, 2)


def test_amp_takes_the_mean_of_layer_times_and_so_gives_the_slow_no_fewer_layers(question):
    asked = question("two speeds", Wishes(tp=1, dp=4, microbatch_size=1, recompute="none"))
    plan = answer(asked, "amp")
    assert [stage.layers for stage in plan.stages] == [6, 6]  # 1 and 0.4 PFLOP/s; a small vocabulary
    shape = next(shapes(asked))
    (alone, each), _ = amp.mean_seconds(PlanningContext(asked), shape, 2)
    fast, slow = (NodeClass(PlanningContext(asked), cluster, shape, []).layer_seconds for cluster in asked.clusters())
    assert each == pytest.approx((fast + slow) / 2)
    assert alone >= 0


def test_amp_gives_ranks_out_along_the_nodes_as_listed(question):
    """Tensor first, then data, then pipeline."""
    plan = answer(question("three clusters", Wishes(tp=2, dp=1, microbatch_size=1)), "amp")
    assert [str(device) for device in plan.placement] == [f"{c}/node0/dev{d}" for c in "abc" for d in range(2)]


# the certificate


@pytest.mark.parametrize("name", FLEETS)
def test_a_certificate_adds_up(question, name):
    plan = answer(question(name, FEW), "certified")
    found = plan.certificate
    assert 0 < found.lower_bound_s <= found.objective_s == step(plan)
    assert found.gap == pytest.approx(1 - found.lower_bound_s / found.objective_s)
    assert found.status == ("optimal" if found.gap <= Budgets().optimal_gap else "feasible")
    assert found.solver


@pytest.mark.parametrize(
    ("name", "wishes"),
    [
        ("alike", Wishes(tp=2)),
        ("alike", Wishes(pp=3)),
        ("two speeds", Wishes(tp=1)),
        ("two speeds", Wishes(pp=2)),
        ("infiniband and roce", Wishes(dp=1)),
        ("infiniband and roce", Wishes(schedule="1f1b")),
        ("three clusters", Wishes(tp=1)),
        ("three clusters", Wishes(pp=3)),
        ("odd numbers", Wishes(dp=1)),
        ("odd numbers", Wishes(pp=2)),
    ],
)
def test_the_bound_is_below_every_pinned_answer(question, name, wishes):
    """A lower bound of everything is one of every part, however soon the search ends."""
    bound = answer(question(name, FEW), "certified").certificate.lower_bound_s
    pinned = replace(wishes, microbatch_size=FEW.microbatch_size, recompute=FEW.recompute)
    assert bound <= step(answer(question(name, pinned, SHORT), "certified")) * (1 + 1e-6)


@pytest.mark.parametrize(
    "pinned", [Wishes(tp=2, dp=4, microbatch_size=2, recompute="none"), Wishes(tp=2, dp=8, microbatch_size=4)]
)
@pytest.mark.parametrize("time_limit", [1e-6, 0.2, 0.5])
def test_a_bound_of_little_time_is_not_above_the_plan_of_more_time(pinned, time_limit):
    """What was not looked at for want of time is not proved: anytime, but honest."""
    topology = commands.load("holmes-hybrid-4")
    hasty = answer(Request(topology, topology.workload, pinned, time_limit), "certified")
    patient = answer(Request(topology, topology.workload, pinned, 8.0), "certified")
    assert hasty.certificate.lower_bound_s <= step(patient) * (1 + 1e-6)


def test_what_was_not_found_in_time_is_not_called_infeasible_for_memory():
    """A time limit gives the best plan so far, never nothing; at the very least it must not blame the memory."""
    topology = commands.load("mixed-h100-a100-v100")
    asked = Request(topology, topology.workload, Wishes(tp=1, dp=2, microbatch_size=1, recompute="none"), 1e-6)
    try:
        plan = strategies.get("certified").plan(asked, PlanningContext(asked))
    except Infeasible as error:
        assert "memory" not in str(error)
    else:
        assert fits(plan)


def test_a_solver_that_ran_out_of_time_has_proved_nothing(question, monkeypatch):
    """No solution found in time is not the same as no solution."""
    import pulp

    asked = question("two speeds", Wishes(dp=4, tp=1, pp=2, microbatch_size=1, recompute="none"))
    truth = step(answer(asked, "certified"))

    patient = pulp.HiGHS
    monkeypatch.setattr(pulp, "HiGHS", lambda **options: patient(**options | {"timeLimit": 0.0}))
    try:
        plan = strategies.get("certified").plan(asked, PlanningContext(asked))
    except Infeasible:
        return
    assert plan.certificate.lower_bound_s <= truth
    assert plan.certificate.lower_bound_s < step(plan) and plan.certificate.status == "feasible"


# determinism


@pytest.mark.parametrize("strategy", strategies.names())
def test_the_same_question_has_the_same_answer(question, strategy):
    asked = question("odd numbers", FEW)
    first, second = answer(asked, strategy), thought_out(asked, strategy)
    assert first == second
    if first is not None:
        assert planfile.to_json(first) == planfile.to_json(second)


def test_the_answer_does_not_depend_on_the_hash_seed():
    script = (
        "import sys; from holmes_sim import commands; from planner.request import Wishes; from sim.formats import planfile\n"
        "wishes = Wishes(tp=2, dp=8, microbatch_size=4, recompute='none')\n"
        "plan = commands.plan(commands.load('holmes-hybrid-4'), wishes=wishes).plan\n"
        "sys.stdout.write(planfile.to_json(plan))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(commands.topologies_folder().parent)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1
    assert planfile.from_text("plan.json", texts.pop()).certificate is not None


# the folder


def test_the_folder_is_the_registry():
    published = {"alpa", "amp", "dt_fm", "hethub", "holmes", "megatron", "metis"}
    assert {"certified", "random", *published} <= set(strategies.names())
    assert all(callable(strategies.get(name).plan) for name in strategies.names())
