"""Run plans with torch: on this machine, in the lab, or as one rank of a launch; compare measured with simulated times."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holmes_sim import measurement
from holmes_sim.lab.load import ENOUGH_FREE, Load, Sampler
from holmes_sim.measurement import MeasuredStep
from holmes_sim.torch_backend.host_memory import check_memory
from holmes_sim.torch_backend.run_options import COMPUTE, DEVICES, RunOptions
from holmes_sim.torch_backend.supported import check
from sim.engine import engine, timeline
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.hardware.cluster import Fleet, Nic
from sim.hardware.device_spec import DeviceSpec
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Seconds

if TYPE_CHECKING:
    from holmes_sim.lab import Lab
    from holmes_sim.lab.traffic import LabPlan
    from holmes_sim.torch_backend.local import Local, ProcessChange

FORMAT = "holmes-sim/run/1"
TRIES = 2
"""How often the default scale of the lab is doubled at most (a guess)."""
HELPED = 0.8
"""Share of the former load below which a doubled scale has helped (a guess: it halves the rates of the lab)."""
RANK_VARIABLE = "RANK"
"""Environment variable that torchrun sets for each rank."""


def needs_torch() -> None:
    """Raise HolmesError if torch is not installed."""
    if find_spec("torch") is None:
        raise HolmesError("torch is not installed; install it with: pip install 'holmes-sim[torch]'")


def is_launched() -> bool:
    """Whether torchrun started this process as a rank."""
    return RANK_VARIABLE in os.environ


def run_here(plan: Plan | PipelinesPlan, options: RunOptions) -> MeasuredStep:
    """Run all ranks of a plan on this machine, and compare the measured step with the simulation. Raises HolmesError.

    If the plan uses several nodes, the ranks compute on CPUs, because devices of different nodes have the same index."""
    check_options(options)
    check(plan)
    from holmes_sim.torch_backend import local

    if plan.nodes > 1:
        options = replace(options, device="cpu")
    check_memory(plan.pipelines if isinstance(plan, PipelinesPlan) else (plan,), options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.output or Path(folder) / "timeline.json")
        local.run(plan, replace(options, output=str(path.resolve())))
        return _compared(plan, path, options.output or "run")


Compared = TypeVar("Compared")
Slowed = TypeVar("Slowed", Plan, PipelinesPlan, Plan | PipelinesPlan)


@dataclass(frozen=True, slots=True)
class InLab(Generic[Compared]):
    """A comparison measured in the lab for a plan of any kind, how busy the cores were, and notes on where the lab differs from
    the assumptions of the simulator."""

    compared: Compared
    notes: tuple[str, ...]
    load: Load

    def facts(self, compared: dict[str, Any]) -> dict[str, Any]:
        """The comparison as plain data, with the notes and the load of the cores."""
        load = {"busy": self.load.busy, "stolen": self.load.stolen, "ranks": self.load.ranks, "valid": self.load.is_valid}
        return compared | {"notes": list(self.notes), "cores": load}


def run_in_lab(plan: Plan | PipelinesPlan, options: RunOptions) -> InLab[MeasuredStep]:
    """Run a plan in the lab, `options.scale` times slower than its nodes.

    Scale 0: the smallest one at which the cores carry the rates of all NICs and the traffic of a step takes a tenth of their
    free time at most, by what a CPU second of this machine carries, which is measured first (`holmes_sim.lab.capacity`). It is
    doubled, up to `TRIES` times, while they are busy for more than half of the time; not where that does not help, because
    other programs use the cores. Real compute is not slowed down: then only the links are, and the simulation has links slowed
    down by the scale.
    Raises HolmesError.
    """
    check_options(options, in_lab=True)
    check(plan)
    return at_scale(lambda scale: _in_lab(plan, options, scale), options, plan, lambda: engine.simulate(plan).step_s)


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def at_scale(
    measure: Callable[[float], InLab[Compared]], options: RunOptions, plan: LabPlan, step: Callable[[], Seconds]
) -> InLab[Compared]:
    """A measurement in the lab at `options.scale`; with scale 0 at the one that `run_in_lab` names, for a step of a plan that
    takes `step()` seconds, with a note on what the machine carries. Raises HolmesError, also where its memory is too small."""
    from holmes_sim import lab
    from holmes_sim.lab import capacity

    smallest = lab.smallest_scale(plan, cores())
    lab.wire(plan, options.scale or smallest)  # what is too large for a lab is refused before anything is measured
    check_memory(_parts(plan), replace(options, device="cpu"))
    if options.scale or options.compute != "paced":
        return measure(options.scale or smallest)
    carried = capacity.measure()
    scale = capacity.scale_for(plan, cores(), carried, step())
    answer = measure(scale)
    for _ in range(TRIES):
        if answer.load.busy <= ENOUGH_FREE:
            break
        before, scale = answer, 2 * scale
        answer = measure(scale)
        if answer.load.busy > HELPED * before.load.busy:
            break
    return replace(answer, notes=(*answer.notes, str(carried)))


def _in_lab(plan: Plan | PipelinesPlan, options: RunOptions, scale: float) -> InLab[MeasuredStep]:
    """Run a plan in the lab at a scale."""
    from holmes_sim import lab

    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.output or Path(folder) / "timeline.json")
        given = replace(options, output=str(path))
        machines, sampler = launch_in_lab(plan, given, scale, lambda here, *launch: here.run(plan, *launch))
        slower = scale if options.compute != "paced" else 1.0
        expected = slowed(lab.as_wired(plan, machines.has_latency), slower)
        compared = _compared(plan, path, options.output or "lab", expected)
        return InLab(compared, lab.notes(plan, machines.wiring), with_ranks(sampler, compared.measured))


def with_ranks(sampler: Sampler, measured: Timeline) -> Load:
    """The load while the steps of a timeline ran, with the share of all cores that its ranks used in the median step."""
    load = sampler.over(sum(measured.steps_s))
    return replace(load, ranks=sum(measured.cpu_s) / (cores() * measured.step_s)) if measured.cpu_s else load


def launch_in_lab(
    plan: LabPlan, options: RunOptions, scale: float, launch: Callable[[Local, RunOptions, ProcessChange], None]
) -> tuple[Lab, Sampler]:
    """(the lab, the load of its cores) after a launch in its namespaces, `scale` times slower than the nodes of a plan."""
    from holmes_sim import lab
    from holmes_sim.torch_backend import local
    from holmes_sim.torch_backend.fork_server import RankProcess

    with lab.Lab(plan, scale) as machines:

        def in_namespace(process: RankProcess, rank: int) -> RankProcess:
            namespace, environment = machines.namespace_of(rank)
            return replace(process, namespace=namespace, environment=process.environment | environment)

        time_scale = scale if options.compute == "paced" else 1.0
        with local.Local(machines.inside) as here, Sampler() as sampler:
            launch(here, replace(options, scale=time_scale, device="cpu"), in_namespace)
    return machines, sampler


def _parts(plan: LabPlan) -> tuple[Plan, ...]:
    """The plans whose ranks a plan has; none of one with two sets of ranks, whose memory is not estimated."""
    if isinstance(plan, Plan):
        return (plan,)
    return plan.pipelines if isinstance(plan, PipelinesPlan) else plan.islands if isinstance(plan, IslandsPlan) else ()


def slowed(plan: Slowed, scale: float) -> Slowed:
    """The plan with the bandwidths of NICs and trunks divided, and their latencies multiplied, by `scale`."""
    if isinstance(plan, PipelinesPlan):
        return replace(plan, pipelines=tuple(slowed(pipeline, scale) for pipeline in plan.pipelines))
    return replace(plan, topology=replace(plan.topology, fleet=slowed_fleet(plan.fleet, scale)))


def slowed_fleet(fleet: Fleet, scale: float) -> Fleet:
    """The machines with the bandwidths of NICs and trunks divided, and their latencies multiplied, by `scale`."""
    clusters = tuple(
        replace(cluster, node=replace(cluster.node, nics=tuple(_slow_nic(nic, scale) for nic in cluster.node.nics)))
        for cluster in fleet.clusters
    )
    trunks = tuple(replace(t, bandwidth=t.bandwidth / scale, latency=t.latency * scale) for t in fleet.trunks)
    return replace(fleet, clusters=clusters, trunks=trunks)


def _slow_nic(nic: Nic, scale: float) -> Nic:
    return replace(nic, bandwidth=nic.bandwidth / scale, spec=replace(nic.spec, latency=nic.spec.latency * scale))


def as_rank(plan: Plan | PipelinesPlan, options: RunOptions) -> MeasuredStep | None:
    """Run this process as one rank of a launch. Rank 0 returns the comparison, other ranks None.

    Raises HolmesError, SystemExit if any rank fails.
    """
    check_options(options)
    check(plan)
    from holmes_sim.torch_backend import rank

    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.output or Path(folder) / "timeline.json")
        measured = rank.run(plan, replace(options, output=str(path.resolve())))
        return None if measured is None else _compared(plan, path, options.output or "run")


def check_options(options: RunOptions, in_lab: bool = False) -> None:
    """Raise HolmesError where torch is missing, or where options are unknown or contradict each other."""
    needs_torch()
    if in_lab and sys.platform != "linux":
        raise HolmesError("the lab needs Linux, because it uses network namespaces")
    if options.compute not in COMPUTE:
        raise HolmesError(f"--compute {options.compute!r} is unknown; known: {', '.join(COMPUTE)}")
    if options.device not in DEVICES:
        raise HolmesError(f"--device {options.device!r} is unknown; known: {', '.join(DEVICES)}")
    if not in_lab and options.scale != 1 and options.compute != "paced":
        raise HolmesError(f"--scale {options.scale:g}: real compute cannot be slowed down; add --compute paced")


def _compared(plan: Plan | PipelinesPlan, path: Path, name: str, expected: Plan | PipelinesPlan | None = None) -> MeasuredStep:
    """Compare the timeline at `path` with the simulation of `expected`, or of the plan if that is None."""
    measured = timeline.from_json(path.read_text(encoding="utf-8"), str(path))
    return measurement.measured_step(plan, engine.simulate(expected or plan), measured, name)


def is_comparable(computed_on: Iterable[str], specs: Iterable[DeviceSpec]) -> bool:
    """Whether measured seconds say something about their prediction: not where CPUs computed in place of planned devices
    (`specs`) without a measured profile."""
    return "CPU" not in computed_on or any(spec.profile is not None for spec in specs)


def facts(compared: MeasuredStep) -> dict[str, Any]:
    """The comparison as plain data (format holmes-sim/run/1), as `holmes-sim run --json` and `lab --json` print it."""
    return {
        "format": FORMAT,
        "predicted": {"step_s": compared.step.simulated, "plan_step_s": compared.step.predicted},
        "measured": {"step_s": compared.step.measured, "spread": compared.spread, "steps_s": list(compared.measured.steps_s)},
        "error": compared.step.error,
        "scale": compared.measured.scale,
        "compute": compared.measured.compute,
        "computed_on": list(compared.measured.computed_on),
        "seconds": {line.name: line.facts() for line in compared.seconds},
        "memory": [line.facts() for line in compared.memory],
    }
