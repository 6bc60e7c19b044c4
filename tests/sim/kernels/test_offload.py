"""Optimizer state in host memory: bytes on device and host, and the seconds of a step on the CPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.engine.symmetry import fold
from sim.errors import NotModelled
from sim.hardware.cluster import Fleet
from sim.kernels import memory, offload
from sim.kernels.formulas import PASS_LAUNCH
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload
from tests import builders
from tests.builders import cluster, device, fleet

MILLION = 1e6
HOSTS = ("optimizer",)


def workload(precision: str = "bf16", optimizer: str = "adam") -> Workload:
    return Workload(builders.model(), 8, 64, precision, optimizer=optimizer)


def machines(host_memory: float | None = None, **facts: object) -> Fleet:
    """Two nodes of two devices, which have 1e10 bytes/s of host memory bandwidth each and links of 1e9 bytes/s to it."""
    chip = device(memory_bandwidth=1e11, host_bandwidth=1e9 / 0.8, **({"host_memory_bandwidth": 1e10} | facts))
    one = cluster(nodes=2, devices=2, spec=chip)
    return fleet(replace(one, node=replace(one.node, host_memory=host_memory)))


def parameters(plan: Plan, layers: int, first: bool, last: bool) -> float:
    return memory.stage_parameters(plan.workload, plan.config, layers, first, last)


@pytest.mark.parametrize(
    ("precision", "config", "kept"),
    [
        ("bf16", ParallelConfig(offload=HOSTS), 2 + 4),
        ("fp32", ParallelConfig(offload=HOSTS), 4 + 4),
        ("bf16", ParallelConfig(offload=HOSTS, dp=4, num_microbatches=(1,) * 4, zero_stage=2), 2 + 4 / 4),
        ("bf16", ParallelConfig(offload=HOSTS, dp=4, num_microbatches=(1,) * 4, zero_stage=3), (2 + 4) / 4),
    ],
)
def test_a_device_keeps_weights_and_gradients(precision: str, config: ParallelConfig, kept: float) -> None:
    assert memory.state_bytes(MILLION, workload(precision), config) == pytest.approx(MILLION * kept)


def test_a_step_copies_fp32_both_ways_and_is_bound_by_memory_on_the_host() -> None:
    """1e9 parameters: 4 bytes of each gradient read for the norm (0.04 s); 4 bytes to the host and 4 back at 1e9 bytes/s; 28
    bytes moved by the optimizer at 0.43 x 1e10 bytes/s. Software moves 100 bytes for each parameter that is held."""
    chip = machines(update_bytes=100.0, step=0.5).clusters[0].node.device
    expected = PASS_LAUNCH + 0.04 + 0.5 + 8.0 + 28 / 4.3
    assert offload.optimizer_seconds(chip, 1e9, 0.0) == pytest.approx(expected, rel=1e-12)
    assert offload.optimizer_seconds(chip, 1e9, 5e8) == pytest.approx(expected + 0.5, rel=1e-12)
    smaller = expected - 2 * (6 - 8 / 2048) / 4.3
    assert offload.optimizer_seconds(chip, 1e9, 0.0, "adam-8bit") == pytest.approx(smaller, rel=1e-9)


def test_without_a_fact_a_device_has_a_channel_of_ddr4() -> None:
    known, unknown = (machines(host_memory_bandwidth=rate).clusters[0].node.device for rate in (25.6e9, None))
    assert offload.optimizer_seconds(unknown, 1e9, 1e9) == offload.optimizer_seconds(known, 1e9, 1e9)


@pytest.mark.parametrize(
    "layout",
    [
        {"pp": 2, "dp": 2, "microbatches": 3},
        {"pp": 2, "dp": 2, "microbatches": 4, "vpp": 2, "schedule": "interleaved"},
        {"dp": 4, "microbatches": 2, "zero_stage": 3},
        {"dp": 4, "microbatches": 2, "overlap_param_gather": False},
        {"tp": 2, "pp": 2, "microbatches": 2, "zero_stage": 0, "sequence_parallel": True},
    ],
    ids=["pp", "vpp", "zero 3", "gathers after", "zero 0"],
)
def test_engine_and_evaluator_take_the_same_longer_step(layout: dict[str, object]) -> None:
    kept, moved = (builders.plan(machines(), offload=words, **layout) for words in ((), HOSTS))
    whole, folded = simulate(moved), simulate(moved, fold(moved))
    assert folded.step_s == pytest.approx(whole.step_s, rel=1e-12)
    assert float(evaluate([moved])[0]) == pytest.approx(whole.step_s, rel=1e-9)
    assert plan_costs.step_seconds(moved) <= whole.step_s * (1 + 1e-9)
    spans = {span.rank: span.seconds for span in whole.spans if span.kind == "optimizer"}
    stages = moved.stages_of(0)
    layers, ends = sum(moved.stages[stage].layers for stage in stages), moved.ends(stages)
    held = parameters(moved, layers, *ends)
    owned = held / (moved.config.dp if moved.config.zero_stage else 1)
    assert spans[0] == pytest.approx(offload.optimizer_seconds(moved.specs[0], owned, held), rel=1e-12)
    assert whole.step_s > simulate(kept).step_s


def test_hosts_keep_sixteen_bytes_of_each_parameter() -> None:
    """Two stages of two layers with dp 2: ranks 0 and 1 are on the first host, 2 and 3 on the second."""
    plan = builders.plan(machines(), pp=2, dp=2, offload=HOSTS)
    first, last = (16 * parameters(plan, 2, *ends) for ends in ((True, False), (False, True)))
    assert offload.host_bytes(plan) == {("c", 0): pytest.approx(first), ("c", 1): pytest.approx(last)}
    whole = replace(plan, config=replace(plan.config, zero_stage=0))
    assert offload.host_bytes(whole)["c", 0] == pytest.approx(2 * first)
    assert offload.fullest_hosts(plan) == {"c": pytest.approx(max(first, last))}
    assert offload.fullest_hosts(plan, beside=1e3) == {"c": pytest.approx(max(first, last) + 2e3)}
    assert offload.host_bytes(builders.plan(machines(), pp=2, dp=2)) == {}


def test_a_domain_counts_each_of_its_hosts() -> None:
    one = machines().clusters[0]
    domain = fleet(replace(one, nodes=1, node=one.node.joined(2)))
    assert list(offload.host_bytes(builders.plan(domain, dp=4, offload=HOSTS))) == [("c", 0), ("c", 1)]


@pytest.mark.parametrize(("host_memory", "is_over"), [(None, False), (0.99, True), (1.01, False)])
def test_the_memory_of_a_host_is_checked_where_it_is_known(host_memory: float | None, is_over: bool) -> None:
    plan = builders.plan(machines(), pp=2, dp=2, offload=HOSTS)
    (needed,) = offload.fullest_hosts(plan).values()
    known = None if host_memory is None else host_memory * needed / 0.9
    topology = replace(plan.topology, fleet=machines(known), memory_headroom=0.1)
    over = offload.over_host_memory(replace(plan, topology=topology))
    assert (over is not None) is is_over
    if over is not None:
        assert (over[0].name, over[1]) == ("c", needed)


def test_other_words_are_not_modelled() -> None:
    words = r"^offload core_attn is not modelled; optimizer, parameters, activations$"
    with pytest.raises(NotModelled, match=words):
        ParallelConfig(offload=("core_attn",))
