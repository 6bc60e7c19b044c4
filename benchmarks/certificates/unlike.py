"""Judges certificates of models whose layers differ by brute force: `python -m benchmarks.certificates.unlike`.

The fleets are those of `benchmarks.certificates.fleets`; their models get layers of two or more kinds. Every plan of the
stated space is built with the model's own layers: all shapes of the stand-ins, all splits, all orders of the clusters, and all
splits of the placements of mixed stages whose replicas have equally many microbatches. They are simulated in the order of their
closed form, a lower bound, until no other can be faster. Replicas may have numbers of their own, but for the target of odd
seeds. `--further` takes the fleets of `benchmarks.certificates.unlike_fleets` instead."""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.certificates.bounds import evenly_options
from benchmarks.certificates.brute import STRICT
from benchmarks.certificates.fleets import draw
from benchmarks.certificates.judge import layout
from benchmarks.certificates.space import Stages, pipelines
from benchmarks.certificates.unlike_fleets import narrowed
from planner.costs.context import PlanningContext
from planner.costs.node_classes import holds
from planner.placement.ranks import assemble, build, with_collectives
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request
from planner.search.mixed import mixed_placements
from planner.search.unlike_layers import UnlikeSearch
from planner.space import stand_in
from planner.space.device_slots import StageSlots, devices
from planner.space.mixed_schedules import playable_variants
from planner.space.shape import Shape
from planner.space.shapes import overlaps, searched, variants
from planner.space.tied_shards import with_tied_shards
from planner.space.unlike_tp import unlike_shapes
from planner.target import Target
from planner.time_limit import TimeLimit
from sim.analytic import plan_costs
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Seconds
from sim.workload.model import Model
from sim.workload.workload import Workload

LARGEST = 400
"""Pipelines of a drawn fleet with its own model, at most; experts over several ranks and two ways to recompute add to them."""
MOST = 6_000
"""Plans of a space, at most; fleets with more are left out."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one seed; seconds are infinite where there is no plan. `plans`: those of the space that were built."""

    seed: int
    kinds: str
    plans: int
    bound_s: Seconds
    step_s: Seconds
    best_s: Seconds
    best: str

    @property
    def is_wrong(self) -> bool:
        """Whether the bound is above the best plan of the space."""
        return self.bound_s > self.best_s * (1 + STRICT)


def unlike(seed: int, largest: int = LARGEST) -> Request:
    """The request of a seed, with a model of layers of several kinds."""
    drawn, chance = draw(seed, largest), random.Random(seed)
    workload = replace(drawn.workload, model=_model(drawn.workload.model, chance))
    topology = replace(drawn.topology, workload=workload)
    wishes = replace(drawn.wishes, recompute=None if drawn.wishes.recompute not in ("none", "full") else drawn.wishes.recompute)
    return replace(
        drawn,
        topology=topology,
        workload=workload,
        wishes=wishes,
        time_limit=math.inf,
        target=ALIKE if seed % 2 else drawn.target,
    )


