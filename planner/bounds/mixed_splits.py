"""Whether some split of the layers of a placement with mixed stages may finish before a deadline.

`planner.bounds.mixed_filling` gives each stage as many layers as it holds, whatever the others have. Here the layers of all
stages add up, so that the seconds of the stages behind are known, too. The first backward of stage s follows a round trip:

    round trip = messages from s to the last stage and back + forward and backward on all stages behind s

where a schedule that splits the backward may put off weight gradients. Then all m backwards of the stage are left, and the
f forwards that its schedule has after its first backward, so a replica takes

    fill + forward + round trip + f (forward + send) + m (backward + send) - send + what follows

Where a schedule does not split the backward, the last backward follows a round trip after the last forward, too. At most a
forwards of the stage precede its first backward, and at most b backwards follow its last forward (1F1B: the number of stages
from s on). So with n = m - max(a, b), at least 1, a replica takes

    fill + forward + round trip + n (forward + backward + sends) + round trip + backward + what follows

A dynamic programme over (stages from the end, layers left) tries all splits. Where replicas may have numbers of their own, each
stage may distribute the microbatches over its replicas independently. Where the programme is small, the paths over several
stages are tested instead (`planner.bounds.mixed_paths`)."""

from __future__ import annotations

import bisect
import operator

from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.mixed_groups import OnStage
from planner.bounds.mixed_paths import allowed_layers, size_of
from planner.bounds.path_stages import forwards_left, microbatches_between, most_microbatches
from planner.bounds.placed_deadline import DeadlineOf, Each, OfSize
from sim.units import Seconds

WORK = 3_000
"""Numbers of layers of all stages times layers left above which no split is ruled out (a guess). A larger number makes some
bounds tighter, and takes longer."""
SIZE = 500_000
"""The same for replicas with equal numbers of microbatches: numbers of layers of all stages, times numbers before them, times
groups of replicas (a guess)."""
OWN = 64
"""Most microbatches of a replica up to which the paths are tested where replicas may have numbers of their own (a guess)."""
MOST_PARTS = 4
"""Splits of the first stages that are listed, for each one of all stages (a guess); where they are more, none is."""


def some_split_holds(stages: PlacedStages, seconds: Seconds, forward: float) -> bool:
    """Whether some split of the layers might finish within `seconds` (False is a proof that none does).

    forward: least fraction of a layer's seconds that is its forward, more than 0."""
    held = _held(stages, seconds, forward)
    return held is None or bool(held[0])


def splits(stages: PlacedStages, seconds: Seconds, forward: float, most: int) -> list[tuple[int, ...]] | None:
    """All splits, as layers of each stage, that might finish within `seconds`; None where they are more than `most`, or too
    many to rule any out. forward: as in `some_split_holds`."""
    held = _held(stages, seconds, forward)
    if held is None:
        return None
    found: dict[int, list[tuple[int, ...]]] = {0: [()]}
    for sizes in held:
        longer = {count: [(*split, k) for k in own for split in found.get(count - k, ())] for count, own in sizes.items()}
        if sum(map(len, longer.values())) > MOST_PARTS * most:
            return None
        found = longer
    every = found.get(stages.layers, [])
    return every if len(every) <= most else None


def _held(stages: PlacedStages, seconds: Seconds, forward: float) -> list[dict[int, list[int]]] | None:
    """For each stage: layers of it and those before it -> numbers of layers that it may hold then, where the stages behind it
    may hold the others; those of the first stage are empty where no split holds. None where `WORK` says so."""
    numbers, layers = range(len(stages.placed)), stages.layers
    if len(numbers) == 1:
        return [{layers: [layers]}]
    most = stages.most_within(seconds, forward)
    if most is None:
        return [{} for _ in numbers]
    test = DeadlineOf(seconds, forward, most)
    if size_of(stages, most) <= SIZE and (stages.alike or most_microbatches(stages) <= OWN):
        return allowed_layers(stages, test)
    if sum(most) * min(sum(most) - layers + 1, layers) > WORK:
        return None
    before, left, held = [sum(most[:stage]) for stage in numbers], {layers}, list[dict[int, list[int]]]()
    for stage in reversed(numbers):
        own: dict[int, list[int]] = {}
        for count in left:
            for k in range(max(1, count - before[stage]), min(most[stage], count - stage) + 1):
                size = OfSize(stage, k, count - k, *stages.around(stage, k))
                if stages.holds_of_split(size, test) and _returns(stages, size, test):
                    own.setdefault(count, []).append(k)
        held.append(own)
        left = {count - k for count, sizes in own.items() for k in sizes}
    return held[::-1]


