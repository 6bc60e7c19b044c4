"""Read a plan of unlike pipelines, move microbatches from one to the other, and print the fastest simulated step."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

import holmes_sim as hs
from sim.formats import pipelinesfile

PLAN = Path(__file__).with_suffix(".yaml")


def main(path: str = str(PLAN), batch: int = 64) -> None:
    """Print the step of each of some divisions of a batch between the two pipelines of a file, and the fastest."""
    document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    steps: dict[tuple[int, int], float] = {}
    for first in range(22, 29):
        for pipeline, number in zip(document["pipelines"], (first, batch - first), strict=True):
            pipeline["num_microbatches"] = [number]
        plan = pipelinesfile.from_text(path, yaml.safe_dump(document))
        steps[first, batch - first] = hs.simulate_pipelines(plan).timeline.step_s
        print(f"{first} and {batch - first} microbatches: {steps[first, batch - first]:.2f} s")
    best = min(steps, key=lambda numbers: steps[numbers])
    print(f"Fastest: {best[0]} and {best[1]} microbatches, {steps[best]:.2f} s")


if __name__ == "__main__":
    main(*sys.argv[1:2])
