"""What must leave the nodes of unlike pipelines: by hand, and every plan of small fleets that people own."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.bounds import leaving_nodes
from planner.bounds.leaving_nodes import NodeRates, Traffic, least_seconds
from planner.bounds.pipeline_modes import modes
from planner.bounds.unlike_pipelines import leaving_seconds, parts_of_bound
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
BINDS, WHOLE = 3, 6
"""A seed whose bound is that of what leaves the nodes, and one whose bound is that of whole replicas."""
SEEDS = (BINDS, WHOLE, *(seed for seed in range(1, 40) if seed not in (BINDS, WHOLE)), 0)


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
    """It sends nothing: the first and the last layer of all samples are its own. With a second one as fast, which sends 0.1
    bytes a second, either has layers of its own: the second one lacks 16 - 0.1 T credits for it, and 0.1 T are left, with which
    the first one computes layers that it shares."""
    one = NodeRates(1, 40.0, 0.0, True)
    assert least_seconds([one], Traffic(10, 8, 1.0, 1.0)) == pytest.approx(2.0)
    found = least_seconds([one, NodeRates(1, 40.0, 0.1, True)], Traffic(10, 8, 1.0, 1.0))
    assert 40 * found * (1 + 0.1 * found / (2 * math.sqrt(40 * found))) == pytest.approx(80)


def test_messages_of_the_whole_batch_leave_a_node_in_the_middle():
    """Three nodes that compute a third of all layers each in a second: the third must send 2 a batch = 16 bytes at its rate, or
    share layers, of which it completes few. The other two have layers of their own, at both ends, once 4 T is a batch = 8."""
    assert least_seconds([NodeRates(3, 80.0, 4.0, True)], Traffic(30, 8, 1.0, 100.0)) == pytest.approx(2.0)
    assert least_seconds([NodeRates(2, 80.0, 4.0, True)], Traffic(30, 8, 1.0, 100.0)) == pytest.approx(2.0)
    assert least_seconds([NodeRates(3, 80.0, 4.0, True)], Traffic(30, 8, 1.0, 1.0)) < 1.9


def test_all_gradients_but_one_leave_the_nodes_of_a_layer():
    """A thousand nodes of one device, which send 2 bytes a second. Of 100 layers and 50 samples, each completes (2 T)^2 / 8
    units at all gradients, and 200 credits buy more; at half of the gradients it would complete twice as many."""
    found = least_seconds([NodeRates(1000, 100.0, 2.0, False)], Traffic(100, 50, 1.0, 1.0))
    free, most, missing = (2 * found) ** 2 / 8, 100 * found, 2 * math.sqrt(200 * found) - 2 * found
    assert 1000 * free + 200 * (most - free) / missing == pytest.approx(5000)


@pytest.mark.parametrize("traffic", [Traffic(10, 8, 1.0, 100.0), Traffic(10, 80, 3.0, 1.0), Traffic(10, 8, 2.0, 3.2)])
def test_the_work_of_rings_is_the_inverse_of_their_bytes(traffic):
    """The most samples of a layer are the batch where gradients are large, and all layers are on a node where messages are."""
    account = leaving_nodes._Rings(traffic)
    for part in range(1, 33):
        work = part * traffic.layers * traffic.batch / 32
        assert account.free(account.least(work)) == pytest.approx(work)
        every = (traffic.batch * (one + 1) / 4000 for one in range(4000))
        least = min(traffic.gradients * work / m + 2 * traffic.message * m for m in every if m >= work / traffic.layers)
        assert account.least(work) == pytest.approx(least, rel=2e-3) and account.least(work) <= least * (1 + 1e-9)
    assert account.least(0.0) == account.free(0.0) == 0.0


def split(rng: random.Random, layers: int, batch: int, several: list[bool]) -> list[list[int]]:
    """Samples of each node on each layer, that of a layer together all: of one node, or of several, often those before it."""
    found: list[list[int]] = [[] for _ in several]
    own = [0] * len(several)
    for layer in range(layers):
        if not layer or rng.random() < 0.5:
            number = rng.choice([1, 2, len(several)])
            some = rng.sample(range(len(several)), max(number, 1 if any(several) else 2))
            if len(some) == 1 and not several[some[0]]:
                some = rng.sample(range(len(several)), 2)
            cuts = sorted(rng.sample(range(1, batch), len(some) - 1))
            own = [0] * len(several)
            for node, (low, high) in zip(some, itertools.pairwise((0, *cuts, batch)), strict=True):
                own[node] = high - low
        for node, number in enumerate(own):
            found[node].append(number)
    return found


def seconds(traffic: Traffic, nodes: list[NodeRates], samples: list[list[int]]) -> float:
    """The least step with some samples of each node on each layer, by what nodes compute, and by what leaves them."""
    holders = [sum(number > 0 for number in layer) for layer in zip(*samples, strict=True)]
    found = []
    for node, own in zip(nodes, samples, strict=True):
        gradients = sum(traffic.gradients * (1 - 1 / n) for number, n in zip(own, holders, strict=True) if number)
        messages = traffic.message * sum(abs(a - b) for a, b in itertools.pairwise(own))
        found += [sum(own) / node.computes, (gradients + messages) / node.sends]
    return max(found)


@pytest.mark.parametrize("seed", range(20))
def test_no_split_of_the_samples_is_below_the_bound(seed):
    """Random splits over two to five nodes, improved at random as long as the step becomes shorter."""
    rng = random.Random(f"split {seed}")
    layers, batch, number = rng.randint(2, 8), rng.randint(6, 16), rng.randint(2, 5)
    several = [rng.random() < 0.7 for _ in range(number)]
    nodes = [NodeRates(1, rng.choice([5.0, 10.0, 20.0]), rng.choice([1.0, 2.0, 5.0, 20.0]), one) for one in several]
    traffic = Traffic(layers, batch, rng.choice([0.1, 0.3, 1.0]), rng.choice([0.3, 1.0, 5.0]))
    bound, least = least_seconds(nodes, traffic), math.inf
    for _ in range(40):
        best = split(rng, layers, batch, several)
        for _ in range(150):
            least = min(least, now := seconds(traffic, nodes, best))
            near = [[*own] for own in best]
            for layer in range(begin := rng.randrange(layers), rng.randint(begin, layers - 1) + 1):
                giver, taker = rng.sample(range(number), 2)
                moved = rng.choice([near[giver][layer], 1]) if near[giver][layer] else 0
                near[giver][layer], near[taker][layer] = near[giver][layer] - moved, near[taker][layer] + moved
            holders = [[node for node in range(number) if near[node][layer]] for layer in range(layers)]
            if all(len(some) > 1 or several[some[0]] for some in holders) and seconds(traffic, nodes, near) <= now:
                best = near
    assert bound <= least * (1 + 1e-9)


def test_faster_networks_are_never_slower():
    traffic = Traffic(30, 8, 1.0, 100.0)
    every = [least_seconds([NodeRates(3, 80.0, 4.0 * 2**power, True)], traffic) for power in range(6)]
    assert every == pytest.approx(sorted(every, reverse=True), rel=1e-12)
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


@pytest.mark.parametrize("seed", after(2, SEEDS, last=4))
def test_no_plan_of_a_small_fleet_is_below_the_bound(seed):
    """All pipelines on any devices: across machines, and several on one machine."""
    asked = owned(seed)
    devices = make.every_device(asked.topology.fleet)
    lists = (some for number in range(1, LAYERS + 1) for some in itertools.permutations(devices, number))
    every = sorted(((simulate(plan).step_s, plan) for some in lists for plan in pipelines(asked, some)), key=lambda one: one[0])
    context = PlanningContext(asked)
    every_mode, parts, least = modes(context), parts_of_bound(context), fastest(asked, every)
    bound = max(parts.values())
    assert bound <= least * (1 + 1e-9)
    assert seed != BINDS or leaving_seconds(asked, every_mode) == bound
    assert seed != WHOLE or bound == parts["replicas"] > max(parts["work"], parts["gradients"], parts["leaving"])
