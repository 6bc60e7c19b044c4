"""Judges plans of unlike degrees and their bound by brute force: `python -m benchmarks.certificates.unlike_degrees`.

Fleets are two or three clusters of one or two nodes with one to four devices of types that users own, joined by Ethernet, with
a small model; on most of them the devices have so little memory that no cluster can hold it alone. Every plan in which clusters
have degrees of their own is built: all orders of all sets of clusters, tp, dp and samples of a microbatch, numbers of stages
and splits of the layers, with weights gathered at both times (`overlap_param_gather`); with `--experts`, models are small
mixtures, and each cluster has every ep and etp; with `--long`, every cp; with `--flagscale`, only those that FlagScale takes;
with `--far`, clusters are at sites of their own. Those that may be the fastest are simulated."""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.certificates import tiny_fleets
from benchmarks.certificates.brute import STRICT
from benchmarks.certificates.fleets import STATE
from benchmarks.certificates.judge import NEAR, layout
from benchmarks.certificates.space import slots
from benchmarks.owned_fleets import NODES
from holmes_sim import exporters
from planner.costs.context import PlanningContext
from planner.placement.simulation import fits, simulate_plan, step
from planner.placement.unlike_degrees import build_unlike
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from planner.search.fitting import fitting
from planner.search.incumbent import Incumbent
from planner.search.unlike_degrees_proof import prove_unlike
from planner.space.sequences_and_experts import context_degrees
from planner.space.shape import Shape
from planner.space.shapes import searched
from planner.strategies import certified
from planner.time_limit import TimeLimit
from sim.analytic.evaluator import evaluate
from sim.errors import Infeasible, NoRoute, PlanError
from sim.hardware.cluster import Cluster
from sim.hardware.memory_facts import WORKSPACE
from sim.hardware.stack import software_facts
from sim.kernels import communicators
from sim.plan.parallel_config import BLOCK
from sim.plan.plan import Plan
from sim.units import Seconds

RATES = (25, 100, 400)
"""Gbit/s of the Ethernet of nodes and between them."""
SHAPES = ((1, 2), (1, 4), (1, 4), (2, 1), (2, 2), (1, 3), (1, 1))
"""Nodes of a cluster, and devices of each node."""
HIDDEN, LAYERS, BATCHES, SEQUENCES = (1024, 2048, 4096), (3, 4, 5), (4, 6, 8, 12), (1024, 2048)
LONG, FEW = 8192, (2, 4)
"""Tokens of a long sequence, from which on cp is searched, and batches of these."""
ROOM = (0.4, 0.5, 0.6, 0.8)
"""Memory of a cluster with little, as a multiple of the model's weights, gradients and optimizer state."""
SCHEDULES = ("1f1b", "1f1b", "zb-h1", "zb-h2")
MOST = 10_000
"""Largest number of plans of a fleet: it is drawn again where there are more, or where no plan fits."""
Stages = list[tuple[str, Shape, int]]
"""(cluster, shape, layers) of every stage."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one seed: seconds of the bound, of the fastest plan of unlike degrees, and of the plan that is found.

    `bound_s` is at most twice the fastest plan, where the certificate's is at most its plan, and 0 for none; `best` and `found`
    tell of the plans."""

    seed: int
    fleet: str
    plans: int
    bound_s: Seconds
    best_s: Seconds
    found_s: Seconds
    best: str
    found: str

    @property
    def is_wrong(self) -> bool:
        """Whether the bound is above the fastest plan."""
        return self.bound_s > self.best_s * (1 + STRICT)

    @property
    def slower(self) -> float:
        """How much slower the found plan is than the fastest of unlike degrees; negative where plans of alike ones are
        faster."""
        return self.found_s / self.best_s - 1


def owned(seed: int, long: bool = False, experts: bool = False, flagscale: bool = False, far: bool = False) -> Request:
    """The request of a seed: two or three kinds of nodes with few of their devices, and a small model. long: with few long
    sequences; experts: a mixture; flagscale: for this target; far: clusters at several sites."""
    for again in itertools.count():
        asked = _drawn(random.Random(f"unlike degrees {seed} {again}"), f"unlike-{seed}", (long, experts, far))
        if flagscale:
            asked = replace(asked, target=exporters.target("flagscale"), wishes=Wishes(schedule="1f1b"))
        if 0 < sum(1 for _ in itertools.islice(pipelines(asked), MOST + 1)) <= MOST and fitting(asked) is not None:
            return asked
    raise AssertionError


