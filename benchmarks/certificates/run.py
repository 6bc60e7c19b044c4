"""Checks many seeds on all cores: `python -m benchmarks certificates [--fleets N] [--first SEED] [--results FILE]`.

A seed takes about three seconds of one core, 1,000 seeds 50 minutes. With a file of results, each verdict is appended as a
line of JSON, and seeds in the file are not checked again.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from benchmarks.certificates.judge import KINDS, NEAR, Verdict, surveyed

FLEETS = 1_000


def show(options: Sequence[str] = ()) -> None:
    """Check seeds, and print their faults and the properties that they cover."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks certificates")
    parser.add_argument("--fleets", type=int, default=FLEETS, help="number of seeds to check")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--results", type=Path, help="file from which verdicts are read and to which they are appended")
    arguments = parser.parse_args(options)
    for line in table(verdicts(range(arguments.first, arguments.first + arguments.fleets), arguments.results)):
        print(line)


def verdicts(seeds: range, results: Path | None = None) -> list[Verdict]:
    """The verdicts of seeds, in order; verdicts in the file of results are read from it."""
    known = {one.seed: one for one in _read(results)}
    left = [seed for seed in seeds if seed not in known]
    jobs = Parallel(n_jobs=-1, return_as="generator_unordered")
    for done, verdict in enumerate(jobs(delayed(surveyed)(seed) for seed in left), 1):
        known[verdict.seed] = verdict
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")
        wrong = f", seed {verdict.seed}: {', '.join(verdict.faults)}" if verdict.faults else ""
        print(f"{done} of {len(left)} fleets{wrong}", file=sys.stderr, flush=True)
    return [known[seed] for seed in seeds]


def table(found: list[Verdict]) -> Iterator[str]:
    """Lines of a table: numbers of faults, distances from the best plan, seconds, and properties that the fleets cover."""
    faults = Counter(fault for verdict in found for fault in verdict.faults)
    yield f"{'fleets':<44}{len(found):>8,}"
    for kind, text in KINDS.items():
        yield f"{text:<44}{faults[kind]:>8,}"
    both = [verdict for verdict in found if math.isfinite(verdict.step_s) and math.isfinite(verdict.best_s)]
    longer = [verdict.step_s / verdict.best_s - 1 for verdict in both]
    near = sum(share <= NEAR for share in longer)
    yield f"{f'certified within {NEAR:.1%} of the best':<44}{near:>8,}{near / max(len(both), 1):>8.1%}"
    yield f"{'certified above the best, at most':<44}{max(longer, default=0.0):>8.2%}"
    above = [verdict.bound_s / verdict.best_s - 1 for verdict in both]
    yield f"{'bound above the best, at most':<44}{max(above, default=0.0):>8.2%}"
    yield f"{'pipelines of a fleet, mean':<44}{statistics.fmean(verdict.pipelines for verdict in found):>8,.0f}"
    for text, seconds in (("planning", [v.planning_s for v in found]), ("brute force", [v.brute_s for v in found])):
        numbers = f"{statistics.median(seconds):.2f} s, {statistics.fmean(seconds):.2f} s, {max(seconds):.2f} s"
        yield f"{f'{text}: median, mean, most':<44}{numbers:>24}"
    yield "\nfleets with this property"
    for feature, number in sorted(Counter(feature for verdict in found for feature in verdict.features).items()):
        yield f"  {feature:<42}{number:>8,}"
    yield from _wrong(found)


def _wrong(found: list[Verdict]) -> Iterator[str]:
    """Lines for every seed with a fault."""
    for verdict in found:
        if verdict.faults:
            yield f"\nseed {verdict.seed}: {', '.join(verdict.faults)} {verdict.wishes}"
            yield f"  best {verdict.best_s:.6g} s: {verdict.best_plan}"
            yield f"  certified {verdict.step_s:.6g} s, bound {verdict.bound_s:.6g} s: {verdict.certified_plan}"


def _read(results: Path | None) -> Iterator[Verdict]:
    if results is None or not results.exists():
        return
    for line in results.read_text(encoding="utf-8").splitlines():
        facts: dict[str, Any] = json.loads(line)
        yield Verdict(**facts | {"features": tuple(facts["features"])})
