"""The stages of a placement with mixed stages, as arrays over their numbers of layers, for the paths of a step
(`planner.bounds.mixed_paths`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.placed_deadline import DeadlineOf
from planner.bounds.stage_messages import Held
from planner.costs.mixed_rings import least_together
from sim.plan import schedules
from sim.units import Seconds

Floats = NDArray[np.float64]
"""Seconds; the axes are (groups of replicas, layers before the stage, layers of the stage), as far as they differ."""
Numbers = NDArray[np.int64]
"""Numbers of microbatches, or of passes."""
OWN_MOST = 4
"""Times its even share of the microbatches from which a replica counts as able to run any number (a guess). More widen what is
searched for its number, and hardly matter."""


@dataclass(frozen=True, slots=True)
class OneStage:
    """A stage with 1, 2, ... layers, for each group of replicas.

    before: layers that the stages before it may have. Seconds of its passes (`both`: no less than both passes together), of
    its `gathers` and of its `reductions`, which a tied embedding's sum follows. Seconds of the messages to it from the stage
    before (`ahead`) and from it to that stage (`back`), and those that a rank waits for: `sent`, of which `sent_back`; `lane`:
    where it does not wait, those that its messages need of their links; `held`: of a step, those that the stage before holds
    (`holds`, of each group). By the number of microbatches: forwards `left` after its first backward, and microbatches
    `between` it and the last forward. link: least seconds of the links whose last stage it is, for gathers alone and for all;
    share: of its forward, that follows its gathers."""

    before: range
    forward: Floats
    backward: Floats
    both: Floats
    gathers: Floats
    reductions: Floats
    ahead: Floats
    back: Floats
    sent: Floats
    sent_back: Floats
    lane: Floats
    held: Floats
    holds: tuple[Held, ...]
    left: Numbers
    between: Numbers
    link: tuple[Floats, Floats]
    share: Floats


def most_microbatches(stages: PlacedStages) -> int:
    """The number of microbatches of each replica; where they may have numbers of their own, the most that are told apart."""
    even = -(-stages.total // sum(stages.replicas))
    return even if stages.alike else min(OWN_MOST * even, stages.total)


def stages_of(stages: PlacedStages, test: DeadlineOf, many: int) -> list[OneStage]:
    """The stages, with up to so many microbatches of a replica."""
    most, layers, found = test.most, stages.layers, list[OneStage]()
    for stage, largest in enumerate(most):
        ks, rows = np.arange(1, largest + 1), [group[stage] for group in stages.groups]
        least = max(stage, layers - sum(most[stage:]))
        before = range(least, max(min(sum(most[:stage]), layers - (len(most) - stage)), least) + 1)

        def column(values: Sequence[Seconds]) -> Floats:
            return np.array(values, float)[:, None, None]

        def passes(pairs: Sequence[tuple[Seconds, Seconds]], ks: NDArray[np.int64] = ks) -> Floats:
            return np.array([start + ks * each for start, each in pairs])[:, None, :]

        begins, tails, shares = np.array([stages.around(stage, k) for k in ks.tolist()]).T
        numbers = ks.astype(float)
        backwards = [(one, one.backward[0] + numbers * one.backward[1]) for one in rows]
        former = [group[stage - 1] for group in stages.groups] if stage else rows
        found.append(
            OneStage(
                before,
                passes([one.forward for one in rows]),
                passes([one.backward for one in rows]),
                passes([(one.start, one.each) for one in rows]),
                begins,
                tails + column([one.tied for one in rows]),
                column([one.arrived - other.arrived for one, other in zip(rows, former, strict=True)]),
                column([one.returned - other.returned for one, other in zip(rows, former, strict=True)]),
                column([one.sent for one in rows]),
                column([one.back for one in rows]),
                column([one.lane for one in rows]),
                np.array([one.held.of_many(one.start + numbers * one.each, backward) for one, backward in backwards])[
                    :, None, :
                ],
                tuple(one.held for one in rows),
                _by_number(stages, forwards_left, stage, many),
                _by_number(stages, microbatches_between, stage, many),
                _link_seconds(stages, stage, test, np.array(before)[:, None], ks),
                shares,
            )
        )
    return found


def _by_number(stages: PlacedStages, count: Callable[[str, int, int, int], int], stage: int, most: int) -> Numbers:
    """The least that a stage has under any schedule with so many microbatches or more, by their number, up to `most`; where
    all replicas have so many, for that number alone."""
    names, pp = [one.NAME for one in stages.schedules], len(stages.placed)
    found, first = np.zeros(most + 1, np.int64), most if stages.alike else 1
    for number in range(first, most + 1):
        found[number] = min(count(name, stage, pp, number) for name in names)
    return np.minimum.accumulate(found[::-1])[::-1]


def _link_seconds(
    stages: PlacedStages, stage: int, test: DeadlineOf, before: NDArray[np.int64], ks: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Least seconds of the links whose last stage this is, for gathers before its first forward ends and for all gathers and
    reductions, by the layers before it and its own. The other stages of a link have at least the layers that those which do
    not load it cannot hold."""
    links = stages.ending.get(stage, [])
    gathers, both = (np.zeros((len(before), len(ks))) for _ in range(2))
    for link, outside in zip(links, test.outside(stage, 0, links), strict=True):
        *others, last = link
        shared = [least_together(others, held) for held in (before[:, 0] - outside).tolist()]
        more = np.array([(one.gathers, one.both) for one in shared])
        gathers = np.maximum(gathers, last.gather_fixed + last.gather_each * ks + more[:, :1])
        both = np.maximum(both, last.fixed + last.each * ks + more[:, 1:])
    return gathers, both


@functools.lru_cache(maxsize=4096)
def forwards_left(name: str, stage: int, pp: int, microbatches: int) -> int:
    """Number of forwards of a stage after its first backward."""
    kinds = [action.kind for action in schedules.actions(name, stage, pp, microbatches, 1)]
    return kinds[kinds.index("B") :].count("F")


@functools.lru_cache(maxsize=4096)
def microbatches_between(name: str, stage: int, pp: int, microbatches: int) -> int:
    """Least number of forwards, and of backwards, of a stage from its first backward to its last forward; 0 where that is
    before it."""
    kinds = [action.kind for action in schedules.actions(name, stage, pp, microbatches, 1) if action.kind in ("F", "B")]
    first, end = kinds.index("B"), len(kinds) - kinds[::-1].index("F")
    return min(kinds[first:end].count(kind) for kind in "FB")
