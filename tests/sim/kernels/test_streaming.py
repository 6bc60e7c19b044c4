"""Parameters that are streamed from the host: seconds of passes and steps, and bytes on device and host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs, stage_costs
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.errors import NotModelled, PlanError
from sim.hardware.cluster import Fleet
from sim.islands.prediction import predict
from sim.kernels import compute, layer_groups, memory, offload, streaming
from sim.kernels.layer_groups import BUFFERS
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan
from sim.sync import Sync
from sim.workload.adapter import Adapter
from sim.workload.workload import Workload
from tests import builders
from tests.builders import cluster, device, fleet
from tests.sim.islands.builders import machines as sites

SWAPPED = ("optimizer", "parameters")
LAYERS = 4


def machines(rate: float = 1e9, **facts: object) -> Fleet:
    """One device with a link of `rate` bytes/s to a host, which has 1e10 bytes/s of memory bandwidth."""
    chip = device(host_bandwidth=rate / 0.8, **({"host_memory_bandwidth": 1e10} | facts))
    return fleet(cluster(nodes=1, devices=1, spec=chip))


def swapped(where: Fleet, microbatches: int = 4, **facts: object) -> Plan:
    """A plan of a single device whose host keeps the whole model."""
    config = {"offload": SWAPPED, "schedule": "gpipe", "zero_stage": 0}
    return builders.plan(where, microbatches=microbatches, layers=(LAYERS,), **config | facts)


@pytest.mark.parametrize(
    ("computed", "microbatches", "expected"),
    [
        ((3.0, 6.0), 1, (3.0, 6.0)),  # 1e9 parameters at 2e9 bytes/s: 1 s for the weights, 2 s for the gradients
        ((0.5, 1.0), 1, (1.0, 2.0)),
        ((0.5, 1.0), 4, (0.5, 1.0)),  # a copy for four microbatches
        ((0.2, 0.4), 4, (0.25, 0.5)),
    ],
)
def test_a_group_takes_the_longer_of_its_compute_and_its_share_of_the_copies(computed, microbatches, expected):
    chip = machines(2e9).clusters[0].node.device
    config = ParallelConfig(num_microbatches=(microbatches,), offload=SWAPPED)
    assert streaming.streamed(chip, Workload(builders.model(), 8, 64, "bf16"), config, 1e9, computed) == pytest.approx(expected)


@pytest.mark.parametrize("rate", [1e5, 1e7, 1e12])
@pytest.mark.parametrize("microbatches", [1, 4])
def test_a_step_is_the_sum_of_its_groups(rate, microbatches):
    """Slow links, links as fast as some groups compute, and fast ones."""
    plan = swapped(machines(rate), microbatches)
    chip, workload, config, model = plan.specs[0], plan.workload, plan.config, plan.workload.model
    layer = layer_groups.layer_parameters(workload, config)
    expected = 0.0
    for many, parameters, (forward, backward) in (
        (LAYERS, layer, compute.layer_seconds(chip, workload, config)),
        (1, model.embedding_parameters, compute.embedding_seconds(chip, workload, config)),
        (1, model.head_parameters, compute.head_seconds(chip, workload, config)),
    ):
        expected += many * (
            max(microbatches * forward, 2 * parameters / rate) + max(microbatches * backward, 4 * parameters / rate)
        )
    every = LAYERS * layer + model.embedding_parameters + model.head_parameters
    expected += (28 + 4 + 2) * every / (0.43 * 1e10)  # the optimizer, the norm, and the weights that are copied
    assert simulate(plan).step_s == pytest.approx(expected, rel=1e-9)
    assert float(evaluate([plan])[0]) == pytest.approx(expected, rel=1e-9)
    assert plan_costs.step_seconds(plan) <= expected * (1 + 1e-9)


def test_a_fast_link_costs_only_the_optimizer_on_the_host():
    fast, kept = swapped(machines(1e15)), swapped(machines(1e15), offload=("optimizer",))
    assert stage_costs.compute_seconds(fast.specs[0], fast.workload, fast.config, LAYERS, True, True) == pytest.approx(
        stage_costs.compute_seconds(kept.specs[0], kept.workload, kept.config, LAYERS, True, True)
    )


def test_a_device_keeps_two_buffers_of_the_largest_group():
    plan = swapped(machines())
    model, shape = plan.workload.model, (plan.workload, plan.config)
    layer = layer_groups.layer_parameters(*shape)
    largest = max(layer, model.embedding_parameters, model.head_parameters)
    for layers in (1, LAYERS, 40):
        assert memory.held_bytes(*shape, layers, True, True) == BUFFERS * 6 * largest
    assert memory.held_bytes(*shape, LAYERS, False, False) == BUFFERS * 6 * layer
    assert memory.heads_in_flight(plan.config, 4.0) == 1.0


def test_a_host_keeps_eighteen_bytes_of_each_parameter():
    plan = swapped(machines())
    whole = memory.stage_parameters(plan.workload, plan.config, LAYERS, True, True)
    assert offload.host_bytes(plan) == {("c", 0): pytest.approx(18 * whole)}
    wide = replace(plan.workload, precision="fp32")
    assert offload.rank_bytes(wide, plan.config, LAYERS, 4, True, True) == pytest.approx(16 * whole)


def test_gradients_stay_on_the_host():
    with pytest.raises(PlanError, match="offload parameters needs optimizer, too"):
        ParallelConfig(offload=("parameters",))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"schedule": "1f1b"}, "with schedule 1f1b"),
        ({"zero_stage": 1}, "with zero_stage 1"),
    ],
)
def test_only_single_devices_are_modelled(facts, words):
    with pytest.raises(NotModelled, match=f"offload parameters {words}: single devices are modelled"):
        swapped(machines(), **facts)


def test_adapters_are_not_modelled():
    plan = swapped(machines())
    workload = replace(plan.workload, adapter=Adapter(8))
    with pytest.raises(NotModelled, match="adapter with offload parameters"):
        simulate(replace(plan, topology=replace(plan.topology, workload=workload), workload=workload))


def test_islands_of_single_peers():
    """Two peers whose hosts keep the whole model, and exchange it every ten steps."""
    where = sites(devices=1, bandwidth=1e6)
    placements = [tuple(d for d in builders.every_device(where) if d.cluster == one.name) for one in where.clusters]
    islands = tuple(swapped(where, placement=devices) for devices in placements)
    predicted = predict(IslandsPlan(Sync("diloco", 10), islands, MadeBy("by hand", "1")))[1]
    assert predicted.inner_step_s == pytest.approx([simulate(island).step_s for island in islands])
    assert predicted.period_s > 10 * predicted.inner_step_s[0]
