"""What microbatch sizes of their own give stages of equal dp: `python -m benchmarks microbatches [options] [TOPOLOGY ...]`.

Each shipped topology of at most `MOST` devices, or each named one, is planned for no target, under 1F1B and under any schedule,
with a proof, within `--time-limit` seconds each. From the plan under 1F1B sizes are then changed as long as the simulated step
falls: of one run of neighbouring stages on equal clusters, of all stages on one cluster, or of an end stage alone, by the
factors `FACTORS`. Layers and devices stay. Prints a Markdown table of the plans with a pipeline; half an hour without other
work."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from holmes_sim import commands, requirements, targets
from planner import api
from planner.placement.simulation import fits, step
from planner.request import Wishes
from sim.engine.engine import simulate_up_to
from sim.engine.timeline import Timeline
from sim.errors import HolmesError, Infeasible
from sim.field_changes import changed
from sim.formats.edits import edited
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.units import Seconds

MOST = 640
"""Devices of the largest topology that is planned without being named."""
FACTORS = (Fraction(1, 2), Fraction(2), Fraction(1, 3), Fraction(3), Fraction(1, 4), Fraction(4))
"""Factors by which sizes are changed."""
TRIES = 120
"""Most plans that are simulated from one plan; more take longer."""
HEAD = (
    "| topology | stages | microbatch | 1F1B | sizes | with these | less time | any schedule |",
    "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
)


def with_sizes(plan: Plan, sizes: Sequence[int]) -> Plan | None:
    """The plan with so many samples in a microbatch of each pipeline rank; None where it does not exist or fit memory."""
    config, largest = plan.config, max(sizes)
    samples = [number * config.microbatch_size for number in config.num_microbatches]
    if any(one % largest for one in samples):
        return None
    unlike = tuple(sizes) if len(set(sizes)) > 1 else ()
    numbers = tuple(one // largest for one in samples)
    try:
        own = changed(config, microbatch_size=largest, num_microbatches=numbers, stage_microbatch_size=unlike)
    except HolmesError:
        return None
    found = changed(plan, config=own, prediction=None, certificate=None)
    return found if fits(found) else None


def improved(plan: Plan) -> tuple[Seconds, tuple[int, ...]]:
    """(seconds of a step, size of each pipeline rank) of the fastest plan found; those of the plan itself where it is that."""
    best, sizes, left = step(plan), tuple(map(plan.config.size_of, range(plan.config.pp))), TRIES
    while True:
        before = best
        for some, factor in itertools.product(list(_groups(plan)), FACTORS):
            scaled = [size * factor if rank in some else Fraction(size) for rank, size in enumerate(sizes)]
            candidate = with_sizes(plan, list(map(int, scaled))) if all(one.denominator == 1 for one in scaled) else None
            if candidate is None or not left:
                continue
            left -= 1
            timeline = simulate_up_to(candidate, best)
            if isinstance(timeline, Timeline) and timeline.step_s < best:
                best, sizes = timeline.step_s, tuple(map(int, scaled))
        if best == before:
            return best, sizes


def _groups(plan: Plan) -> Iterator[frozenset[int]]:
    """The pipeline ranks whose sizes change together."""
    config, ranks = plan.config, range(plan.config.pp)
    ends = [(config.first_rank(rank), config.first_rank(rank + 1)) for rank in ranks]
    on = [frozenset(device.cluster for device in plan.placement[first:past]) for first, past in ends]
    runs = (frozenset(some) for _, some in itertools.groupby(ranks, key=lambda rank: on[rank]))
    clusters = (frozenset(rank for rank in ranks if on[rank] == one) for one in set(on))
    alone = (frozenset((rank,)) for rank in (0, config.pp - 1))
    yield from sorted({one for one in (*runs, *clusters, *alone) if len(one) < config.pp}, key=sorted)


def planned(where: Topology, schedule: str | None, seconds: Seconds) -> Plan | None:
    """The plan of a topology for no target; None where there is none."""
    wishes = Wishes(schedule=schedule)
    request = requirements.request(where, commands.workload_of(where), wishes, seconds, targets.NONE)
    try:
        return api.plan(request)
    except Infeasible:
        return None


def row(name: str, where: Topology, seconds: Seconds) -> str:
    """A row of the table; empty where the plan under 1F1B has no pipeline, or stages of unlike dp."""
    plan = planned(where, "1f1b", seconds)
    if plan is None or plan.config.pp == 1 or plan.config.stage_dp:
        return ""
    best, sizes = improved(plan)
    every = planned(where, None, seconds)
    listed = ", ".join(map(str, sizes)) if len(set(sizes)) > 1 else ""
    saved = f"{1 - best / step(plan):.1%}" if best < step(plan) else "0"
    times = f"{step(plan):.4g} s", listed, f"{best:.4g} s", saved, f"{step(every):.4g} s" if every is not None else ""
    return f"| `{name}` | {plan.config.pp} | {plan.config.microbatch_size} | {' | '.join(times)} |"


def show(arguments: Sequence[str]) -> None:
    """Print the table of some topologies, or of all shipped ones that are not too large."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks microbatches", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("topologies", nargs="*", metavar="TOPOLOGY")
    parser.add_argument("--model", help="in place of each topology's model")
    parser.add_argument("--time-limit", type=float, default=15.0, metavar="SECONDS", help="of each plan (15)")
    given = parser.parse_args(arguments)
    print(*HEAD, sep="\n")
    for name, where in _chosen(given.topologies):
        where = edited(where, {"workload.model": given.model}) if given.model else where
        if line := row(name, where, given.time_limit):
            print(line, flush=True)


def _chosen(names: Iterable[str]) -> Iterator[tuple[str, Topology]]:
    for name in names or commands.shipped_topologies():
        where = commands.load(name)
        if names or where.fleet.devices <= MOST:
            yield name, where
