"""The greedy filling of pipelines with a given number of stages, over many node classes in any order.

Idea. `planner.bounds.any_order` does not know how many stages a pipeline has, so it lets pipelines have all that the devices
can hold. A schedule with virtual stages is defined for few numbers of stages only (those that divide the number of
microbatches), which are often far fewer. Here the number is given. Then the number of stages before and behind each stage is
known, and with it more of its fill, its drain, its memory and the round trips of its microbatches.

The classes are sorted by speed and divided into kinds, so that a dynamic programme over the stages that are filled so far, by
their kinds, has few states. It counts the stages of a kind, not of a class, and its stages may follow one another in any order:
a relaxation. Invariant: no feasible pipeline whose last stages are so many of each kind leaves fewer layers to the stages
before than the programme says (the exchange argument of `planner.bounds.greedy_filling`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise

from planner.bounds.greedy_filling import Filling
from planner.bounds.ordered_stages import OrderedStages
from planner.space import lengths

STATES = 60
"""Most states of a programme (a guess): 400 took twice as long on eight cities, with a bound that is 1.8 % higher."""


class KindFilling(Filling):
    """Layers on the `pp` stages of a pipeline over classes in any order (`OrderedStages.in_any_order`) within `seconds`."""

    def __init__(self, stages: OrderedStages, seconds: float, pp: int):
        super().__init__(stages, seconds, stages.max_stages, pp)
        self.length, self.exact, self.counted, self.kinds = pp, False, True, kinds_of(stages)
        self._passes, classes = fewest_seconds_passed(stages, pp), range(len(self.counts))
        self.round_rate = [min(both for _, both, _ in stages.rates)] * len(self.counts)
        self.longest = [max(1, *self.most) for _ in classes]
        self.by_rate = [[sorted((stages.rates[c][which], c) for c in classes)] * len(self.counts) for which in (0, 1, 2)]

    def succeeds(self) -> bool:
        """Whether the stages can hold all layers."""
        if not self._computable():
            return False
        least = {tuple(0 for _ in self.kinds): self.stages.layers}
        for after in range(self.length):
            self._place(self.length - 1 - after)
            found: dict[tuple[int, ...], int] = {}
            for used, left in least.items():
                for kind, classes in enumerate(self.kinds):
                    if used[kind] == sum(self.counts[i] for i in classes):
                        continue
                    if after == self.length - 1:
                        if any(self._fits(i, "first", left, left, after) for i in classes):
                            return True
                        continue
                    role, key = "middle" if after else "last", (*used[:kind], used[kind] + 1, *used[kind + 1 :])
                    before = [self.fewest_before(i, role, left, after) for i in classes]
                    for one in before:
                        if one is not None:
                            found[key] = min(found.get(key, one), one)
            least = found
        return False

    def _messages_behind(self, after: int) -> float:
        return self._passes[after]

    def _computable(self) -> bool:
        """Whether the stages that hold most by compute alone hold all layers."""
        most = sorted((most for most, count in zip(self.most, self.counts, strict=True) for _ in range(count)), reverse=True)
        return len(most) >= self.length and sum(most[: self.length]) >= self.stages.layers

    def _place(self, before: int) -> None:
        """Let the next stage have so many stages before it."""
        self.earlier, self.stages_before = [before] * len(self.counts), [before + 1] * len(self.counts)
        self.borders = [self._passes[before]] * len(self.counts)


def fewest_seconds_passed(stages: OrderedStages, pp: int) -> list[float]:
    """Least seconds of the messages of a microbatch over 0, 1, ... borders between stages that follow one another.

    The stages of a class follow one another, so that n + 1 stages on c classes have c - 1 borders between two classes."""
    between, classes = stages.neighbours.between, range(len(stages.order))
    hop = min(stages.messages)
    border = min((between[a][b] for a in classes for b in classes if a != b), default=math.inf)
    border = max(hop, border) if math.isfinite(border) else hop
    ends = [*accumulate(sorted(stages.max_stages, reverse=True))]
    fewest = [sum(end <= n for end in ends) for n in range(pp)]
    return [fewest[n] * border + (n - fewest[n]) * hop for n in range(pp)]


def kinds_of(stages: OrderedStages) -> list[list[int]]:
    """Classes by kind, each sorted by their seconds for a layer: the most similar ones are joined until a programme over the
    stages of each kind has at most `STATES` states."""
    seconds = [option.layer_seconds for option in stages.order]
    kinds = [[i] for i in sorted(range(len(seconds)), key=lambda i: seconds[i])]
    while math.prod(1 + sum(stages.max_stages[i] for i in kind) for kind in kinds) > STATES and len(kinds) > 1:
        gaps = [seconds[after[0]] / seconds[before[0]] for before, after in pairwise(kinds)]
        nearest = gaps.index(min(gaps))
        kinds[nearest : nearest + 2] = [kinds[nearest] + kinds[nearest + 1]]
    return kinds


def defined_lengths(stages: OrderedStages) -> Iterator[int]:
    """Numbers of stages that the schedule, the pins and the limits of a request allow, the longest first."""
    most = min(sum(stages.max_stages), stages.layers // stages.vpp, stages.longest or stages.layers)
    for pp in range(most, 1, -1):
        if stages.shape.is_defined(stages.m, pp) and lengths.allows(stages.context.request, stages.shape, pp):
            yield pp


def may_have_some_length(stages: OrderedStages, seconds: float) -> bool:
    """Whether a pipeline of some length that the schedule is defined for might finish within `seconds` (False is a proof)."""
    return any(KindFilling(stages, seconds, pp).succeeds() for pp in defined_lengths(stages))
