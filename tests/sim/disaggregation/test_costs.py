"""Seconds of tasks are those of the kernels of a layer, divided between the two sets of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disaggregation.costs import TaskCosts, compute_bounds, step_seconds
from sim.disaggregation.shares import sent_bytes
from sim.disaggregation.tasks import Task
from sim.hardware.cluster import Device
from sim.kernels import compute, formulas
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make
from tests.sim.disaggregation.builders import EXCHANGE, machines, stage


@pytest.fixture(autouse=True)
def free_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes take no fixed time, so that one pass and two halves of it take as long."""
    monkeypatch.setattr(formulas, "PASS_LAUNCH", 0.0)


def both(costs: TaskCosts, kind: str, layer: int) -> tuple[float, float]:
    forward, backward = (costs.seconds(Task(kind, back, layer, 0, 0, ())) for back in (False, True))
    return forward, backward


def test_the_parts_of_a_layer_add_up_to_the_layer():
    """One rank of each set: attention and experts take what the layer takes on one rank, whose tokens are sorted there."""
    whole = stage()
    costs = TaskCosts(whole)
    device = whole.topology.fleet.clusters[0].node.device
    layer = compute.layer_seconds(device, whole.workload, ParallelConfig())
    parts = zip(both(costs, "A", 1), both(costs, "E", 1), strict=True)
    assert [sum(pair) for pair in parts] == pytest.approx(layer)


def test_the_ends_of_the_model():
    """A0 has the embedding and the begin of a layer, A2 the end of one and the head; together they are A1 and both ends."""
    whole = stage()
    costs = TaskCosts(whole)
    device, config = whole.topology.fleet.clusters[0].node.device, whole.config
    ends = compute.embedding_seconds(device, whole.workload, config), compute.head_seconds(device, whole.workload, config)
    for back in (0, 1):
        both_ends = both(costs, "A", 0)[back] + both(costs, "A", 2)[back]
        assert both_ends == pytest.approx(both(costs, "A", 1)[back] + ends[0][back] + ends[1][back])


def test_recomputation_adds_a_forward_to_each_backward():
    plain, again = TaskCosts(stage()), TaskCosts(stage(recompute="full"))
    for kind in "AE":
        forward, backward = both(plain, kind, 1)
        assert both(again, kind, 1) == pytest.approx((forward, backward + forward))


def test_more_expert_ranks_have_less_work_each():
    """Four expert ranks have a fourth of the rows and of the weights each, and two experts, whose rows are sorted."""
    one, four = (TaskCosts(stage(machines(2, ranks), batch=4)) for ranks in (1, 4))
    assert both(one, "E", 1)[0] == pytest.approx(4 * both(four, "E", 1)[0], rel=1e-6)


def test_exchanges_take_the_busiest_nic():
    """Two attention ranks send the tokens of a sequence each; the NIC of the one expert rank takes both, 1 s."""
    costs = TaskCosts(stage(machines(2, 1), batch=4))
    assert costs.exchange_seconds(0, back=False) == pytest.approx(1.0)
    assert costs.exchange_seconds(0, back=True) == pytest.approx(1.0)


def test_kept_experts_shift_the_exchange():
    """Of eight experts two attention ranks keep four: half of the tokens go to the expert rank, 0.5 s at its NIC; an attention
    rank sends that half and a quarter to the other one."""
    costs = TaskCosts(stage(machines(2, 1), batch=4, kept=(4, 4)))
    assert costs.exchange_seconds(4, back=False) == pytest.approx(0.5)
    assert sent_bytes(costs.stage, 4) == [[0.0, EXCHANGE / 4, EXCHANGE / 2], [EXCHANGE / 4, 0.0, EXCHANGE / 2], [0.0] * 3]


def test_launches_bound_small_parts():
    """The host launches the kernels of attention in 1 s, forward, and 1.3 s, backward; of experts 1 + 0.1 for each of eight."""
    costs = TaskCosts(stage(machines(launch=1.0)))
    assert both(costs, "A", 1) == pytest.approx((1.0, 1.3))
    assert both(costs, "E", 1) == pytest.approx((1.8, 1.3 * 1.8))


def test_the_sum_of_gradients_is_exposed():
    """Two attention ranks sum the gradients of their parameters, 4 bytes each: once out and once in over the NIC."""
    whole = stage(machines(2, 1), batch=4)
    costs = TaskCosts(whole)
    closing = costs.closing()
    model = whole.workload.model
    dense = model.parameters - model.layers * model.expert_parameters
    assert closing["attention"] == pytest.approx(dense * 4 / (EXCHANGE / 0.5), rel=1e-3)
    assert closing["experts"] < 1e-3, "one expert rank has nothing to sum"


def test_a_set_is_as_fast_as_its_slowest_device():
    fleet = machines(2, 1)
    slow = make.cluster("slow", 1, nics=fleet.clusters[0].node.nics, spec=make.device("chip-slow", 1e13, 1e11))
    mixed = make.fleet(slow, *fleet.clusters, trunks=fleet.trunks)
    whole = stage(fleet, batch=4)
    alone = TaskCosts(whole)
    topology = replace(whole.topology, fleet=mixed)
    unlike = replace(whole, topology=topology, attention=(whole.attention[0], Device("slow", 0, 0)))
    assert both(TaskCosts(unlike), "A", 1)[0] > 5 * both(alone, "A", 1)[0]


def test_bounds_are_no_more_than_the_step():
    """With one microbatch the step is longer than the compute of either set, by the other one and the exchanges."""
    for kept in ((0, 0), (4, 4)):
        whole = stage(machines(2, 1), batch=8, kept=kept)
        bounds = compute_bounds(whole, TaskCosts(whole))
        assert set(bounds) == {"attention", "experts"}
        assert 0 < max(bounds.values()) < step_seconds(whole)


def test_the_bound_of_attention_is_reached_where_all_else_is_free(monkeypatch):
    monkeypatch.setattr(TaskCosts, "_of_experts", lambda self, kept: (0.0, 0.0))
    monkeypatch.setattr(TaskCosts, "closing", lambda self: {"attention": 1.0, "experts": 0.0})
    whole = stage(machines(rate=1e30), batch=8)
    bounds = compute_bounds(whole, TaskCosts(whole))
    assert step_seconds(whole) == pytest.approx(bounds["attention"])
