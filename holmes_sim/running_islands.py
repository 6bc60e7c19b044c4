"""Run plans of islands with torch, on this machine, in the lab, or as one rank of a launch; compare measured with simulated
outer periods."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holmes_sim.running import InLab, at_scale, check_options, launch_in_lab, slowed
from holmes_sim.torch_backend.host_memory import check_memory
from holmes_sim.torch_backend.islands.measured import MeasuredPeriods
from holmes_sim.torch_backend.islands.supported import check
from holmes_sim.torch_backend.run_options import RunOptions, node_of
from sim.islands.prediction import predict
from sim.plan.islands import IslandsPlan, IslandsPrediction
from sim.units import Seconds

FORMAT = "holmes-sim/islands-run/1"


@dataclass(frozen=True, slots=True)
class MeasuredIslands:
    """Measured outer periods of a plan of islands, beside their simulation, whose seconds are multiplied by the scale of the
    run."""

    plan: IslandsPlan
    simulated: IslandsPrediction
    measured: MeasuredPeriods

    @property
    def error(self) -> float:
        """Simulated over measured outer period, minus 1."""
        return self.times()[0][1] / self.measured.period_s - 1

    def times(self) -> tuple[tuple[str, Seconds, Seconds], ...]:
        """(what, simulated seconds, measured seconds) of the outer period, inner steps, exchanges, and waiting."""
        found, scale = self.measured, self.measured.scale
        rows = [("outer period", self.simulated.period_s, found.period_s)]
        for index, (own, other) in enumerate(zip(self.simulated.inner_step_s, found.inner_step_s, strict=True)):
            rows.append((f"inner step of island {index}", own, other))
        rows.append(("exchanges of a period", self.simulated.exchange_s, found.exchange_s))
        rows.append(("waiting and outer updates", self.simulated.exposed_s, found.exposed_s))
        return tuple((what, simulated * scale, measured) for what, simulated, measured in rows)

    def facts(self) -> dict[str, Any]:
        """The comparison as plain data (format holmes-sim/islands-run/1)."""
        return {
            "format": FORMAT,
            "sync": str(self.plan.sync),
            "seconds": {what: {"simulated": own, "measured": other} for what, own, other in self.times()},
            "periods_s": list(self.measured.periods_s),
            "error": self.error,
            "losses": list(self.measured.losses),
            "scale": self.measured.scale,
            "compute": self.measured.compute,
            "computed_on": list(self.measured.computed_on),
        }


def run_here(plan: IslandsPlan, options: RunOptions) -> MeasuredIslands:
    """Run all ranks of all islands on this machine for `options.steps` outer periods, after an untimed one. Raises HolmesError.

    If islands use several nodes, the ranks compute on CPUs, because devices of different nodes have the same index."""
    check_options(options)
    check(plan)
    from holmes_sim.torch_backend import local

    nodes = {node_of(island, rank) for island in plan.islands for rank in range(island.config.world_size)}
    if len(nodes) > 1:
        options = replace(options, device="cpu")
    check_memory(plan.islands, options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "periods.json"
        with local.Local() as here:
            here.run_islands(plan, replace(options, output=str(path)))
        return _compared(plan, path)


def as_rank(plan: IslandsPlan, options: RunOptions) -> MeasuredIslands | None:
    """Run this process as one rank of a launch of all islands. Rank 0 returns the comparison, other ranks None.

    Raises HolmesError, SystemExit if any rank fails."""
    check_options(options)
    check(plan)
    from holmes_sim.torch_backend.islands import rank

    found = rank.run(plan, replace(options, output=""))
    return None if found is None else MeasuredIslands(plan, predict(plan)[1], found)


def run_in_lab(plan: IslandsPlan, options: RunOptions) -> InLab[MeasuredIslands]:
    """Run a plan of islands in the lab, with the scale of `holmes_sim.running.run_in_lab`. Raises HolmesError."""
    check_options(options, in_lab=True)
    check(plan)
    return at_scale(lambda scale: _in_lab(plan, options, scale), options, plan, lambda: max(predict(plan)[1].inner_step_s))


def _in_lab(plan: IslandsPlan, options: RunOptions, scale: float) -> InLab[MeasuredIslands]:
    """Run a plan of islands in the lab at a scale."""
    from holmes_sim import lab

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "periods.json"
        given = replace(options, output=str(path))
        machines, sampler = launch_in_lab(plan, given, scale, lambda here, *launch: here.run_islands(plan, *launch))
        wired = lab.as_wired(plan, machines.has_latency)
        if options.compute != "paced":
            wired = replace(wired, islands=tuple(slowed(island, scale) for island in wired.islands))
        compared = _compared(plan, path, wired)
        return InLab(compared, lab.notes(plan, machines.wiring), sampler.over(sum(compared.measured.periods_s)))


def _compared(plan: IslandsPlan, path: Path, expected: IslandsPlan | None = None) -> MeasuredIslands:
    """Compare the periods at `path` with the simulation of `expected`, or of the plan if that is None."""
    measured = MeasuredPeriods.from_json(path.read_text(encoding="utf-8"))
    return MeasuredIslands(plan, predict(expected or plan)[1], measured)
