"""Plans that run: on this machine, or as one rank of a launch. What was predicted and measured, side by side."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holmes_sim import measurement
from holmes_sim.measurement import Held
from holmes_sim.torch_backend.asked import COMPUTE, Asked
from holmes_sim.torch_backend.suited import check
from sim import engine, timeline
from sim.errors import HolmesError
from sim.plan import Plan

LAUNCHED = "RANK"
"""Set in the environment of a rank that torchrun has started."""


def needs_torch() -> None:
    """Raise HolmesError where torch is not installed."""
    if find_spec("torch") is None:
        raise HolmesError("torch is not installed, without which nothing runs: pip install 'holmes-sim[torch]'")


def is_launched() -> bool:
    """Whether this process is one rank of a launch."""
    return LAUNCHED in os.environ


def here(plan: Plan, asked: Asked) -> Held:
    """Run all ranks of a plan on this machine, and hold what was measured against the simulation. Raises HolmesError."""
    _check(plan, asked)
    from holmes_sim.torch_backend import local

    with tempfile.TemporaryDirectory() as folder:
        path = Path(asked.output or Path(folder) / "timeline.json")
        local.run(plan, replace(asked, output=str(path.resolve())))
        return _held(plan, path)


def as_rank(plan: Plan, asked: Asked) -> Held | None:
    """Be one rank of a launch; rank 0 has what was measured. Raises HolmesError, SystemExit where any rank fails."""
    _check(plan, asked)
    from holmes_sim.torch_backend import rank

    with tempfile.TemporaryDirectory() as folder:
        path = Path(asked.output or Path(folder) / "timeline.json")
        measured = rank.run(plan, replace(asked, output=str(path.resolve())))
        return None if measured is None else _held(plan, path)


def _check(plan: Plan, asked: Asked) -> None:
    needs_torch()
    if asked.compute not in COMPUTE:
        raise HolmesError(f"--compute {asked.compute!r} is unknown; known: {', '.join(COMPUTE)}")
    if asked.scale != 1 and asked.compute != "paced":
        raise HolmesError(f"--scale {asked.scale:g}: only seconds that are waited for can be stretched; add --compute paced")
    check(plan)


def _held(plan: Plan, path: Path) -> Held:
    measured = timeline.from_json(path.read_text(encoding="utf-8"), str(path))
    return measurement.hold(plan, engine.simulate(plan), measured, str(path))


def facts(held: Held) -> dict[str, Any]:
    """What `run` and `lab` print as JSON."""
    return {
        "predicted": {"step_s": held.step.simulated, "promised_s": held.step.promised},
        "measured": {"step_s": held.step.measured, "spread": held.spread, "steps_s": list(held.measured.steps_s)},
        "error": held.step.error,
        "scale": held.measured.scale,
        "compute": held.measured.compute,
        "seconds": {line.name: line.facts() for line in held.seconds},
    }
