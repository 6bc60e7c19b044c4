"""Simulate a plan with stragglers: the distribution of the step time if each device is slow with a given probability."""

from __future__ import annotations

import sys

import holmes_sim as hs


def main(topology: str = "lab/lab-hybrid-nics", stragglers: str = "5%:1.5", seeds: int = 50) -> None:
    """Plan the topology, then simulate one step for each seed; `stragglers` is PROBABILITY:SLOWDOWN."""
    plan = hs.plan(hs.load(topology), time_limit=3.0).plan
    steps = hs.trouble(plan, stragglers=stragglers, seeds=range(seeds))
    print(steps)
    for name, seconds in steps.summary().items():
        print(f"{name:>10}: {seconds:.4f} s")
    slow = steps.drawn(steps.slowest).slow
    print(f"slowest: seed {steps.slowest}, {len(slow)} slow devices")


if __name__ == "__main__":
    main(*sys.argv[1:2])
