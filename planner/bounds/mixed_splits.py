"""Whether some split of the layers of a placement with mixed stages may finish before a deadline.

`planner.bounds.mixed_filling` gives each stage as many layers as it holds, whatever the others have. Here the layers of all
stages add up, so that the seconds of the stages behind are known, too. Where a schedule does not split the backward, the first
backward of stage s follows a round trip to the last stage and back, and so does the last one after the last forward:

    round trip = messages from s to the last stage and back + forward and backward on all stages behind s

At most a forwards of the stage precede its first backward, and at most b backwards follow its last forward (1F1B: the number of
stages from s on). So a replica with m microbatches and n = m - max(a, b), at least 1, takes

    fill + forward + round trip + n (forward + backward + sends) + round trip + backward + what follows

A dynamic programme over (stages from the end, layers left) tries all splits. It is used where all replicas have equally many
microbatches."""

from __future__ import annotations

import functools

from planner.bounds.mixed_filling import DeadlineOf, OfSize, PlacedStages
from planner.bounds.mixed_groups import OnStage
from sim.plan import schedules
from sim.units import Seconds

WORK = 3_000
"""Numbers of layers of all stages times layers left above which no split is ruled out (a guess). A larger number makes some
bounds tighter, and takes longer."""


def some_split_holds(stages: PlacedStages, seconds: Seconds, forward: float) -> bool:
    """Whether some split of the layers might finish within `seconds` (False is a proof that none does).

    forward: least fraction of a layer's seconds that is its forward, more than 0."""
    if not stages.alike or stages.splits or len(stages.placed) == 1:
        return True
    numbers, layers = range(len(stages.placed)), stages.layers
    test = DeadlineOf(seconds, forward, [stages.most_by_compute(stage, seconds) for stage in numbers])
    most = [min(test.most[stage], stages.most_by_memory(stage)) for stage in numbers]
    if sum(most) * min(sum(most) - layers + 1, layers) > WORK:
        return True
    before, left = [sum(most[:stage]) for stage in numbers], {layers}
    for stage in reversed(numbers):
        sizes = (
            OfSize(stage, k, count - k, *stages.around(stage, k))
            for count in left
            for k in range(max(1, count - before[stage]), min(most[stage], count - stage) + 1)
        )
        left = {size.before for size in sizes if stages.holds_of_split(size, test) and _returns(stages, size, test)}
    return 0 in left


def _returns(stages: PlacedStages, size: OfSize, test: DeadlineOf) -> bool:
    """Whether every group has time for the round trips of a stage and its microbatches."""
    pp, microbatches = len(stages.placed), -(-stages.total // sum(stages.replicas))
    if size.stage == pp - 1:
        return True
    beside = min(_between(one.NAME, size.stage, pp, microbatches) for one in stages.schedules)
    return not beside or all(
        _seconds(group, size, stages.layers, beside, test.forward) <= test.seconds for group in stages.groups
    )


def _seconds(group: tuple[OnStage, ...], size: OfSize, layers: int, beside: int, forward: float) -> Seconds:
    """Least seconds of a step of a replica by the round trips of a stage. beside: microbatches between them."""
    here, behind, last = group[size.stage], group[size.stage + 1 :], group[-1]
    ahead, back = (start + size.layers * each for start, each in (here.forward, here.backward))
    later = sum(one.start for one in behind) + (layers - size.layers - size.before) * min(one.each for one in behind)
    round_trip = last.arrived - here.arrived + last.returned - here.returned + later
    cycles = beside * (here.start + size.layers * here.each + here.sent) - (behind[0].arrived - here.arrived)
    core = ahead + round_trip + cycles + round_trip + back
    filled = here.layer_before * size.before
    begin = max(here.arrived + filled * forward, size.begin)
    return core + max(begin + size.tail + here.tied, here.arrived + here.returned + filled)


@functools.lru_cache(maxsize=4096)
def _between(name: str, stage: int, pp: int, microbatches: int) -> int:
    """Least number of forwards, and of backwards, of a stage from its first backward to its last forward; 0 where that is
    before it."""
    kinds = [action.kind for action in schedules.actions(name, stage, pp, microbatches, 1) if action.kind in ("F", "B")]
    first, end = kinds.index("B"), len(kinds) - kinds[::-1].index("F")
    return min(kinds[first:end].count(kind) for kind in "FB")
