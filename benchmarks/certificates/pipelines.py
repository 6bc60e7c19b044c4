"""Judges plans of unlike pipelines and their bound by brute force: `python -m benchmarks.certificates.pipelines`.

Fleets are two clusters of one or two nodes with one or two devices of types that users own, joined by Ethernet, with a small
model, of which some train adapters only. Every plan of unlike pipelines on whole nodes is simulated that may be the fastest:
all sets of nodes and orders of them, tp, cp, pp and dp, layers, microbatch sizes, divisions of the batch, the schedules of the
search, and weights gathered at both times (`overlap_param_gather`). With `--experts`, models are small mixtures, and every ep
and etp is tried as well."""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

from benchmarks.certificates import tiny_fleets
from benchmarks.certificates.brute import STRICT
from benchmarks.owned_fleets import NODES
from planner.bounds.pipeline_modes import configuration, expert_degrees
from planner.bounds.unlike_pipelines import FEWEST, least_step
from planner.costs.context import PlanningContext
from planner.pipelines.assembly import shares, step_of
from planner.pipelines.part_bounds import PartBounds
from planner.pipelines.parts import parts
from planner.pipelines.search import SCHEDULES, best
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.time_limit import TimeLimit
from sim.engine.abandonment import Abandoned
from sim.engine.engine import simulate, simulate_up_to
from sim.errors import HolmesError
from sim.hardware.cluster import Device
from sim.plan.expert_parallelism import mesh_rows
from sim.plan.groups import groups_of
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan, Stage
from sim.results.report import predict
from sim.units import Seconds

