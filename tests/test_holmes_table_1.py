"""Holmes, Table 1 (arXiv 2312.03549): GPT of 3.6 B parameters on four nodes of eight A100, by NIC environment.

Published: 99.2, 80.5 and 61.3 samples/s on InfiniBand, RoCE and Ethernet, and 197 TFLOP/s for the first of them. The layout of
the paper is pinned: tp 1, pp 2, microbatches of 4. Full recomputation, because the table's TFLOP/s only follow from its
samples/s by the FLOP count with recomputation, 96 B s l h^2 (1 + s / 6h + V / 16lh). Nothing is fitted to these rows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import cases, commands, validation
from planner.request import Wishes
from sim.engine.engine import simulate
from sim.formats import catalog

PUBLISHED = {"infiniband": 99.23, "roce": 80.54, "ethernet": 61.32}
LAYOUT = Wishes(tp=1, pp=2, microbatch_size=4, recompute="full")
HANG = 600.0
"""Seconds; both strategies try all their plans of this layout in less than one."""


@pytest.fixture(scope="module")
def samples_per_s() -> dict[str, float]:
    """Samples per second by environment: `hybrid` as Holmes plans it, the others as Megatron-LM does."""
    strategies = dict.fromkeys(PUBLISHED, "megatron") | {"hybrid": "holmes"}
    return {environment: planned(environment, strategy) for environment, strategy in strategies.items()}


def planned(environment: str, strategy: str) -> float:
    """Samples per second of the plan of a strategy on four nodes."""
    plan = commands.plan(commands.load(f"holmes-{environment}-4"), strategy=strategy, wishes=LAYOUT, time_limit=HANG).plan
    config = plan.config
    assert (config.tp, config.pp, config.dp, config.microbatch_size, config.recompute) == (1, 2, 16, 4, "full")
    return plan.prediction.samples_per_s


def test_the_published_tflops_count_the_recomputation():
    """99.23 samples/s on 32 devices are 197 TFLOP/s a device within 1 %."""
    model, s = catalog.model("gpt-3.6b"), 2048
    h, layers, vocab = model.hidden, model.layers, model.vocab
    flops = 96 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
    assert PUBLISHED["infiniband"] * flops / 32 / 1e12 == pytest.approx(197, rel=0.01)


def test_the_workload_is_that_of_the_table():
    for environment in PUBLISHED:
        topology = commands.load(f"holmes-{environment}-4")
        assert (topology.workload.global_batch_size, topology.workload.seq_len, topology.fleet.devices) == (768, 2048, 32)


@pytest.mark.parametrize("environment", PUBLISHED)
def test_samples_per_second_within_20_percent(environment, samples_per_s):
    assert samples_per_s[environment] == pytest.approx(PUBLISHED[environment], rel=0.20)


def test_the_order_of_the_environments(samples_per_s):
    assert samples_per_s["infiniband"] > samples_per_s["roce"] > samples_per_s["ethernet"]


def test_the_hybrid_environment_is_above_ethernet(samples_per_s):
    """What Holmes is for: groups within their own NIC kind, only the pipeline over Ethernet."""
    assert samples_per_s["hybrid"] > samples_per_s["ethernet"]


def test_the_hybrid_of_figure_6_within_10_percent():
    """GPT 7.5B on four InfiniBand and four RoCE nodes, a bar read off to within 4 %; nothing was fitted to it."""
    (case,) = cases.load(validation.folder() / "unseen" / "holmes_figure_6.yaml")
    assert {(group.kind, group.nic) for group in case.plan.groups} == {
        ("dp", "infiniband"), ("dp", "roce"), ("pp", "ethernet"),
    }  # fmt: skip
    assert case.plan.workload.global_batch_size / case.measured_s == pytest.approx(95, abs=0.1)
    assert simulate(case.plan).step_s == pytest.approx(case.measured_s, rel=0.10)


FITTED = {"infiniband": 0.11, "roce": 0.085}
"""Share of the wire rate, fitted to the InfiniBand and the RoCE row, a number each. Far below what wires can do: they stand for
what the paper does not tell (see docs/model.md), and are used nowhere else."""


def test_two_fitted_link_efficiencies_meet_the_three_rows_within_8_percent():
    """With the recomputation that the published case file assumes; the Ethernet row has no fitted number."""
    for case in cases.load(validation.folder() / "holmes.yaml"):
        (cluster,) = case.plan.fleet.clusters
        nics = tuple(replace(nic, spec=fitted(nic.spec)) for nic in cluster.node.nics)
        fleet = replace(case.plan.fleet, clusters=(replace(cluster, node=replace(cluster.node, nics=nics)),))
        plan = replace(case.plan, topology=replace(case.plan.topology, fleet=fleet))
        assert simulate(plan).step_s == pytest.approx(case.measured_s, rel=0.08)


def fitted(spec):
    share = FITTED.get(spec.name)
    return replace(spec, efficiency=tuple((operation, share or found) for operation, found in spec.efficiency))
