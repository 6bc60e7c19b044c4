"""Breakdown of a timeline by pipeline rank: seconds of compute, exposed communication and bubble, and of each kind of group.

It needs no plan and works for simulated and measured timelines. In a simulated step every second of a rank is compute, exposed
communication or bubble; a measured step has small gaps in which the host works (`other`). Communication is the time for which
the lane of a group is busy, hidden behind compute or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sim.engine.copies import totals
from sim.engine.timeline import Timeline
from sim.errors import TimelineError
from sim.plan.program import COMPUTE
from sim.results import report
from sim.results.sums import Sums, seconds_by_rank
from sim.units import Seconds

FORMAT = "holmes-sim/breakdown/1"
KINDS = ("compute", "exposed", "bubble", "other")
"""Kinds of seconds of a rank; they add up to the step."""
DIRECTIONS = {
    "pp": {"send": "pp activations", "return": "pp gradients"},
    "ep": {"send": "ep dispatch", "return": "ep combine"},
}
"""Kind of group -> lane -> words for its direction; tokens have directions between attention and expert ranks."""
GROUPS = (
    "tp", "cp", "etp", "ep", "ep dispatch", "ep combine", "dp", "edp", "embedding", "pp activations", "pp gradients",
)  # fmt: skip
"""Kinds of groups in display order; messages between stages are split by direction."""


@dataclass(frozen=True, slots=True)
class Share:
    """Mean, minimum and maximum over ranks of the seconds of a rank."""

    mean: Seconds
    least: Seconds
    most: Seconds


@dataclass(frozen=True, slots=True)
class PipelineRankSeconds:
    """Seconds of the ranks of one pipeline rank: `seconds` by kind (of `KINDS`), `groups` by kind of group."""

    pp_rank: int
    ranks: int
    seconds: tuple[tuple[str, Share], ...]
    groups: tuple[tuple[str, Share], ...]


def pipeline_rank_of(timeline: Timeline) -> dict[int, int]:
    """Pipeline rank of the representative of every class of ranks: its first stage. Raises TimelineError if it has no stage."""
    stages: dict[int, set[int]] = {group[0]: set() for group in timeline.alike}
    for span, _ in totals(timeline.spans):
        if span.kind in COMPUTE and span.stage >= 0:
            stages[span.rank].add(span.stage)
    for rank, own in stages.items():
        if not own:
            raise TimelineError(f"timeline {timeline.name!r}: rank {rank} has no forward or backward that names its stage")
    return {rank: min(own) for rank, own in stages.items()}


def breakdown(timeline: Timeline) -> tuple[PipelineRankSeconds, ...]:
    """Seconds of every pipeline rank, in order. Raises TimelineError if a rank has no stage."""
    pp_ranks, sums = pipeline_rank_of(timeline), seconds_by_rank(timeline)
    rows = [(pp_ranks[group[0]], len(group), *_of(sums[group[0]], timeline.step_s)) for group in timeline.alike]
    found = []
    for pp_rank in sorted(set(pp_ranks.values())):
        own = [(many, seconds, groups) for at, many, seconds, groups in rows if at == pp_rank]
        seconds = _shares([(many, seconds) for many, seconds, _ in own], KINDS)
        used = {kind for _, _, groups in own for kind in groups}
        order = [*(kind for kind in GROUPS if kind in used), *sorted(used - set(GROUPS))]
        groups = _shares([(many, groups) for many, _, groups in own], order)
        found.append(PipelineRankSeconds(pp_rank, sum(many for many, _, _ in own), seconds, groups))
    return tuple(found)


def total(pp_ranks: tuple[PipelineRankSeconds, ...]) -> PipelineRankSeconds:
    """Seconds by kind over all ranks, as pipeline rank -1, without groups (these are reported by pipeline rank)."""
    ranks = sum(one.ranks for one in pp_ranks)
    shares = {kind: [(one.ranks, dict(one.seconds)[kind]) for one in pp_ranks] for kind in KINDS}
    seconds = {
        kind: Share(
            sum(many * share.mean for many, share in own) / ranks,
            min(share.least for _, share in own),
            max(share.most for _, share in own),
        )
        for kind, own in shares.items()
    }
    return PipelineRankSeconds(-1, ranks, tuple(seconds.items()), ())


def facts(timeline: Timeline) -> dict[str, Any]:
    """A timeline's numbers as plain data (format holmes-sim/breakdown/1), as `holmes-sim show TIMELINE --json` prints them."""
    return {
        "format": FORMAT, "name": timeline.name, "origin": timeline.origin, "plan_digest": timeline.plan_digest,
        "step_s": timeline.step_s, "steps_s": list(timeline.steps_s), "scale": timeline.scale, "compute": timeline.compute,
        "tokens": timeline.tokens, "flops": timeline.flops,
        "stages": [
            {
                "stage": one.pp_rank,
                "ranks": one.ranks,
                "seconds": {kind: asdict(share) for kind, share in one.seconds},
                "groups": {kind: asdict(share) for kind, share in one.groups},
            }
            for one in breakdown(timeline)
        ],
    }  # fmt: skip


def _of(sums: Sums, step: Seconds) -> tuple[dict[str, Seconds], dict[str, Seconds]]:
    """(seconds by kind, seconds by group) of one rank."""
    compute, exposed, bubble = report.split(sums)
    groups: dict[str, Seconds] = {}
    for (lane, _, group), seconds in sums.items():
        if lane not in ("compute", "wait"):
            kind = DIRECTIONS.get(group, DIRECTIONS["pp"]).get(lane) or group or lane
            groups[kind] = groups.get(kind, 0.0) + seconds
    return dict(zip(KINDS, (compute, exposed, bubble, step - compute - exposed - bubble), strict=True)), groups


def _shares(own: list[tuple[int, dict[str, Seconds]]], kinds: Iterable[str]) -> tuple[tuple[str, Share], ...]:
    """Mean, minimum and maximum of each kind, from pairs of (number of ranks, seconds by kind)."""
    ranks, found = sum(many for many, _ in own), []
    for kind in kinds:
        weighted = [(many, seconds.get(kind, 0.0)) for many, seconds in own]
        each = [seconds for _, seconds in weighted]
        found.append((kind, Share(sum(many * seconds for many, seconds in weighted) / ranks, min(each), max(each))))
    return tuple(found)