def _drawn(rng: random.Random, name: str, kind: tuple[bool, bool, bool]) -> Request:
    """kind: whether it has long sequences, experts, and clusters at several sites."""
    number, (long, experts, far) = rng.choice((2, 2, 2, 3)), kind
    clusters: dict[str, Any] = {}
    for index, device in enumerate(rng.sample([*NODES], number)):
        nodes, count = rng.choice(SHAPES)
        clusters[f"c{index}"] = tiny_fleets.cluster(device, nodes, count, rng.choice(RATES))
    links = [tiny_fleets.link(pair, rng.choice(RATES), far) for pair in itertools.combinations(clusters, 2)]
    hidden, layers = rng.choice(HIDDEN), rng.choice(LAYERS)
    workload = {
        "model": tiny_fleets.model(layers, hidden, number == 3 and rng.random() < 0.3, experts),
        "global_batch_size": rng.choice(FEW if long else BATCHES),
        "seq_len": LONG if long else rng.choice(SEQUENCES), "precision": "fp16",
    }  # fmt: skip
    asked = tiny_fleets.request(name, clusters, links, workload, Wishes(schedule=rng.choice(SCHEDULES)))
    return _scarce(asked, rng) if rng.random() < 0.85 else asked


def _scarce(asked: Request, rng: random.Random) -> Request:
    """The request with devices of so little memory that a cluster has room for a multiple in `ROOM` of the model's state."""
    fleet, clusters = asked.topology.fleet, list[Cluster]()
    state = STATE * asked.workload.model.parameters
    for one in fleet.clusters:
        room = rng.choice(ROOM) * state / one.devices + WORKSPACE + communicators.CONTEXT
        device = replace(one.node.device, memory=min(one.node.device.memory, room))
        clusters.append(replace(one, node=replace(one.node, device=device)))
    return replace(asked, topology=replace(asked.topology, fleet=replace(fleet, clusters=tuple(clusters))))


def pipelines(asked: Request) -> Iterator[Stages]:
    """The stages of every plan of unlike degrees that the machines, the model and the batch allow."""
    clusters, batch = asked.topology.fleet.clusters, asked.workload.global_batch_size
    for samples in (number for number in range(1, batch + 1) if batch % number == 0):
        some = {one.name: list(shapes(asked, one, samples)) for one in clusters}
        for number in range(2, len(clusters) + 1):
            for order in itertools.permutations(clusters, number):
                for own in itertools.product(*(some[one.name] for one in order)):
                    if len({(one.tp, one.dp, one.cp, one.ep, one.etp) for one in own}) > 1:
                        yield from _split(list(zip(order, own, strict=True)), asked.workload.model.layers)


