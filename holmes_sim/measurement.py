"""Compare a measured step with its plan: the prediction in the plan, a new simulation, and the measurement.

Predicted and simulated seconds are multiplied by the scale of the timeline, the factor by which the run was slowed down. The
error is simulated / measured - 1: negative if the simulator is optimistic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sim.engine.rank_plans import RankPlans
from sim.engine.timeline import PeakBytes, Timeline, stretched
from sim.errors import TimelineError
from sim.kernels import memory
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.results import breakdown
from sim.results.breakdown import PipelineRankSeconds, Share
from sim.units import Bytes, Seconds

FORMAT = "holmes-sim/measured-steps/1"


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of one kind, means over ranks; None if unknown. `least` and `most` are the measured extremes over ranks."""

    name: str
    predicted: Seconds | None
    simulated: Seconds | None
    measured: Seconds | None
    least: Seconds | None = None
    most: Seconds | None = None

    @property
    def error(self) -> float | None:
        """simulated / measured - 1; None if one of them is missing."""
        return self.simulated / self.measured - 1 if self.simulated is not None and self.measured else None

    def facts(self) -> dict[str, Any]:
        """Plain data."""
        numbers = {
            "predicted_s": self.predicted, "simulated_s": self.simulated, "measured_s": self.measured, "error": self.error
        }  # fmt: skip
        return numbers if self.least is None else numbers | {"least_s": self.least, "most_s": self.most}


@dataclass(frozen=True, slots=True)
class PipelineRankLines:
    """One pipeline rank (`pp_rank`): seconds of its ranks by kind, and seconds of its communication by group."""

    pp_rank: int
    ranks: int
    seconds: tuple[Line, ...]
    groups: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """Memory of the device of a pipeline rank: predicted, and measured on the rank that took most.

    - `name`: "allocated" (what torch needs), "reserved" (what it takes from the device for that) or "outside" (what the device
      has in use beside it)."""

    pp_rank: int
    name: str
    predicted: Bytes
    measured: Bytes

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None if nothing was measured."""
        return self.predicted / self.measured - 1 if self.measured else None

    def facts(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "stage": self.pp_rank, "name": self.name, "predicted_bytes": self.predicted, "measured_bytes": self.measured,
            "error": self.error,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A measured timeline and the simulated one, which is multiplied by the scale of the measured one. `memory`: empty where
    it was not measured."""

    name: str
    plan: Plan | PipelinesPlan
    simulated: Timeline
    measured: Timeline
    step: Line
    seconds: tuple[Line, ...]
    pipeline_ranks: tuple[PipelineRankLines, ...]
    memory: tuple[MemoryLine, ...] = ()

    @property
    def spread(self) -> float | None:
        """(longest - shortest) / median of the timed steps; None if the timeline has no timed steps."""
        steps = self.measured.steps_s
        return (max(steps) - min(steps)) / self.measured.step_s if steps else None

    def facts(self) -> dict[str, Any]:
        """Plain data: one row of `holmes-sim compare PLAN TIMELINE --json`."""
        timeline = self.measured
        return {
            "name": self.name, "origin": timeline.origin, "compute": timeline.compute, "scale": timeline.scale,
            "step": self.step.facts() | {"steps_s": list(timeline.steps_s), "spread": self.spread},
            "seconds": {line.name: line.facts() for line in self.seconds},
            "stages": [
                {
                    "stage": row.pp_rank,
                    "ranks": row.ranks,
                    "seconds": {line.name: line.facts() for line in row.seconds},
                    "groups": {line.name: line.facts() for line in row.groups},
                }
                for row in self.pipeline_ranks
            ],
            "memory": [line.facts() for line in self.memory],
        }  # fmt: skip


def facts(rows: Iterable[MeasuredStep]) -> dict[str, Any]:
    """Measured steps of one plan as plain data (format holmes-sim/measured-steps/1)."""
    return {"format": FORMAT, "rows": [row.facts() for row in rows]}


