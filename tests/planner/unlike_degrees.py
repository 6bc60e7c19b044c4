"""Requests on two clusters of unlike size, where stages of unlike dp pay, and every such plan by brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from planner.bounds.unlike_degrees import Layout, SomeShapes
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes
from planner.placement.simulation import fits
from planner.placement.unlike_degrees import build_unlike
from planner.request import Request, Wishes
from planner.space.shape import Shape
from planner.space.shapes import searched
from planner.space.unlike_degrees import are_unlike, matching, own_shapes, templates
from sim.engine.engine import simulate
from sim.errors import Infeasible, NoRoute, PlanError
from sim.hardware.cluster import Trunk
from sim.hardware.memory_facts import WORKSPACE
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner import outside_torch
from tests.planner.builders import request, shape

PINNED = Wishes(schedule="1f1b", zero_stage=1)
"""Pins that leave degrees, microbatch size and pp to the search."""


def question(
    wishes: Wishes = PINNED,
    speeds: tuple[float, float] = (2e11, 2e11),
    room: float = 48e6,
    tied: bool = False,
    layers: int = 3,
    seq_len: int = 64,
    experts: int = 0,
    mlp: str = "gelu",
) -> Request:
    """A node of two devices, and one of four; neither has memory for the whole model by itself. A token takes two experts."""
    clusters = [
        make.cluster(
            name, 1, count, nics=(make.nic("ethernet", 5e9, latency=1e-6),), intra_node=make.wire(bandwidth=1e10),
            spec=make.device(f"chip-{name}", speed, 1e11, memory=room + WORKSPACE + outside_torch.CONTEXT),
        )
        for name, count, speed in zip("ab", (2, 4), speeds, strict=True)
    ]  # fmt: skip
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 2e10, 1e-6),))
    model = make.model(layers, 384, tied_embeddings=tied, experts=experts, experts_per_token=min(experts, 2), mlp=mlp)
    return request(machines, model, 8, wishes, seq_len)


def drawn(seed: int) -> Request:
    """Two or three clusters of up to three nodes of one to six devices, in which stages of unlike dp often pay; some pins."""
    rng = random.Random(seed)
    clusters = [
        make.cluster(
            name, rng.choice((1, 2, 3)), rng.choice((1, 2, 3, 4, 6)),
            nics=(make.nic("ethernet", rng.choice((1e9, 5e9, 2e10))),),
            intra_node=make.wire(bandwidth=rng.choice((1e9, 1e10, 5e10))),
            spec=make.device(
                f"chip-{name}", rng.choice((1e11, 2e11, 3e11)), 1e11,
                memory=rng.choice((24e6, 32e6, 64e6, 100e6)) + WORKSPACE + outside_torch.CONTEXT,
            ),
        )
        for name in "abc"[: rng.choice((2, 3, 3))]
    ]  # fmt: skip
    pairs = itertools.combinations((one.name for one in clusters), 2)
    machines = make.fleet(*clusters, trunks=tuple(Trunk(pair, "ethernet", rng.choice((5e9, 2e10)), 1e-6) for pair in pairs))
    model = make.model(rng.randint(3, 7), 384, tied_embeddings=rng.random() < 0.2)
    pins = ({}, {"zero_stage": 1}, {"recompute": "full"}, {"recompute": "none"}, {"pp": 3}, {"microbatch_size": 2})
    return request(machines, model, rng.choice((6, 8, 12, 16)), Wishes(**rng.choice(pins)))


def every_unlike(asked: Request, bases: Sequence[Shape]) -> Iterator[Plan]:
    """The plan of every pipeline on both clusters that have unlike dp or `bases`: each has a tp, a dp and a base of its own."""
    layers, batch = asked.workload.model.layers, asked.workload.global_batch_size
    for order in itertools.permutations(asked.clusters()):
        for tps, dps, own in itertools.product(*(itertools.product(some, repeat=2) for some in ((1, 2, 4), (1, 2, 4), bases))):
            shapes = [replace(base, tp=tp, dp=dp) for base, tp, dp in zip(own, tps, dps, strict=True)]
            pairs = list(zip(order, shapes, strict=True))
            most = [one.devices // (shape.tp * shape.slots) if shape.tp <= one.node.count else 0 for one, shape in pairs]
            for counts in itertools.product(*(range(1, many + 1) for many in most)):
                for samples in (1, 2, 4, 8):
                    alike = dps[0] == dps[1] and own[0] == own[1]
                    if sum(counts) > layers or alike or any(samples % dp for dp in dps):
                        continue
                    names = [
                        (one.name, replace(shape, microbatch_size=samples // shape.dp))
                        for (one, shape), n in zip(pairs, counts, strict=True)
                        for _ in range(n)
                    ]
                    assert batch % samples == 0
                    for cuts in itertools.combinations(range(1, layers), len(names) - 1):
                        sizes = (b - a for a, b in itertools.pairwise((0, *cuts, layers)))
                        stages = [(*one, size) for one, size in zip(names, sizes, strict=True)]
                        try:
                            yield build_unlike(asked, stages, "by hand")
                        except (PlanError, NoRoute):
                            continue


Some: TypeAlias = dict[str, list[NodeClass]]
"""The classes of each cluster that may be in one pipeline."""


def drawn_plans(context: PlanningContext, seed: int, most: int) -> Iterator[tuple[Plan, list[NodeClass], list[int], Some]]:
    """Up to so many plans of unlike degrees that fit in memory: each with its classes, the stages of each, and all classes that
    these were drawn from."""
    rng, asked = random.Random(seed), context.request
    layers, batch = asked.workload.model.layers, asked.workload.global_batch_size
    try:
        groups = matching(asked, templates(asked, searched(asked)))
    except Infeasible:
        return
    for _ in range(20 * most if groups else 0):
        samples, some = rng.choice([size for size in range(1, batch + 1) if batch % size == 0]), Some()
        for own in (own for base in rng.choice(groups) for own in own_shapes(asked, base, samples)):
            for option in node_classes(context, own):
                some.setdefault(option.cluster.name, []).append(option)
        chosen = [rng.choice(some[name]) for name in rng.sample(sorted(some), rng.randint(min(2, len(some)), len(some)))]
        counts = [rng.randint(1, min(option.max_stages, layers)) for option in chosen]
        pp = sum(counts)
        if not are_unlike(option.own for option in chosen) or pp > layers:
            continue
        cuts = sorted(rng.sample(range(1, layers), pp - 1))
        of = [option for option, count in zip(chosen, counts, strict=True) for _ in range(count)]
        sizes = [b - a for a, b in itertools.pairwise((0, *cuts, layers))]
        stages = [(option.cluster.name, option.own, size) for option, size in zip(of, sizes, strict=True)]
        try:
            plan = build_unlike(asked, stages, "drawn")
        except (PlanError, NoRoute):
            continue
        if fits(plan):
            yield plan, chosen, counts, some
            most -= 1
            if not most:
                return


def layout_of(context: PlanningContext, **degrees: tuple[int, int, int]) -> Layout:
    """The layout of one (tp, dp, microbatch size) for each cluster."""
    found = []
    for name, (tp, dp, size) in degrees.items():
        own = shape(tp=tp, dp=dp, microbatch_size=size, recompute="block")
        (option,) = (option for option in node_classes(context, own) if option.cluster.name == name)
        found.append(SomeShapes([option]))
    return tuple(found)


def fastest_of(context: PlanningContext, layout: Layout) -> float:
    """The least simulated step of all pipelines of a layout that fit in memory."""
    layers = context.request.workload.model.layers
    found = []
    for order in itertools.permutations(some.classes[0] for some in layout):
        for counts in itertools.product(*(range(1, option.max_stages + 1) for option in order)):
            if sum(counts) > layers:
                continue
            of = [option for option, count in zip(order, counts, strict=True) for _ in range(count)]
            for cuts in itertools.combinations(range(1, layers), len(of) - 1):
                sizes = [end - begin for begin, end in itertools.pairwise((0, *cuts, layers))]
                stages = [(option.cluster.name, option.own, size) for option, size in zip(of, sizes, strict=True)]
                plan = build_unlike(context.request, stages, "by hand")
                found += [simulate(plan).step_s] if fits(plan) else []
    return min(found)