def shapes(asked: Request, cluster: Cluster, samples: int) -> Iterator[Shape]:
    """The shapes of stages on a cluster with so many samples of a microbatch."""
    schedule, model = asked.wishes.schedule, asked.workload.model
    assert schedule is not None
    experts = [ep for ep in range(1, model.experts + 1) if model.experts % ep == 0] if model.experts else [1]
    for tp in (1, 2, 4):
        facts = software_facts(asked.topology.stack, asked.topology.fleet, tp)
        for cp, ep, etp in itertools.product(
            context_degrees(asked), experts, (None, 1) if model.experts and tp > 1 else (None,)
        ):
            for dp in range(1, samples + 1):
                own = Shape(tp, dp, samples // dp, BLOCK, schedule, 1, 1, cp, ep, etp, None, **facts)
                fits_batch = samples % dp == 0 and own.divides_experts
                if fits_batch and slots(cluster, tp) >= dp * cp and _equal_positions(cluster.node.count // tp, own):
                    yield own


def _equal_positions(per_node: int, own: Shape) -> bool:
    """Whether cp and ep groups fill a node together or whole nodes each, as the stated space wants it; a node has so many
    tensor-parallel groups."""
    return per_node > 0 and all(per_node % one == 0 or one % per_node == 0 for one in (own.cp, own.expert_rows))


def _split(runs: list[tuple[Cluster, Shape]], layers: int) -> Iterator[Stages]:
    """All numbers of stages of each run and all splits of the layers."""
    most = [slots(cluster, own.tp) // own.slots for cluster, own in runs]
    for counts in itertools.product(*(range(1, min(many, layers) + 1) for many in most)):
        names = [(cluster.name, own) for (cluster, own), count in zip(runs, counts, strict=True) for _ in range(count)]
        for cuts in itertools.combinations(range(1, layers), len(names) - 1):
            sizes = (b - a for a, b in itertools.pairwise((0, *cuts, layers)))
            yield [(*one, size) for one, size in zip(names, sizes, strict=True)]


def fastest(asked: Request) -> tuple[Plan | None, int]:
    """The fastest of all plans, simulated, and how many of them fit in memory."""
    priced = list[tuple[Seconds, int, Plan]]()
    for stages, overlaps in itertools.product(pipelines(asked), (True, False)):
        if not overlaps and all(own.slots == 1 for _, own, _ in stages):
            continue
        own = [(name, replace(shape, overlap_param_gather=overlaps), layers) for name, shape, layers in stages]
        with suppress(PlanError, NoRoute):
            plan = build_unlike(asked, own, "by hand")
            if fits(plan):
                priced.append((float(evaluate([plan])[0]), len(priced), plan))
    best: Plan | None = None
    for seconds, _, plan in sorted(priced):
        if best is not None and seconds >= step(best):
            break
        done = simulate_plan(plan)
        best = done if best is None or step(done) < step(best) else best
    return best, len(priced)


def judge(asked: Request, seed: int) -> Verdict | None:
    """The bound, the fastest plan of unlike degrees, and the plan that `certified` finds; None where no plan fits."""
    least, number = fastest(asked)
    try:
        plan = certified.plan(asked, PlanningContext(asked))
    except Infeasible:
        plan = None
    if least is None:
        return None
    clusters = asked.topology.fleet.clusters
    every = Incumbent(asked, PlanningContext(asked), replace(Budgets(), target_gap=-1.0), TimeLimit(math.inf), best=least)
    return Verdict(
        seed=seed,
        fleet=", ".join(f"{one.nodes} x {one.node.count} {one.node.device.name}" for one in clusters),
        plans=number,
        bound_s=prove_unlike(every, searched(asked)) or 0.0,
        best_s=step(least),
        found_s=step(plan) if plan is not None else math.inf,
        best=f"{layout(least)} {least.config.further_degrees}",
        found=layout(plan),
    )


def main() -> None:
    """Judge some seeds, and print a line for each and their sums."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certificates.unlike_degrees", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="number of fleets")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--long", action="store_true", help="few long sequences")
    parser.add_argument("--experts", action="store_true", help="small mixtures")
    parser.add_argument("--flagscale", action="store_true", help="plans that FlagScale takes")
    parser.add_argument("--far", action="store_true", help="clusters at several sites")
    given = parser.parse_args()
    verdicts = list[Verdict]()
    for seed in range(given.first, given.first + given.seeds):
        one = judge(owned(seed, given.long, given.experts, given.flagscale, given.far), seed)
        if one is None:
            continue
        verdicts.append(one)
        told = "  BOUND ABOVE A PLAN" if one.is_wrong else "  SLOWER" if one.slower > NEAR else ""
        told += f": {one.best}; found {one.found}" if told else ""
        print(
            f"{seed:>4} {one.plans:>6} {one.best_s:10.3e} {one.slower:8.2%} {one.bound_s / one.best_s:7.1%}  {one.fleet}{told}",
            flush=True,
        )
    near = sum(one.slower <= NEAR for one in verdicts)
    print(
        f"{len(verdicts)} fleets: {sum(one.is_wrong for one in verdicts)} bounds above the fastest plan; {near} plans within "
        f"{NEAR:.1%} of it or faster, the slowest {max(one.slower for one in verdicts):.1%}"
    )


if __name__ == "__main__":
    main()
