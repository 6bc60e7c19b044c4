"""Timeline -> seconds by pipeline place: what its ranks do all step long, and how long their communication takes.

Simulated and measured timelines alike, without their plan. Of a simulated step every second of a rank is compute, exposed
communication or bubble; a measured one leaves small gaps, in which the host is at work (`other`). Communication is the seconds
that a group's lane is busy, hidden behind compute or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sim.engine.timeline import Span, Timeline
from sim.errors import TimelineError
from sim.plan.program import COMPUTE
from sim.results import report
from sim.units import Seconds

KINDS = ("compute", "exposed", "bubble", "other")
"""What a rank's seconds are; together they are the step."""
GROUPS = ("tp", "cp", "ep", "dp", "edp", "embedding", "pp activations", "pp gradients")
"""Kinds of groups in the order they are shown; messages between stages by their way."""


@dataclass(frozen=True, slots=True)
class Share:
    """Seconds of a rank: mean, least and most over ranks."""

    mean: Seconds
    least: Seconds
    most: Seconds


@dataclass(frozen=True, slots=True)
class PlaceSeconds:
    """Seconds of the ranks of a pipeline place: `seconds` by kind (of `KINDS`), `groups` by kind of group."""

    place: int
    ranks: int
    seconds: tuple[tuple[str, Share], ...]
    groups: tuple[tuple[str, Share], ...]


def place_of(timeline: Timeline) -> dict[int, int]:
    """Pipeline place of every rank that stands for others: its first stage. Raises TimelineError where it has none."""
    found = {}
    for rank, spans in timeline.by_rank().items():
        stages = [span.stage for span in spans if span.kind in COMPUTE and span.stage >= 0]
        if not stages:
            raise TimelineError(f"timeline {timeline.name!r}: rank {rank} has no forward or backward that names its stage")
        found[rank] = min(stages)
    return found


def breakdown(timeline: Timeline) -> tuple[PlaceSeconds, ...]:
    """Every pipeline place, in order. Raises TimelineError where a rank has no stage."""
    places, spans = place_of(timeline), timeline.by_rank()
    rows = [(places[group[0]], len(group), *_of(spans[group[0]], timeline.step_s)) for group in timeline.alike]
    found = []
    for place in sorted(set(places.values())):
        own = [(many, seconds, groups) for at, many, seconds, groups in rows if at == place]
        seconds = _shares([(many, seconds) for many, seconds, _ in own], KINDS)
        used = {kind for _, _, groups in own for kind in groups}
        order = [*(kind for kind in GROUPS if kind in used), *sorted(used - set(GROUPS))]
        groups = _shares([(many, groups) for many, _, groups in own], order)
        found.append(PlaceSeconds(place, sum(many for many, _, _ in own), seconds, groups))
    return tuple(found)


def total(places: tuple[PlaceSeconds, ...]) -> PlaceSeconds:
    """All places as one, number -1: seconds by kind over all ranks; groups are told by place."""
    ranks = sum(place.ranks for place in places)
    shares = {kind: [(place.ranks, dict(place.seconds)[kind]) for place in places] for kind in KINDS}
    seconds = {
        kind: Share(
            sum(many * share.mean for many, share in own) / ranks,
            min(share.least for _, share in own),
            max(share.most for _, share in own),
        )
        for kind, own in shares.items()
    }
    return PlaceSeconds(-1, ranks, tuple(seconds.items()), ())


def facts(timeline: Timeline) -> dict[str, Any]:
    """A timeline's numbers as plain data, as `holmes-sim show TIMELINE --json` prints them."""
    return {
        "name": timeline.name, "origin": timeline.origin, "plan_digest": timeline.plan_digest,
        "step_s": timeline.step_s, "steps_s": list(timeline.steps_s), "scale": timeline.scale, "compute": timeline.compute,
        "tokens": timeline.tokens, "flops": timeline.flops,
        "stages": [
            {
                "stage": place.place,
                "ranks": place.ranks,
                "seconds": {kind: asdict(share) for kind, share in place.seconds},
                "groups": {kind: asdict(share) for kind, share in place.groups},
            }
            for place in breakdown(timeline)
        ],
    }  # fmt: skip


def _of(spans: tuple[Span, ...], step: Seconds) -> tuple[dict[str, Seconds], dict[str, Seconds]]:
    """Seconds by kind and by group of one rank."""
    compute, exposed, bubble = report.split(spans)
    groups: dict[str, Seconds] = {}
    for span in spans:
        if span.lane not in ("compute", "wait"):
            kind = {"send": "pp activations", "return": "pp gradients"}.get(span.lane) or span.group or span.lane
            groups[kind] = groups.get(kind, 0.0) + span.seconds
    return dict(zip(KINDS, (compute, exposed, bubble, step - compute - exposed - bubble), strict=True)), groups


def _shares(own: list[tuple[int, dict[str, Seconds]]], kinds: Iterable[str]) -> tuple[tuple[str, Share], ...]:
    """Shares of kinds over (how many ranks, seconds by kind)."""
    ranks, found = sum(many for many, _ in own), []
    for kind in kinds:
        all_of_it = [(many, seconds.get(kind, 0.0)) for many, seconds in own]
        each = [seconds for _, seconds in all_of_it]
        found.append((kind, Share(sum(many * seconds for many, seconds in all_of_it) / ranks, min(each), max(each))))
    return tuple(found)
