"""Largest values that replicas share after each pass in fp8 with delayed scaling: what travels, in closed form, evaluator and
engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.engine.symmetry import unfolded
from sim.kernels import lowering, payloads
from sim.plan.plan import Plan
from sim.plan.program import text
from tests.sim.context_and_experts import nodes

QUIET = {"overlap_grad_reduce": False, "overlap_param_gather": False, "zero_stage": 0}
INTERLEAVED = {"pp": 2, "vpp": 2, "schedule": "interleaved"}


def in_fp8(on: bool, precision: str = "fp8", **facts: object) -> Plan:
    """A plan of four replicas on devices that multiply in fp8 as well, with or without shared largest values."""
    plan = nodes(count=8, **{"dp": 4, "bandwidth": 1e12} | facts)
    (own,) = plan.fleet.clusters
    device = replace(own.node.device, peak=(*own.node.device.peak, ("fp8", 2e14), ("mxfp8", 2e14)))
    fleet = replace(plan.fleet, clusters=(replace(own, node=replace(own.node, device=device)),))
    config, workload = replace(plan.config, amax_reduction=on), replace(plan.workload, precision=precision)
    return replace(plan, workload=workload, config=config, topology=replace(plan.topology, fleet=fleet))


def test_each_pass_of_a_stage_ends_with_a_reduction_among_replicas() -> None:
    plan = in_fp8(True, **QUIET)
    assert text(lowering.program(plan, 0, 1)) == "F0 dp all_reduce B0 dp all_reduce dp all_reduce optimizer"


def test_a_rank_has_one_reduction_for_each_of_its_virtual_stages() -> None:
    """Of two layers each: 12 values a layer in a forward and 4 in a backward, of 4 bytes; both stages of a rank together have
    two reductions of the same size."""
    plan = in_fp8(True, microbatches=4, **INTERLEAVED)
    for backward, values in ((False, 24), (True, 8)):
        one, both = (payloads.layer_collectives(plan.workload, plan.config, layers, backward) for layers in (2, 4))
        assert one == (("dp", "all_reduce", 4.0 * values, 1.0),)
        assert both == (("dp", "all_reduce", 4.0 * values, 2.0),)


@pytest.mark.parametrize(("facts", "own"), [
    ({}, {}), ({"microbatches": 2}, {"current_scaling": True}), ({"precision": "mxfp8"}, {}), ({"precision": "bf16"}, {}),
    ({"dp": 1}, {}), ({"microbatches": (1, 2, 1, 1)}, {}), ({"zero_shard_size": 2}, {}),
])  # fmt: skip
def test_only_delayed_scaling_of_equal_replicas_shares_them(facts: dict[str, object], own: dict[str, object]) -> None:
    plan = in_fp8(True, **facts)
    found = payloads.layer_collectives(plan.workload, replace(plan.config, **own), 2, False)
    assert bool(found) is (not facts and not own)


@pytest.mark.parametrize("facts", [
    {}, {"zero_stage": 0}, {"zero_stage": 3, "microbatches": 2}, {"pp": 2, "microbatches": 4},
    {"microbatches": 8, **INTERLEAVED}, {"tp": 2, "sequence_parallel": True, "pp": 2, "microbatches": 3},
])  # fmt: skip
def test_a_step_is_longer_by_the_reductions(facts: dict[str, object]) -> None:
    """By m times those of a rank at least, where nothing else is waited for; closed form and engine say so, and the engine
    without folding."""
    without, shared = (in_fp8(on, **QUIET | facts) for on in (False, True))
    config = shared.config
    one = plan_costs.PlanCosts(shared).at(0, (0,), shared.stages_of(0)).collectives
    least = config.num_microbatches[0] * config.vpp * sum(one.seconds("dp", "all_reduce", 32.0, 1.0) for _ in "FB")
    longer = simulate(shared).step_s - simulate(without).step_s
    assert longer > 0.9 * least
    assert plan_costs.step_seconds(shared) - plan_costs.step_seconds(without) > 0.9 * least
    assert plan_costs.step_seconds(shared) <= simulate(shared).step_s * (1 + 1e-9)
    assert simulate(shared).step_s == pytest.approx(simulate(shared, folding=unfolded(shared)).step_s, rel=1e-9)


def test_a_long_step_repeats_as_it_would_be_simulated() -> None:
    """Steady state: the increment of a microbatch is the same from 40 to 60 as from 60 to 80."""
    steps = [simulate(in_fp8(True, pp=2, microbatches=number)).step_s for number in (40, 60, 80)]
    assert steps[2] - steps[1] == pytest.approx(steps[1] - steps[0], rel=1e-6)


def test_the_evaluator_says_what_the_closed_form_says() -> None:
    plan = in_fp8(True, pp=2, microbatches=6, **QUIET)
    assert evaluate((plan,))[0] == pytest.approx(simulate(plan).step_s, rel=1e-9)


@pytest.mark.parametrize("microbatches", [4, 12])
def test_the_evaluator_counts_one_for_each_virtual_stage(microbatches: int) -> None:
    """Four virtual stages on each of two ranks, of one layer each: as many more seconds as the engine's."""
    facts = {"pp": 2, "vpp": 4, "schedule": "interleaved", "layers": (1,) * 8, "microbatches": microbatches}
    without, shared = (in_fp8(on, **QUIET | facts) for on in (False, True))
    evaluated, engine = evaluate((shared,))[0] - evaluate((without,))[0], simulate(shared).step_s - simulate(without).step_s
    assert evaluated == pytest.approx(engine, rel=1e-6)


def test_sums_of_largest_values_do_not_queue_behind_gathers_of_weights() -> None:
    """The first forward ends with a sum while weights of later stages are still gathered: it takes as long as the last one."""
    facts = {"zero_stage": 1, "overlap_param_gather": True, "overlap_grad_reduce": True, "microbatches": 4, "bandwidth": 1e9}
    spans = simulate(in_fp8(True, **facts | INTERLEAVED)).of(0)
    seconds = [one.end - one.start for one in spans if one.lane == "wait" and one.name == "dp all_reduce"]
    assert len(seconds) == 16
    assert max(seconds) == pytest.approx(min(seconds), rel=0.1)
