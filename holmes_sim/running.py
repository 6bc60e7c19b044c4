"""Plans that run: on this machine, or as one rank of a launch. What was predicted and measured, side by side."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holmes_sim import measurement
from holmes_sim.measurement import Held
from holmes_sim.torch_backend.asked import COMPUTE, DEVICES, Asked
from holmes_sim.torch_backend.suited import check
from sim.engine import engine, timeline
from sim.errors import HolmesError
from sim.hardware.cluster import Nic
from sim.plan.plan import Plan

LAUNCHED = "RANK"
"""Set in the environment of a rank that torchrun has started."""


def needs_torch() -> None:
    """Raise HolmesError where torch is not installed."""
    if find_spec("torch") is None:
        raise HolmesError("torch is not installed, without which nothing runs: pip install 'holmes-sim[torch]'")


def is_launched() -> bool:
    """Whether this process is one rank of a launch."""
    return LAUNCHED in os.environ


def run_here(plan: Plan, asked: Asked) -> Held:
    """Run all ranks of a plan on this machine, and hold what was measured against the simulation. Raises HolmesError.

    Where the plan has several nodes, whose devices have the same numbers, they compute on the CPUs."""
    _check(plan, asked)
    from holmes_sim.torch_backend import local

    if len({(device.cluster, device.node) for device in plan.placement}) > 1:
        asked = replace(asked, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(asked.output or Path(folder) / "timeline.json")
        local.run(plan, replace(asked, output=str(path.resolve())))
        return _held(plan, path, asked.output or "run")


@dataclass(frozen=True, slots=True)
class InLab:
    """What was measured in a lab, and lines that say where the lab is not what the simulator supposes."""

    held: Held
    notes: tuple[str, ...]


def run_in_lab(plan: Plan, asked: Asked) -> InLab:
    """Run a plan in a lab, `asked.scale` times slower than its machines (0: as fast as the cores carry). Raises HolmesError.

    Real compute is not slowed: then it is the links alone that are, and the prediction is of slow links.
    """
    _check(plan, asked, in_lab=True)
    if sys.platform != "linux":
        raise HolmesError("the lab needs Linux: it is made of network namespaces")
    from holmes_sim import lab
    from holmes_sim.torch_backend import local
    from holmes_sim.torch_backend.nursery import Seat

    scale = asked.scale or lab.smallest_scale(plan, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder, lab.Lab(plan, scale) as machines:

        def stand(seat: Seat, rank: int) -> Seat:
            namespace, environment = machines.stand(rank)
            return replace(seat, namespace=namespace, environment=seat.environment | environment)

        path = Path(asked.output or Path(folder) / "timeline.json")
        time_scale = scale if asked.compute == "paced" else 1.0
        with local.Local(machines.inside) as here:
            here.run(plan, replace(asked, output=str(path), scale=time_scale, device="cpu"), stand)
        wired = lab.as_wired(plan, machines.has_latency)
        expected = wired if asked.compute == "paced" else slowed(wired, scale)
        return InLab(_held(plan, path, asked.output or "lab", expected), lab.notes(plan, machines.wiring))


def slowed(plan: Plan, scale: float) -> Plan:
    """The plan on NICs and trunks that are so many times slower."""
    fleet = plan.fleet
    clusters = tuple(
        replace(cluster, node=replace(cluster.node, nics=tuple(_slow_nic(nic, scale) for nic in cluster.node.nics)))
        for cluster in fleet.clusters
    )
    trunks = tuple(replace(t, bandwidth=t.bandwidth / scale, latency=t.latency * scale) for t in fleet.trunks)
    return replace(plan, topology=replace(plan.topology, fleet=replace(fleet, clusters=clusters, trunks=trunks)))


def _slow_nic(nic: Nic, scale: float) -> Nic:
    return replace(nic, bandwidth=nic.bandwidth / scale, spec=replace(nic.spec, latency=nic.spec.latency * scale))


def as_rank(plan: Plan, asked: Asked) -> Held | None:
    """Be one rank of a launch; rank 0 has what was measured. Raises HolmesError, SystemExit where any rank fails."""
    _check(plan, asked)
    from holmes_sim.torch_backend import rank

    with tempfile.TemporaryDirectory() as folder:
        path = Path(asked.output or Path(folder) / "timeline.json")
        measured = rank.run(plan, replace(asked, output=str(path.resolve())))
        return None if measured is None else _held(plan, path, asked.output or "run")


def _check(plan: Plan, asked: Asked, in_lab: bool = False) -> None:
    needs_torch()
    if asked.compute not in COMPUTE:
        raise HolmesError(f"--compute {asked.compute!r} is unknown; known: {', '.join(COMPUTE)}")
    if asked.device not in DEVICES:
        raise HolmesError(f"--device {asked.device!r} is unknown; known: {', '.join(DEVICES)}")
    if not in_lab and asked.scale != 1 and asked.compute != "paced":
        raise HolmesError(f"--scale {asked.scale:g}: only seconds that are waited for can be stretched; add --compute paced")
    check(plan)


def _held(plan: Plan, path: Path, name: str, expected: Plan | None = None) -> Held:
    """What lies at `path` beside the simulation of the plan, or of the one that is expected in its place."""
    measured = timeline.from_json(path.read_text(encoding="utf-8"), str(path))
    return measurement.hold(plan, engine.simulate(expected or plan), measured, name)


def facts(held: Held) -> dict[str, Any]:
    """What `run` and `lab` print as JSON."""
    return {
        "predicted": {"step_s": held.step.simulated, "promised_s": held.step.promised},
        "measured": {"step_s": held.step.measured, "spread": held.spread, "steps_s": list(held.measured.steps_s)},
        "error": held.step.error,
        "scale": held.measured.scale,
        "compute": held.measured.compute,
        "computed_on": list(held.measured.computed_on),
        "seconds": {line.name: line.facts() for line in held.seconds},
    }