LAYERS, BATCH = 3, 8
SIZES = (1, 2, 4)
"""Microbatch sizes; a pipeline has at most seven of eight samples."""
DEGREES = ((1, 1), (2, 1), (1, 2))
"""tp and cp inside a node of one or two devices."""
RATES = (10, 25, 100)
"""Gbit/s of the Ethernet of nodes and between them."""
HIDDEN = (512, 1024, 2048)
SEQUENCES = (256, 1024, 2048)
FEW, LONG = (2, 3, 4), (4096, 8192, 16384)
"""Samples of a batch, and tokens of a sequence, where sequences are few and long."""
NEAR = 0.005
"""How much slower a found plan may be: the gap at which the search for alike replicas stops (`Budgets.target_gap`)."""
Nodes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one seed: seconds of the bound, of the fastest plan, and of the plan that is found."""

    seed: int
    fleet: str
    bound_s: Seconds
    best_s: Seconds
    found_s: Seconds

    @property
    def is_wrong(self) -> bool:
        """Whether the bound is above the fastest plan."""
        return self.bound_s > self.best_s * (1 + STRICT)

    @property
    def slower(self) -> float:
        """How much slower the found plan is than the fastest."""
        return self.found_s / self.best_s - 1


def owned(seed: int, long: bool = False, experts: bool = False) -> Request:
    """The request of a seed: two kinds of nodes with few of their devices, and a small model. long: with few long sequences, on
    two nodes of two devices; experts: a mixture and few sequences, on such nodes."""
    rng = random.Random(f"pipelines {seed}")
    types, nodes = rng.sample([*NODES], 2), rng.choice([(1, 1), (1, 1), (2, 1)])
    clusters = {}
    for index, (name, number) in enumerate(zip(types, nodes, strict=True)):
        rate, number = rng.choice(RATES), 1 if long or experts else number
        count = 2 if long or experts else rng.choice([1, 2]) if number == 1 else 1
        clusters[f"c{index}"] = tiny_fleets.cluster(name, number, count, rate)
    links = [tiny_fleets.link(clusters, rng.choice(RATES))]
    model = tiny_fleets.model(LAYERS, rng.choice(HIDDEN), False, experts)
    batch, seq_len = rng.choice(FEW) if long or experts else BATCH, rng.choice(LONG if long else SEQUENCES)
    workload = {
        "model": model, "global_batch_size": batch, "seq_len": seq_len, "precision": "fp16",
        **({"adapter": {"r": 16}} if rng.random() < 1 / 3 and not experts else {}),
    }  # fmt: skip
    return tiny_fleets.request(f"pipelines-{seed}", clusters, links, workload, Wishes())


def judge(asked: Request, seed: int, tried: tuple[str, ...] = ("1f1b", *SCHEDULES)) -> Verdict:
    """The bound, the fastest plan under the schedules that are tried, and the found plan of a request.

    Raises AssertionError where a bound on the parts excludes the fastest plan."""
    least = step_of(fastest(asked, tried))
    excluded = PartBounds(asked).rules_out(parts(asked), least * (1 + STRICT), TimeLimit(math.inf))
    assert not excluded, excluded
    found = best(asked, 2 * least)
    clusters = asked.topology.fleet.clusters
    fleet = ", ".join(f"{one.nodes} x {one.node.count} {one.node.device.name}" for one in clusters)
    if asked.workload.adapter is not None:
        fleet += "; adapters"
    bound = least_step(PlanningContext(asked))
    return Verdict(seed, fleet, bound, least, found.step_s if found is not None else math.inf)


def sets(nodes: Nodes) -> Iterator[tuple[Nodes, ...]]:
    """All ways to divide nodes into sets, with nodes left out: the first set of each way is that of the nodes that are not
    used."""
    if not nodes:
        yield ((),)
        return
    for some in sets(nodes[1:]):
        for index in range(len(some)):
            yield (*some[:index], (nodes[0], *some[index]), *some[index + 1 :])
        yield (*some, (nodes[0],))


def orders(nodes: Nodes) -> list[Nodes]:
    """All orders of nodes but for those of a cluster, which are alike."""
    return list({tuple(name for name, _ in order): order for order in itertools.permutations(nodes)}.values())


def plans(asked: Request, nodes: Nodes, **common: Any) -> Iterator[Plan]:
    """All plans on all devices of some nodes, in their order, with one microbatch for each replica; `common`: settings of their
    configurations."""
    fleet = asked.topology.fleet
    devices = [Device(name, node, index) for name, node in nodes for index in range(fleet.cluster(name).node.count)]
    every = [(tp, cp, *one) for tp, cp in DEGREES for one in ((1, None), *expert_degrees(asked, tp))]
    for (tp, cp, ep, etp), pp in itertools.product(every, range(1, min(len(devices), LAYERS) + 1)):
        if len(devices) % (tp * cp * pp) or any(fleet.cluster(name).node.count % (tp * cp) for name, _ in nodes):
            continue
        dp = len(devices) // (tp * cp * pp)
        if dp * cp % mesh_rows(tp, ep, etp):
            continue
        own = replace(configuration(asked, tp, cp, 1, ep, etp), **common)
        config = replace(own, pp=pp, dp=dp, num_microbatches=(1,) * dp, zero_stage=1, sequence_parallel=True)
        workload = replace(asked.workload, global_batch_size=dp)
        for cuts in itertools.combinations(range(1, LAYERS), pp - 1):
            stages = tuple(Stage(*pair) for pair in itertools.pairwise((0, *cuts, LAYERS)))
            placement = tuple(devices)
            groups = groups_of(fleet, config, placement)
            topology = replace(asked.topology, workload=workload)
            yield Plan(topology, workload, config, stages, placement, groups, MadeBy("by hand", "1"))


def with_microbatches(plan: Plan, microbatches: int, size: int) -> Plan | None:
    """A plan with so many microbatches of all replicas together; None where some replica would have none, or too few for its
    schedule."""
    dp = plan.config.dp
    if microbatches < dp:
        return None
    workload = replace(plan.workload, global_batch_size=microbatches * size)
    with suppress(HolmesError):
        config = replace(plan.config, num_microbatches=shares(plan.config, microbatches), microbatch_size=size)
        return replace(plan, config=config, workload=workload, topology=replace(plan.topology, workload=workload))
    return None


def entries(asked: Request, nodes: Nodes, below: Seconds, **common: Any) -> dict[int, list[tuple[Seconds, Plan]]]:
    """All plans on some nodes, in all orders, that fit, with the seconds of each by itself, by samples; without those that are
    proved to take longer than `below`."""
    found: dict[int, list[tuple[Seconds, Plan]]] = {}
    every = itertools.chain.from_iterable(plans(asked, order, **common) for order in orders(nodes))
    batch = asked.workload.global_batch_size
    for plan, number, size in itertools.product(every, range(1, batch), SIZES):
        if number * size >= batch or (entry := with_microbatches(plan, number, size)) is None or not fits(entry):
            continue
        if not isinstance(alone := simulate_up_to(entry, below), Abandoned):
            found.setdefault(number * size, []).append((alone.step_s, entry))
    return found


def fastest(asked: Request, tried: tuple[str, ...] = ("1f1b", *SCHEDULES)) -> PipelinesPlan:
    """The fastest of all plans, simulated; a plan whose slowest pipeline alone is slower is not simulated."""
    clusters = asked.topology.fleet.clusters
    nodes = tuple((cluster.name, node) for cluster in clusters for node in range(cluster.nodes))
    least, found = math.inf, None
    for schedule, overlaps in itertools.product(tried, (True, False)):
        of_set: dict[Nodes, dict[int, list[tuple[Seconds, Plan]]]] = {}
        for _, *some in sets(nodes):
            if len(some) < FEWEST:
                continue
            for one in some:
                of_set[one] = of_set.get(one) or entries(asked, one, least, schedule=schedule, overlap_param_gather=overlaps)
            of_all = _joined([of_set[one] for one in some], asked.workload.global_batch_size)
            for alone, make in sorted(of_all, key=itemgetter(0)):
                if alone >= least:
                    break
                timeline = simulate_up_to(plan := make(), least)
                if not isinstance(timeline, Abandoned) and timeline.step_s < least:
                    least, found = timeline.step_s, plan
    assert found is not None
    return found.annotated(predict(found, simulate(found)))


def _joined(
    every: list[dict[int, list[tuple[Seconds, Plan]]]], batch: int
) -> Iterator[tuple[Seconds, Callable[[], PipelinesPlan]]]:
    """Every plan that has an entry of each set and the whole batch, to be made: after the seconds of its slowest entry."""
    for samples in itertools.product(range(1, batch), repeat=len(every)):
        if sum(samples) == batch:
            for chosen in itertools.product(*(own.get(number, []) for own, number in zip(every, samples, strict=True))):
                own = [entry for _, entry in chosen]
                yield max(alone for alone, _ in chosen), partial(of_plans, own, own[0].made_by)


def main() -> None:
    """Judge some seeds, and print a line for each and their sums."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certificates.pipelines", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="number of fleets")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--long", action="store_true", help="few long sequences")
    parser.add_argument("--experts", action="store_true", help="small mixtures")
    given = parser.parse_args()
    verdicts = []
    for seed in range(given.first, given.first + given.seeds):
        one = judge(owned(seed, given.long, given.experts), seed)
        verdicts.append(one)
        wrong = "  BOUND ABOVE A PLAN" if one.is_wrong else ""
        print(f"{seed:>4} {one.best_s:10.3e} {one.slower:8.2%} {one.bound_s / one.best_s:7.1%}  {one.fleet}{wrong}", flush=True)
    near = sum(one.slower <= NEAR for one in verdicts)
    print(
        f"{len(verdicts)} fleets: {sum(one.is_wrong for one in verdicts)} bounds above the fastest plan; {near} plans within "
        f"{NEAR:.1%} of it, the slowest {max(one.slower for one in verdicts):.1%}"
    )


if __name__ == "__main__":
    main()
