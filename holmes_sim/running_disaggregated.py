"""Run plans with two sets of ranks with torch, on this machine or as one rank of a launch, beside their simulation."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holmes_sim.running import InLab, at_scale, check_options, launch_in_lab, slowed_fleet, with_ranks
from holmes_sim.torch_backend.disaggregated.supported import check
from holmes_sim.torch_backend.run_options import RunOptions
from sim.disaggregation.plan import DisaggregatedPlan, DisaggregatedPrediction, predict
from sim.engine import timeline
from sim.engine.timeline import Span, Timeline
from sim.units import Seconds

FORMAT = "holmes-sim/disaggregated-run/1"


@dataclass(frozen=True, slots=True)
class MeasuredDisaggregated:
    """A measured step of a plan with two sets of ranks, beside its simulation, whose seconds are multiplied by the scale of the
    run."""

    plan: DisaggregatedPlan
    simulated: DisaggregatedPrediction
    measured: Timeline

    @property
    def error(self) -> float:
        """Simulated over measured step, minus 1."""
        return self.simulated.step_s * self.measured.scale / self.measured.step_s - 1

    def times(self) -> tuple[tuple[str, Seconds, Seconds], ...]:
        """(what, simulated seconds, measured seconds) of the step and of its parts, the mean over the ranks of a set.

        A dispatch or combine is measured from when the last rank of its group begins it."""
        found, scale = self.simulated, self.measured.scale
        return (
            ("step", found.step_s * scale, self.measured.step_s),
            ("compute of attention ranks", found.compute_s[0] * scale, self._mean(0, _computes)),
            ("compute of expert ranks", found.compute_s[1] * scale, self._mean(1, _computes)),
            ("dispatches", found.exchange_s[0] * scale, self._mean(0, _dispatches)),
            ("combines", found.exchange_s[1] * scale, self._mean(0, _combines)),
            ("gradients and optimizer of attention ranks", found.closing_s[0] * scale, self._mean(0, _closes)),
            ("gradients and optimizer of expert ranks", found.closing_s[1] * scale, self._mean(1, _closes)),
        )

    def _mean(self, set_number: int, counts: Callable[[Span], bool]) -> Seconds:
        """Mean over the ranks of a set in the timeline of the seconds of the spans that count."""
        sums: dict[int, Seconds] = {}
        for span in self.measured.spans:
            if (span.rank >= len(self.plan.stage.attention)) == bool(set_number):
                sums[span.rank] = sums.get(span.rank, 0.0) + (span.seconds if counts(span) else 0.0)
        return statistics.mean(sums.values())

    def facts(self) -> dict[str, Any]:
        """The comparison as plain data (format holmes-sim/disaggregated-run/1)."""
        return {
            "format": FORMAT,
            "layout": str(self.plan.stage),
            "seconds": {what: {"simulated": own, "measured": other} for what, own, other in self.times()},
            "steps_s": list(self.measured.steps_s),
            "error": self.error,
            "scale": self.measured.scale,
            "compute": self.measured.compute,
            "computed_on": list(self.measured.computed_on),
        }


def _computes(span: Span) -> bool:
    return span.kind in ("F", "B")


def _dispatches(span: Span) -> bool:
    return span.lane == "send"


def _combines(span: Span) -> bool:
    return span.lane == "return"


def _closes(span: Span) -> bool:
    return span.kind == "optimizer" or span.lane in ("dp", "edp")


def run_disaggregated(plan: DisaggregatedPlan, options: RunOptions) -> MeasuredDisaggregated:
    """Run all ranks of both sets on this machine for `options.steps` steps, after an untimed one. Raises HolmesError.

    If the plan uses several nodes, the ranks compute on CPUs, because devices of different nodes have the same index."""
    check_options(options)
    check(plan)
    from holmes_sim.torch_backend import local

    if len({(device.cluster, device.node) for device in plan.placement}) > 1:
        options = replace(options, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.output or Path(folder) / "timeline.json")
        with local.Local() as here:
            here.run_disaggregated(plan, replace(options, output=str(path.resolve())))
        measured = timeline.from_json(path.read_text(encoding="utf-8"), str(path))
    return MeasuredDisaggregated(plan, predict(plan.stage), measured)


def run_disaggregated_in_lab(plan: DisaggregatedPlan, options: RunOptions) -> InLab[MeasuredDisaggregated]:
    """Run a plan in the lab, with the scale of `holmes_sim.running.run_in_lab`. Raises HolmesError."""
    check_options(options, in_lab=True)
    check(plan)
    return at_scale(lambda scale: _in_lab(plan, options, scale), options, plan, lambda: predict(plan.stage).step_s)


def _in_lab(plan: DisaggregatedPlan, options: RunOptions, scale: float) -> InLab[MeasuredDisaggregated]:
    """Run a plan in the lab at a scale."""
    from holmes_sim import lab

    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.output or Path(folder) / "timeline.json")
        given = replace(options, output=str(path))
        machines, sampler = launch_in_lab(plan, given, scale, lambda here, *launch: here.run_disaggregated(plan, *launch))
        stage = lab.as_wired(plan, machines.has_latency).stage
        if options.compute != "paced":
            stage = stage.on(slowed_fleet(stage.topology.fleet, scale))
        measured = timeline.from_json(path.read_text(encoding="utf-8"), str(path))
        compared = MeasuredDisaggregated(plan, predict(stage), measured)
        return InLab(compared, lab.notes(plan, machines.wiring), with_ranks(sampler, measured))


def as_rank(plan: DisaggregatedPlan, options: RunOptions) -> MeasuredDisaggregated | None:
    """Run this process as one rank of a launch. Rank 0 returns the comparison, other ranks None.

    Raises HolmesError, SystemExit if any rank fails."""
    check_options(options)
    check(plan)
    from holmes_sim.torch_backend.disaggregated import rank

    found = rank.run(plan, options)
    return None if found is None else MeasuredDisaggregated(plan, predict(plan.stage), found)
