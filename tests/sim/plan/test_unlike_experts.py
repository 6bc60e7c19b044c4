"""Stages that divide their experts in unlike ways: degrees and groups of each pipeline rank, and checks."""

from __future__ import annotations

import pytest

from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.errors import NotModelled, PlanError
from sim.kernels.lowering import program
from sim.kernels.memory import peak_memory
from sim.plan.derived_groups import gradient_groups
from sim.plan.groups import group_ranks
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make

FOUR = {"tp": 2, "pp": 2, "dp": 2, "num_microbatches": (2, 2), "sequence_parallel": True}
EXPERTS = {"shape": {"experts": 4, "experts_per_token": 2}}


def test_groups_of_each_stage_are_those_of_its_degrees():
    """Stage 0 (ranks 0 to 3) divides its experts among all ranks, stage 1 (4 to 7) cuts each in two, in two parts of them."""
    config = ParallelConfig(**FOUR, ep=4, stage_ep=(4, 2), etp=1, stage_etp=(1, 2))
    groups = [(kind, ranks) for kind, ranks in group_ranks(config) if kind in ("ep", "etp")]
    assert groups == [("ep", (0, 1, 2, 3)), ("ep", (4, 6)), ("ep", (5, 7))]
    assert (config.of_pp_rank(1).ep, config.of_pp_rank(1).etp, config.of_pp_rank(0).etp) == (2, None, 1)
    assert config.further_degrees == {"ep": "4x1+2x1", "etp": "1x1+2x1"}


def test_gradients_of_experts_are_summed_by_the_ranks_of_a_stage_that_hold_the_same_ones():
    machines = make.fleet(make.cluster(nodes=4, devices=2))
    plan = make.plan(machines, 2, 2, 2, ep=2, stage_ep=(2, 4), etp=1, sequence_parallel=True, **EXPERTS)
    assert [group.ranks for group in gradient_groups(plan) if group.kind == "edp"] == [(0, 2), (1, 3)]


def test_a_stage_has_the_memory_and_the_program_of_a_plan_where_all_are_as_it_is():
    machines = make.fleet(make.cluster(nodes=4, devices=2, nics=(make.nic(bandwidth=1e9),)))
    shared = {"sequence_parallel": True, "microbatches": 3, "layers": (2, 3), **EXPERTS}
    every = [make.plan(machines, 2, 2, 2, ep=ep, etp=etp, **shared) for ep, etp in ((4, 1), (2, 2))]
    unlike = make.plan(machines, 2, 2, 2, ep=4, stage_ep=(4, 2), etp=1, stage_etp=(1, 2), **shared)
    for pp_rank, alike in enumerate(every):
        assert peak_memory(unlike)[pp_rank] == peak_memory(alike)[pp_rank]
        assert program(unlike, pp_rank, 3) == program(alike, pp_rank, 3)
    steps = sorted(simulate(one).step_s for one in (*every, unlike))
    assert steps[1] == simulate(unlike).step_s and steps[0] < steps[1] < steps[2]


@pytest.mark.parametrize("zero_stage", [1, 3])
def test_the_evaluator_takes_the_time_of_the_engine(zero_stage):
    """One rank of each node, on networks of unlimited bandwidth."""
    card, chip = make.nic(bandwidth=1e30, latency=2e-3), make.device(host_bandwidth=1e30)
    machines = make.fleet(make.cluster(nodes=8, nics=(card,), spec=chip))
    plan = make.plan(
        machines, pp=2, dp=4, microbatches=3, layers=(2, 2), ep=4, stage_ep=(4, 2), zero_stage=zero_stage, **EXPERTS
    )
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"stage_ep": (2, 2), "ep": 2}, PlanError, "stage_ep 2, 2: one degree for each of pp 2 pipeline ranks, at least 1 and"),
        ({"stage_ep": (2, 1)}, PlanError, "stage_ep 2, 1: ep is that of the first pipeline rank, 2, not 1"),
        ({"stage_etp": (2, 1), "etp": 1}, PlanError, "stage_etp 2, 1: etp is that of the first pipeline rank, 2, not 1"),
        ({"stage_ep": (2, 1), "ep": 2, "imbalance": 1.5}, NotModelled, "stage_ep with uneven routing is not modelled"),
    ],
)
def test_wrong_degrees(values, error, message):
    with pytest.raises(error) as caught:
        ParallelConfig(**FOUR | values)
    assert message in str(caught.value)


def test_degrees_that_do_not_fit_the_experts_or_the_ranks_are_named():
    machines = make.fleet(make.cluster(nodes=4, devices=3))
    with pytest.raises(PlanError) as caught:
        make.plan(machines, 1, 2, 6, ep=2, stage_ep=(2, 3), **EXPERTS)
    assert str(caught.value) == "config.stage_ep: 3 does not divide experts 4 of tiny"
    with pytest.raises(PlanError) as caught:
        make.plan(machines, 1, 2, 6, ep=2, stage_ep=(2, 4), **EXPERTS)
    assert str(caught.value).startswith("config: pipeline rank 1: ep 4 does not divide dp 6 x cp 1")
