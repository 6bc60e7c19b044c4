"""The deadline test of all pipelines on some node classes, in any order, by a dynamic programme over subsets of the classes.

Idea. The greedy filling of `planner.bounds.greedy_filling` fills the stages of one class after another, from the last stage to
the first. What it leaves to the classes before depends on the classes that are filled, not on their order, if messages and
other numbers hold for every order (`OrderedStages.in_any_order`). So one number for each subset of the classes suffices: the
fewest layers that stages of exactly these classes, the last ones of a pipeline, leave over. With n classes there are 2^n
subsets and n 2^(n-1) fillings, in place of more than n! orders (M. Held, R. M. Karp, A Dynamic Programming Approach to
Sequencing Problems, Journal of SIAM 10(1), 1962).

More than `CLASSES` classes are tested with each number of stages, too (`planner.bounds.kind_filling`).

Invariant: no feasible pipeline whose last classes are a subset leaves fewer layers to the classes before than the programme
says. By the exchange argument of the greedy filling, fewer layers at the begin of a class leave fewer at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.bounds.greedy_filling import Filling, Pipeline
from planner.bounds.kind_filling import may_have_some_length
from planner.bounds.ordered_stages import OrderedStages, most_by_compute
from planner.costs.node_classes import NodeClass

CLASSES = 4
"""Number of classes up to which every order of every subset is tested (a guess). With more, only `AnyOrder` is tested, and with
it every number of stages (`planner.bounds.kind_filling`)."""


class AnyOrder:
    """The deadline test of all pipelines of two or more stages on some classes in any order."""

    exact = False

    def __init__(self, classes: Sequence[NodeClass], stages: OrderedStages | None = None):
        """stages: of the same classes, in any order; if None, only compute and memory are tested."""
        self.order, self._stages = tuple(classes), stages

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        if sum(option.max_stages * self._most(option, seconds) for option in self.order) < self._layers:
            return False
        stages = self._stages
        if stages is None:
            return True
        return SubsetFilling(stages, seconds).succeeds() and (
            len(self.order) <= CLASSES or may_have_some_length(stages, seconds)
        )

    @property
    def _layers(self) -> int:
        return self.order[0].workload.model.layers if self.order else 1

    def _most(self, option: NodeClass, seconds: float) -> int:
        """Most layers of one stage beside the fewest microbatches in flight, by the compute of its layers alone."""
        one = ((option.shape.vpp, 0),)
        return min(option.memory.most_layers("middle", one), most_by_compute(option, seconds))

    def by_counts(self, seconds: float) -> None:
        """None, because the order of the classes, and with it the position of a stage, is not known."""
        return

    def pipelines(self, seconds: float, most: int) -> list[Pipeline] | None:
        """None, because pipelines in any order are too many to list."""
        return None


class SubsetFilling(Filling):
    """The greedy filling of the classes of `stages` (`OrderedStages.in_any_order`) in every order at once."""

    def __init__(self, stages: OrderedStages, seconds: float):
        super().__init__(stages, seconds, stages.max_stages, None)
        self._least_hop = min(stages.messages)
        self.earlier, self.borders = [0] * len(self.counts), [0.0] * len(self.counts)

    def succeeds(self) -> bool:
        """Whether the stages can hold all layers in some order."""
        classes, able, everything = range(len(self.counts)), self.able, 1 << len(self.counts)
        left: list[float] = [math.inf] * everything
        left[0] = self.stages.layers
        for behind in range(everything - 1):
            here, free = left[behind], [i for i in classes if not behind >> i & 1]
            if here > sum(able[i] for i in free):
                continue
            self._allow(free)
            for i in free:
                rest = self._filled(i, int(here), behind.bit_count())
                if not rest:
                    return True
                after = behind | 1 << i
                if rest < here:
                    left[after] = min(left[after], rest)
        return False

    def _allow(self, free: Sequence[int]) -> None:
        """Let the layers before a stage be on the classes `free` only."""
        classes, rates = range(len(self.counts)), self.stages.rates
        self.hop = [self._least_hop for _ in classes]
        self.longest = [max(1, *(self.most[i] for i in free)) for _ in classes]
        self.stages_before = [sum(self.counts[i] for i in free) for _ in classes]
        self.by_rate = [[sorted((rates[c][which], c) for c in free)] * len(classes) for which in (0, 1, 2)]

    def _filled(self, i: int, left: int, behind: int) -> int:
        """Fewest layers left before the stages of class i, behind which `behind` classes have stages; 0 where none is left."""
        for after in range(behind, behind + self.counts[i]):
            if after and self._fits(i, "first", left, left, after):
                return 0
            k = self.most_layers(i, "middle" if after else "last", left, after)
            if k <= 0:
                break
            left -= k
        return left