def _returns(stages: PlacedStages, size: OfSize, test: DeadlineOf) -> bool:
    """Whether the replicas have time for all microbatches and for the round trips of a stage."""
    if size.stage == len(stages.placed) - 1:
        return True
    even = -(-stages.total // sum(stages.replicas))
    groups = [_Trips(stages, *group, size, test) for group in zip(stages.groups, stages.each, strict=True)]
    if all(group.seconds(even) <= test.seconds for group in groups):
        return True
    if stages.alike:
        return False
    numbers = range(1, stages.total + 1)
    most = [bisect.bisect_right(numbers, test.seconds, key=group.seconds) for group in groups]
    return min(most) > 0 and sum(map(operator.mul, most, stages.replicas)) >= stages.total


class _Trips:
    """Least seconds of a step of a replica by the round trips of a stage. each: seconds of a layer on each stage."""

    def __init__(self, stages: PlacedStages, group: tuple[OnStage, ...], each: Each, size: OfSize, test: DeadlineOf):
        here, behind, last = group[size.stage], group[size.stage + 1 :], group[-1]
        self.stages, self.here, self.size, self.inputs = stages, here, size, stages.inputs
        self.ahead, self.back = (start + size.layers * one for start, one in (here.forward, here.backward))
        self.held = here.held.seconds(here.start + size.layers * here.each, self.back)
        behind_it = stages.layers - size.layers - size.before
        later = sum(one.start for one in behind) + test.passed(each, size.stage + 1, len(group), behind_it)
        self.round_trip = last.arrived - here.arrived + last.returned - here.returned + later * self.inputs
        self.filled, self.next_arrived = test.passed(each, 0, size.stage, size.before), behind[0].arrived
        self.begin = max(here.arrived + self.filled * test.forward, size.begin)

    def seconds(self, microbatches: int) -> Seconds:
        """Least seconds of a step with so many microbatches, which never fall with them."""
        which = self.size.stage, len(self.stages.placed), microbatches
        names = [one.NAME for one in self.stages.schedules]
        seconds = self.after_one(min(forwards_left(name, *which) for name in names), microbatches)
        between = 0 if self.stages.splits else min(microbatches_between(name, *which) for name in names)
        return max(seconds, self.with_two(between)) if between else seconds

    def after_one(self, left: int, microbatches: int) -> Seconds:
        """left: forwards after the first backward."""
        here = self.here
        waits = left * (here.sent - here.back) + (microbatches - 1) * here.back + self.held
        core = self.ahead + self.round_trip + left * self.ahead + waits
        of_inputs = max((self.ahead + self.back) * self.inputs - self.ahead, 0.0)
        return core + max(
            self.begin + microbatches * self.back + self.size.tail + here.tied,
            here.arrived + here.returned + self.filled * self.inputs + microbatches * of_inputs,
        )

    def with_two(self, between: int) -> Seconds:
        """between: microbatches between the first backward and the last forward."""
        cycle = self.here.start + self.size.layers * self.here.each + self.here.sent
        cycles = between * cycle + self.held - (self.next_arrived - self.here.arrived)
        core = self.ahead + self.round_trip + cycles + self.round_trip + self.back
        ends = self.begin + self.size.tail + self.here.tied, self.here.arrived + self.here.returned + self.filled
        return core + max(ends)
