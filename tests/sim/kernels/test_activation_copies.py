"""Activations in host memory: seconds of passes and steps, and bytes on device and host."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic import plan_costs, stage_costs
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.engine.symmetry import fold
from sim.errors import NotModelled
from sim.hardware.cluster import Fleet
from sim.kernels import activation_copies, memory, offload
from sim.plan import schedules
from sim.plan.offloading import LAYERS_ON_DEVICE, choice_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.results.explain import explain
from tests import builders
from tests.builders import cluster, device, fleet

HOSTS = ("activations",)
RATES = (1e5, 1e7, 1e9, 1e12)
"""Bytes per second of slow links, of links about as fast as layers compute, and of fast ones."""


def machines(rate: float) -> Fleet:
    """Two nodes of two devices with links of `rate` bytes/s to their hosts."""
    return fleet(cluster(nodes=2, devices=2, spec=device(host_bandwidth=rate / 0.8)))


def kept_of(plan: Plan) -> float:
    """Bytes that one layer keeps for one microbatch."""
    return memory.layer_activation_bytes(plan.workload, plan.config)[0]


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(0.5, (1.0, 2.0)), (1.5, (1.5, 2.0)), (3.0, (3.0, 3.0))],  # seconds of a copy, and then of forward and backward
)
def test_a_layer_takes_the_longer_of_its_compute_and_its_copy(factor: float, expected: tuple[float, float]) -> None:
    plan = builders.plan(machines(1.0), pp=2, dp=2, offload=HOSTS)
    chip = replace(plan.specs[0], host_bandwidth=kept_of(plan) / factor / 0.8)
    assert activation_copies.copied(chip, plan.workload, plan.config, (1.0, 2.0)) == pytest.approx(expected)


@pytest.mark.parametrize("rate", RATES)
def test_a_split_backward_takes_no_longer_than_a_whole_one(rate: float) -> None:
    """Copies travel beside B and W."""
    layout = {"pp": 2, "dp": 2, "microbatches": 4, "offload": HOSTS}
    split, whole = (builders.plan(machines(rate), schedule=name, **layout) for name in ("zb-h1", "1f1b"))  # type: ignore[arg-type]
    seconds: dict[str, float] = {}
    for span in simulate(split).spans:
        if (span.rank, span.stage, span.microbatch) == (0, 0, 0) and span.kind in "BW":
            seconds[span.kind] = seconds.get(span.kind, 0.0) + span.seconds
    assert sum(seconds.values()) == pytest.approx(
        stage_costs.compute_seconds(whole.specs[0], whole.workload, whole.config, 2, True, False)[1]
    )


LAYOUTS = [
    {"pp": 2, "dp": 2, "microbatches": 3},
    {"pp": 2, "dp": 2, "microbatches": 4, "vpp": 2, "schedule": "interleaved"},
    {"pp": 2, "dp": 2, "microbatches": 4, "schedule": "zb-h1"},
    {"dp": 4, "microbatches": 2, "zero_stage": 3},
    {"tp": 2, "pp": 2, "microbatches": 2, "sequence_parallel": True, "recompute": "full"},
    {"pp": 2, "dp": 2, "microbatches": 2, "recompute": "full", "recompute_layers": (1,)},
]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=["pp", "vpp", "zero bubble", "zero 3", "recomputed", "one recomputed"])
def test_engine_evaluator_and_closed_form_take_the_same_step(layout: dict[str, object], rate: float) -> None:
    kept, moved = (builders.plan(machines(rate), offload=words, **layout) for words in ((), HOSTS))
    whole, folded = simulate(moved), simulate(moved, fold(moved))
    assert folded.step_s == pytest.approx(whole.step_s, rel=1e-12)
    assert float(evaluate([moved])[0]) == pytest.approx(whole.step_s, rel=1e-9)
    assert plan_costs.step_seconds(moved) <= whole.step_s * (1 + 1e-9)
    assert whole.step_s >= simulate(kept).step_s * (1 - 1e-12)
    if rate == RATES[-1]:
        assert whole.step_s == pytest.approx(simulate(kept).step_s, rel=1e-9)


def test_a_step_on_a_slow_link_is_the_copies() -> None:
    """One device, four layers, three microbatches: copies of 1,000 s each way, beside which compute is nothing."""
    plan = builders.plan(fleet(cluster(nodes=1, devices=1)), microbatches=3, layers=(4,), offload=HOSTS)
    chip = replace(plan.specs[0], host_bandwidth=kept_of(plan) / 1000 / 0.8)
    slow = replace(plan, topology=replace(plan.topology, fleet=fleet(cluster(nodes=1, devices=1, spec=chip))))
    assert simulate(slow).step_s == pytest.approx(3 * 4 * 2 * 1000, rel=1e-6)
    (account,) = explain(slow, simulate(slow)).ranks
    assert account.of("offload") == pytest.approx(3 * 4 * 2 * 1000, rel=1e-6)
    assert account.total == pytest.approx(simulate(slow).step_s, rel=1e-9)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("pp_rank", "layers"), [(0, 40), (1, 40)])
def test_a_device_keeps_three_layers_and_its_host_all_that_are_in_flight(pp_rank: int, layers: int, recompute: str) -> None:
    """1F1B over two stages, with two microbatches in flight on the first stage and one on the last."""
    layout = {"pp": 2, "dp": 2, "microbatches": 3, "layers": (layers, layers), "recompute": recompute}
    kept, moved = (builders.plan(machines(1e9), offload=words, **layout) for words in ((), HOSTS))
    in_flight, each = 2 - pp_rank, kept_of(moved)
    fragmentation = kept.config.memory.fragmentation * (in_flight - 1) * layers * each
    away = (in_flight * layers - LAYERS_ON_DEVICE) * each + fragmentation
    assert memory.peak_memory(kept)[pp_rank] - memory.peak_memory(moved)[pp_rank] == pytest.approx(away)
    assert offload.host_bytes(moved)["c", pp_rank] == pytest.approx(2 * in_flight * layers * each)
    assert offload.host_bytes(kept) == {}


def test_virtual_stages_and_optimizer_state_add_up_on_a_host() -> None:
    layout = {"pp": 2, "dp": 2, "microbatches": 4, "vpp": 2, "schedule": "interleaved", "layers": (2, 2, 2, 2)}
    every = [builders.plan(machines(1e9), offload=words, **layout) for words in (HOSTS, ("optimizer",), ("optimizer", *HOSTS))]
    state = {name: offload.host_bytes(plan)["c", 0] for name, plan in zip("aob", every, strict=True)}
    most = max(held for held, _ in schedules.in_flight("interleaved", 0, 2, 4, 2))
    assert state["a"] == pytest.approx(2 * most * 2 * kept_of(every[0]))
    assert state["b"] == pytest.approx(state["a"] + state["o"])


@given(st.sampled_from(RATES), st.integers(1, 6), st.sampled_from(["none", "full"]))
def test_seconds_are_linear_in_the_layers(rate: float, layers: int, recompute: str) -> None:
    """As the planner assumes of stages of alike layers."""
    plan = builders.plan(machines(rate), pp=2, dp=2, offload=HOSTS, recompute=recompute)
    one, many = (
        stage_costs.compute_seconds(plan.specs[0], plan.workload, plan.config, number, False, False) for number in (1, layers)
    )
    assert many == pytest.approx([layers * seconds for seconds in one])


def test_activations_do_not_travel_beside_parameters() -> None:
    with pytest.raises(NotModelled, match="groups of weights and activations on one link are not modelled"):
        ParallelConfig(offload=("optimizer", "parameters", "activations"))
    assert choice_of(("activations", "optimizer")) == "optimizer+activations"
    assert choice_of(()) == "none"
