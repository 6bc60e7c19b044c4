"""What must leave the nodes of unlike pipelines: by hand, and every plan of small fleets that people own."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.bounds.leaving_nodes import NodeRates, Traffic, least_seconds
from planner.bounds.unlike_pipelines import least_step, leaving_seconds, modes
from planner.costs.context import PlanningContext
from planner.request import Request
from sim.engine.engine import simulate
from sim.formats import catalog
from sim.hardware.cluster import Device, Nic, Trunk
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import of_plans
from sim.plan.plan import MadeBy, Plan, Stage
from tests import builders as make
from tests.more import after
from tests.planner.builders import request

LAYERS, BATCH = 3, 4
BINDS = 31
"""A seed whose bound is that of what leaves the nodes."""


def test_a_node_that_computes_and_sends_fast_does_all():
    """Ten layers of eight samples at 40 layers a second, and NICs without limit."""
    assert least_seconds([NodeRates(1, 40.0, math.inf, True)], Traffic(10, 8, 1.0, 1.0)) == pytest.approx(2.0)
    assert least_seconds([], Traffic(10, 8, 1.0, 1.0)) == math.inf


def test_nodes_of_one_device_share_all_their_layers():
    """Two nodes compute 40 units each in a second, for which 2 sqrt(40) = 12.65 bytes must leave each. They send 5, and the 16
    credits are enough for the rest of both. With 3 bytes they are not."""
    assert least_seconds([NodeRates(2, 40.0, 5.0, False)], Traffic(10, 8, 1.0, 1.0)) == pytest.approx(1.0)
    found = least_seconds([NodeRates(2, 40.0, 3.0, False)], Traffic(10, 8, 1.0, 1.0))
    free, most, price = (3 * found) ** 2 / 4, 40 * found, 2 * math.sqrt(40 * found) - 3 * found
    assert found > 1.05
    assert 2 * free + 16 * (most - free) / price == pytest.approx(80)


def test_one_node_has_all_layers_with_all_credits():
    """It sends nothing: the first and the last layer of all samples are its own. A second one as fast, which sends 0.1 bytes a
    second, needs credits, too: (16 - 0.1 T) of them buy 40 T, and the bound leaves 0.1 T to the first, as if it were
    divisible."""
    one = NodeRates(1, 40.0, 0.0, True)
    assert least_seconds([one], Traffic(10, 8, 1.0, 1.0)) == pytest.approx(2.0)
    found = least_seconds([one, NodeRates(1, 40.0, 0.1, True)], Traffic(10, 8, 1.0, 1.0))
    assert 40 * found * (1 + 0.1 * found / 16) == pytest.approx(80)


def test_messages_of_the_whole_batch_leave_a_node_in_the_middle():
    """Three nodes that compute a third of all layers each in a second: two have all credits, and the third must send 2 a batch
    = 16 bytes at its rate, or compute what it can share."""
    traffic = Traffic(30, 8, 1.0, 100.0)
    found = least_seconds([NodeRates(3, 80.0, 4.0, True)], traffic)
    sent = 4.0 * found
    bought = 16 / (16 - sent)
    assert bought * 80 * found + (3 - bought) * sent**2 / 400 == pytest.approx(240, rel=1e-6)
    assert found > 1.2


def test_faster_networks_are_never_slower():
    traffic = Traffic(30, 8, 1.0, 100.0)
    every = [least_seconds([NodeRates(3, 80.0, 4.0 * 2**power, True)], traffic) for power in range(6)]
    assert every == sorted(every, reverse=True)
    assert every[-1] == pytest.approx(1.0)


def owned(seed: int) -> Request:
    """Three or four devices in two or three machines on Ethernet, as people own them, and a small model."""
    rng = random.Random(seed)
    ethernet = Nic(catalog.nic("ethernet"), rng.choice([1e9, 10e9, 25e9]) / 8, 1)
    if seed % 2:  # without latency and overhead, so that messages and gradients take what their bytes do
        ethernet = make.nic("ethernet", ethernet.bandwidth)
    numbers = rng.choice([(1, 2, 1, 1), (1, 2, 1, 2), (1, 1, 2, 1), (2, 1, 1, 2)])
    machines = [
        make.cluster(
            name,
            nodes,
            devices,
            (ethernet,),
            catalog.device(rng.choice(kinds)) if seed % 2 == 0 else make.device(name, rng.choice([1e12, 1e13])),
            catalog.link("pcie4"),
        )
        for name, nodes, devices, kinds in (
            ("new", *numbers[:2], ("rtx-4090", "a100-pcie-40gb")),
            ("old", *numbers[2:], ("rtx-3090", "t4", "rtx-2080-ti")),
        )
    ]
    fleet = make.fleet(*machines, trunks=(Trunk(("new", "old"), "ethernet", ethernet.bandwidth, 5e-5),))
    hidden = rng.choice([768, 1536])
    return request(fleet, make.model(LAYERS, hidden), BATCH, seq_len=rng.choice([512, 2048]), precision="fp16")


def pipelines(asked: Request, devices: tuple[Device, ...]) -> Iterator[Plan]:
    """Every pipeline on all of some devices, in their order: layers of the stages, tp inside a node, and the division of up to
    `BATCH` - 1 samples into microbatches."""
    slots = [tuple((one,) for one in devices)]
    if len({(one.cluster, one.node) for one in devices}) == 1 and len(devices) == 2:
        slots.append((devices,))
    for own in slots:
        for cuts in itertools.combinations(range(1, LAYERS), len(own) - 1):
            stages = tuple(Stage(*pair) for pair in itertools.pairwise((0, *cuts, LAYERS)))
            for size, number in itertools.product((1, 2), range(1, BATCH)):
                if size * number >= BATCH:
                    continue
                config = ParallelConfig(
                    tp=len(own[0]), pp=len(own), dp=1, num_microbatches=(number,), microbatch_size=size,
                    sequence_parallel=True, schedule="gpipe",
                )  # fmt: skip
                workload, fleet = replace(asked.workload, global_batch_size=size * number), asked.topology.fleet
                topology = replace(asked.topology, workload=workload)
                yield Plan(
                    topology, workload, config, stages, devices, groups_of(fleet, config, devices), MadeBy("by hand", "1")
                )


def together(entries: list[tuple[float, Plan]], left: int) -> Iterator[tuple[tuple[float, Plan], ...]]:
    """Sets of entries on devices of their own that train `left` samples together."""
    for index, one in enumerate(entries):
        samples = one[1].workload.global_batch_size
        if samples == left:
            yield (one,)
        elif samples < left:
            others = [other for other in entries[index + 1 :] if not set(other[1].placement) & set(one[1].placement)]
            yield from ((one, *more) for more in together(others, left - samples))


def fastest(asked: Request, entries: list[tuple[float, Plan]]) -> float:
    """The least step of all plans of entries, each with its step without others; memory has room for all of them."""
    least = math.inf
    for some in together(entries, asked.workload.global_batch_size):
        if len(some) > 1 and max(alone for alone, _ in some) < least:
            least = min(least, simulate(of_plans([plan for _, plan in some], MadeBy("by hand", "1"))).step_s)
    return least


@pytest.mark.parametrize("seed", after(2, (BINDS, *(seed for seed in range(1, 40) if seed != BINDS), 0), last=4))
def test_no_plan_of_a_small_fleet_is_below_the_bound(seed):
    """All pipelines on any devices: across machines, and several on one machine."""
    asked = owned(seed)
    devices = make.every_device(asked.topology.fleet)
    lists = (some for number in range(1, LAYERS + 1) for some in itertools.permutations(devices, number))
    every = sorted(((simulate(plan).step_s, plan) for some in lists for plan in pipelines(asked, some)), key=lambda one: one[0])
    context = PlanningContext(asked)
    leaving, bound, least = leaving_seconds(asked, modes(context)), least_step(context), fastest(asked, every)
    assert bound <= least * (1 + 1e-9)
    assert seed != BINDS or leaving == bound