def measured_step(
    plan: Plan | PipelinesPlan, simulated: Timeline, measured: Timeline, name: str, digests: tuple[str, ...] = ()
) -> MeasuredStep:
    """Compare a measured timeline with the simulated one of a plan; `name` is used in error messages.

    Raises TimelineError if the timeline belongs to another plan: its digest is neither the one of `plan` nor in `digests` (such
    as the digest of the plan without a profile).
    """
    own = RankPlans(plan).digest
    if measured.plan_digest not in (own, *digests):
        right = (*digests, own)[0]
        raise TimelineError(
            f"{name}: plan_digest: {measured.plan_digest!r} belongs to another plan; timelines of this plan have {right!r}"
        )
    ranks = sum(map(len, measured.alike))
    if ranks != len(plan.placement):
        raise TimelineError(f"{name}: alike: {ranks} ranks; the plan has {len(plan.placement)}")
    scale, predicted = measured.scale, plan.prediction
    model = stretched(simulated, scale / simulated.scale)
    simulated_stages, measured_stages = breakdown.breakdown(model), breakdown.breakdown(measured)
    if [stage.pp_rank for stage in simulated_stages] != [stage.pp_rank for stage in measured_stages]:
        raise TimelineError(f"{name}: its stages are {_stages(measured_stages)}; the plan has {_stages(simulated_stages)}")
    predicted_seconds: dict[str, Seconds] = {}
    if predicted is not None:
        predicted_seconds["exposed"] = scale * predicted.exposed_communication_s
        predicted_seconds["bubble"] = scale * predicted.bubble_fraction * predicted.step_s
    return MeasuredStep(
        name=name,
        plan=plan,
        simulated=model,
        measured=measured,
        step=Line("step", scale * predicted.step_s if predicted else None, model.step_s, measured.step_s),
        seconds=_lines(breakdown.total(simulated_stages).seconds, breakdown.total(measured_stages).seconds, predicted_seconds),
        pipeline_ranks=tuple(
            PipelineRankLines(b.pp_rank, b.ranks, _lines(a.seconds, b.seconds, {}), _lines(a.groups, b.groups, {}))
            for a, b in zip(simulated_stages, measured_stages, strict=True)
        ),
        memory=tuple(_memory(plan, measured)) if isinstance(plan, Plan) else (),
    )


def _memory(plan: Plan, measured: Timeline) -> Iterator[MemoryLine]:
    """Lines of memory of all pipeline ranks, if the timeline has any."""
    if not measured.peak_bytes:
        return
    needed, reserved, peak = memory.torch_bytes(plan), memory.reserved_bytes(plan), memory.peak_memory(plan)
    for pp_rank in range(plan.config.pp):
        first, past = plan.config.first_rank(pp_rank), plan.config.first_rank(pp_rank + 1)
        predicted = needed[pp_rank], reserved[pp_rank], peak[pp_rank] - needed[pp_rank]
        most = [max(values) for values in zip(*measured.peak_bytes[first:past], strict=True)]
        for name, one, other in zip(PeakBytes._fields, predicted, most, strict=True):
            yield MemoryLine(pp_rank, name, one, other)


def _stages(found: tuple[PipelineRankSeconds, ...]) -> str:
    return ", ".join(str(stage.pp_rank) for stage in found)


def _lines(
    simulated: tuple[tuple[str, Share], ...], measured: tuple[tuple[str, Share], ...], predicted_seconds: dict[str, Seconds]
) -> tuple[Line, ...]:
    """Lines by name, those of the simulation first. "other" (neither compute, exposed nor bubble) has no simulated value."""
    model, real, found = dict(simulated), dict(measured), []
    for name in [*model, *(name for name in real if name not in model)]:
        share, real_share = model.get(name), real.get(name)
        over_ranks = (real_share.least, real_share.most) if real_share else (None, None)
        modelled = share.mean if share and name != "other" else None
        found.append(Line(name, predicted_seconds.get(name), modelled, real_share.mean if real_share else None, *over_ranks))
    return tuple(found)
