"""`python -m benchmarks [engine] [scale] [evaluator]`: what was measured, as tables; all of it takes some two minutes.

`python -m benchmarks peers` judges plans by the peers' own models, some four minutes. `python -m benchmarks strategies` plans
every shipped topology by every strategy, a minute or more for each of them. `python -m benchmarks planning` plans fleets of up
to a hundred thousand devices. `python -m benchmarks lab` measures the lab's links against the model, a minute, and `python -m
benchmarks scenarios` plays plans there, fourteen minutes; both need torch, and root or user namespaces. `python -m benchmarks
certificates` judges certified plans and their bounds by brute force, 50 minutes of one core (`benchmarks.certificates.run` has
its options). `python -m benchmarks checkouts OLD NEW` compares what two checkouts answer (`benchmarks.checkouts`). None of
these is among what runs unasked.
"""

from __future__ import annotations

import os
import sys

from benchmarks import checkouts, engine, evaluator, lab, planning, scale, scenarios, strategies
from benchmarks.certificates import run
from benchmarks.peers import tables
from holmes_sim.commands import shipped_topologies
from planner.strategies import names


def show_engine() -> None:
    """Events a second beside raw SimPy."""
    print(f"{'engine':<24}{'events':>10}{'seconds':>10}{'events/s':>12}{'of raw':>8}")
    for row in engine.measure():
        print(f"{row.name:<24}{row.events:>10,}{row.seconds:>10.3f}{row.rate:>12,.0f}{row.share:>8.2f}")


def show_scale() -> None:
    """Seconds and memory by devices, and how they grow from the smallest size on."""
    print(f"{'simulate':<10}{'devices':>9}{'classes':>9}{'seconds':>9}{'growth':>8}{'process':>10}{'memory':>10}{'step':>9}")
    first: dict[str, float] = {}
    for row in scale.measure():
        growth = row.seconds / first.setdefault(row.fleet, row.seconds)
        numbers = f"{row.seconds:>7.2f} s{growth:>8.2f}{row.process_seconds:>8.1f} s{row.peak_bytes / 2**20:>6.0f} MiB"
        print(f"{row.fleet:<10}{row.devices:>9,}{row.classes:>9}{numbers}{row.step_s:>7.2f} s")


def show_evaluator() -> None:
    """Candidates a second."""
    print(f"{'evaluator, candidates/s':<52}{'recurrence':>12}{'with costs':>12}")
    for name, rates in evaluator.measure().items():
        print(f"{name:<52}{rates['recurrence']:>12,.0f}{rates['all']:>12,.0f}")


def show_strategies() -> None:
    """A Markdown table of all shipped topologies and all strategies, row by row as they come."""
    columns = names()
    for line in strategies.table(columns, strategies.measure(shipped_topologies(), columns)):
        print(line, flush=True)


def show_planning() -> None:
    """Seconds, gap and memory by fleet."""
    print(f"{'plan: devices':<14}{'kinds':>6}{'seconds':>10}{'of cores':>11}{'gap':>9}{'memory':>10}{'step':>10}")
    for row in planning.measure():
        times = f"{row.seconds:>8.1f} s{row.cpu_seconds:>9.1f} s"
        print(f"{row.devices:<14,}{row.kinds:>6}{times}{row.gap:>9.2%}{row.peak_bytes / 2**20:>6.0f} MiB{row.step_s:>8.2f} s")


def show_lab() -> None:
    """Seconds of gloo in the lab beside the model's."""
    print(f"{'lab, 1/' + format(lab.SCALE, 'g') + ' of the rates':<32}{'modelled':>10}{'measured':>10}{'more':>8}")
    for row in lab.measure():
        print(f"{row.name:<32}{row.modelled:>8.3f} s{row.measured:>8.3f} s{row.measured / row.modelled - 1:>8.1%}")


def show_scenarios() -> None:
    """A Markdown table of plans in the lab, predicted against measured, row by row as they come."""
    for line in scenarios.table(scenarios.measure()):
        print(line, flush=True)


UNASKED = {"engine": show_engine, "scale": show_scale, "evaluator": show_evaluator}
PARTS = UNASKED | {
    "peers": tables.show, "planning": show_planning, "strategies": show_strategies,
    "lab": show_lab, "scenarios": show_scenarios,
}  # fmt: skip
WITH_OPTIONS = {"certificates": run.show, "checkouts": checkouts.show}


def main(asked: list[str]) -> None:
    """Print the parts that were asked for, or all that are quick."""
    if asked and asked[0] in WITH_OPTIONS:
        WITH_OPTIONS[asked[0]](asked[1:])
        return
    unknown = [name for name in asked if name not in PARTS]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; known: {', '.join(PARTS | WITH_OPTIONS)}")
    for name in asked or UNASKED:
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        PARTS[name]()
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