def _alike(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    if len(set(config.num_microbatches)) > 1:
        yield "num_microbatches: replicas have equally many"


def _nothing(plan: Plan) -> Iterator[str]:
    yield from ()


ALIKE = Target("alike", "any", (), unsupported_layout=_alike, unsupported_placement=_nothing)
"""A target that runs everything but replicas with unlike numbers of microbatches."""


def _model(model: Model, chance: random.Random) -> Model:
    """The model with a first dense layer, every second layer with experts, or every second one with a window."""
    layers = max(model.layers, 2)
    experts = {"experts": chance.choice((2, 4)), "experts_per_token": chance.choice((1, 2))}
    dense = experts | {"dense_ffn_hidden": model.ffn_hidden * chance.choice((1, 2, 4))}
    facts: dict[str, Any] = chance.choice((
        dense | {"dense_layers": 1},
        dense | {"moe_layer_step": 2},
        {"sliding_window": 64, "sliding_window_every": 2},
        dense | {"dense_layers": 1, "mtp_layers": 1},
        {"mtp_layers": 1},
    ))  # fmt: skip
    return replace(model, layers=layers, **facts)


def best(request: Request) -> tuple[Plan | None, int]:
    """The fastest plan of the stated space, simulated, and the number of plans that were built."""
    every = sorted(((plan_costs.step_seconds(plan), index, plan) for index, plan in enumerate(plans(request))), key=_first_two)
    found: Plan | None = None
    for seconds, _, plan in every:
        if found is not None and seconds >= step(found):
            break
        done = simulate_plan(plan)
        found = done if found is None or step(done) < step(found) else found
    return found, len(every)


def _first_two(item: tuple[float, int, Plan]) -> tuple[float, int]:
    return item[:2]


def plans(request: Request) -> Iterator[Plan]:
    """Every plan of the stated space that can be built and fits."""
    for part, shape in shapes(request):
        for stages in pipelines(replace(part, wishes=replace(part.wishes, recompute=None)), shape):
            cluster = request.topology.fleet.cluster(stages[0][0])
            if not all(holds(request, request.topology.fleet.cluster(name), shape) for name, _ in stages):
                continue  # cp or ep groups at unequal positions on their nodes are outside of the space
            for evenly in evenly_options(cluster, shape, stages):
                yield from _built(request, partial(build, part, shape, stages, "brute force", evenly))
    for part, shape, placed, layers in cuts(request):
        yield from _built(request, partial(assemble, part, shape, layers, devices(placed, shape.tp), "brute force"))


def _built(request: Request, build: Callable[[], Plan]) -> Iterator[Plan]:
    with suppress(Infeasible, NoRoute, NotDefined, NotModelled):
        plan = stand_in.of_model(build(), request)
        if fits(plan) and not request.refuses(plan):
            yield with_collectives(plan)


def cuts(request: Request) -> Iterator[tuple[Request, Shape, tuple[StageSlots, ...], tuple[int, ...]]]:
    """Every split of the layers of every placement of mixed stages, where dp divides the batch."""
    for part in stand_in.stand_ins(request):
        layers = part.workload.model.layers
        for base, placed in mixed_placements(part):
            every = playable_variants(part, base, len(placed) > 1) if base.divides(part.workload) else ()
            for shape in (one for variant in every for one in overlaps(variant)):
                for cut in itertools.combinations(range(1, layers), len(placed) - 1):
                    yield part, shape, placed, tuple(b - a for a, b in itertools.pairwise((0, *cut, layers)))


def shapes(request: Request) -> Iterator[tuple[Request, Shape]]:
    """Every variant of every shape of the stand-ins."""
    for part in stand_in.stand_ins(request):
        with suppress(Infeasible):
            every = [with_tied_shards(part, shape) for shape in searched(part)]
            equal = [shape for shape in every if shape.divides(part.workload)]
            for base in (*every, *unlike_shapes(part, equal)):
                for variant in variants(part, base):
                    yield from ((part, shape) for shape in overlaps(variant))


def is_small(request: Request) -> bool:
    """Whether brute force can build all plans of a request."""
    return sum(1 for _ in zip(range(MOST + 1), itertools.chain(_pipelines(request), cuts(request)), strict=False)) <= MOST


def judge(seed: int, request: Request) -> Verdict | None:
    """Search and bound the request of a seed, and compare with brute force; None where its space is too large."""
    if not is_small(request):
        return None
    search = UnlikeSearch(request, PlanningContext(request), None, TimeLimit(math.inf))
    bound = search.run()
    search.polish()
    found, built = best(request)
    return Verdict(
        seed=seed,
        kinds=", ".join(f"{key} {value}" for key, value in request.workload.model.special.items()),
        plans=built,
        bound_s=min(bound, search.mixed.seconds),
        step_s=step(search.best) if search.best else math.inf,
        best_s=step(found) if found else math.inf,
        best=layout(found),
    )


def _pipelines(request: Request) -> Iterator[Stages]:
    for part, shape in shapes(request):
        yield from pipelines(replace(part, wishes=replace(part.wishes, recompute=None)), shape)


def main() -> None:
    """Judge a range of seeds and print a line for each, and the faults at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--largest", type=int, default=LARGEST)
    parser.add_argument("--further", action="store_true")
    options = parser.parse_args()
    found = []
    for seed in range(options.first, options.first + options.seeds):
        verdict = judge(seed, narrowed(seed, is_small) if options.further else unlike(seed, options.largest))
        if verdict is None:
            continue
        found.append(verdict)
        far = 1 - verdict.bound_s / verdict.best_s if verdict.best_s < math.inf else math.nan
        late = verdict.step_s / verdict.best_s - 1 if verdict.best_s < math.inf else math.nan
        mark = "WRONG" if verdict.is_wrong else ""
        print(
            seed,
            verdict.kinds,
            verdict.plans,
            f"gap {far:.2%} late {late:.2%}",
            mark,
            verdict.best if mark or late > 0.005 else "",
            flush=True,
        )
    print(f"{len(found)} judged, {sum(one.is_wrong for one in found)} bounds above the best plan")


if __name__ == "__main__":
    main()
