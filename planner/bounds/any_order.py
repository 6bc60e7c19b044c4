"""The deadline test of all pipelines on two or more of some node classes, in any order, by a dynamic programme over subsets.

Idea. The greedy filling of `planner.bounds.greedy_filling` fills the stages of one class after another, from the last stage to
the first. What it leaves to the classes before depends on the classes that are filled, and on the first of them, to which the
class before sends its messages. All other numbers hold for every order (`OrderedStages.in_any_order`). So one number for each
subset of the classes and each first class suffices: the fewest layers that stages of exactly these classes, the last ones of a
pipeline, leave over (M. Held, R. M. Karp, A Dynamic Programming Approach to Sequencing Problems, Journal of SIAM 10(1), 1962).
With n classes there are fewer than n^2 2^n fillings, in place of more than n! orders.

Invariant: no feasible pipeline whose last classes are a subset, with this class first, leaves fewer layers to the classes
before than the programme says. By the exchange argument of the greedy filling, fewer layers at the begin of a class leave fewer
at its end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from planner.bounds.greedy_filling import Filling
from planner.bounds.ordered_stages import OrderedStages, most_by_compute
from planner.bounds.stage_sizes import StageSizes
from planner.costs.node_classes import NodeClass


class AnyOrder:
    """The deadline test of all pipelines on two or more of some classes in any order.

    Without `stages`, only compute and memory are tested, and pipelines on one class, too."""

    def __init__(self, classes: Sequence[NodeClass], stages: OrderedStages | None = None):
        """stages: of the same classes, in any order."""
        self.order, self._stages = tuple(classes), stages

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        if sum(option.max_stages * self._most(option, seconds) for option in self.order) < self._layers:
            return False
        return self._stages is None or SubsetFilling(self._stages, seconds).succeeds()

    @property
    def _layers(self) -> int:
        return self.order[0].workload.model.layers if self.order else 1

    def _most(self, option: NodeClass, seconds: float) -> int:
        """Most layers of one stage beside the fewest microbatches in flight, by the compute of its layers alone."""
        one = ((option.shape.vpp, 0),)
        return min(option.memory.most_layers("middle", one), most_by_compute(option, seconds))


class SubsetFilling(Filling):
    """The greedy filling of the classes of `stages` (`OrderedStages.in_any_order`) in every order at once."""

    def __init__(self, stages: OrderedStages, seconds: float):
        super().__init__(stages, seconds, stages.max_stages, None)
        self._back = [0.0] * len(self.counts)
        self.earlier, self.borders = [0] * len(self.counts), [0.0] * len(self.counts)
        self._ahead = 0.0

    def succeeds(self) -> bool:
        """Whether the stages can hold all layers in some order.

        `left[behind][i]`: fewest layers left before the stages of the classes `behind`, of which class i comes first."""
        classes, everything = range(len(self.counts)), 1 << len(self.counts)
        left: list[dict[int, int]] = [{} for _ in range(everything)]
        for behind in range(everything - 1):
            free = [i for i in classes if not behind >> i & 1]
            able = sum(self.able[i] for i in free)
            here = {j: layers for j, layers in left[behind].items() if layers <= able}
            if behind and not here:
                continue
            self._allow(free)
            for i in free:
                rest = self._least_left(i, here, behind)
                if not rest:
                    return True
                if rest < self.stages.layers:
                    left[behind | 1 << i][i] = rest
        return False

    def ends(self) -> Iterator[tuple[tuple[int, ...], bool]]:
        """Each end of an order of classes that holds enough layers, and whether it may be the whole order: the one that leaves
        the fewest layers before it first."""
        yield from self._ends((), self.stages.layers)

    def _ends(self, end: tuple[int, ...], left: int) -> Iterator[tuple[tuple[int, ...], bool]]:
        free = [i for i in range(len(self.counts)) if i not in end]
        if left > sum(self.able[i] for i in free):
            return
        behind = sum(1 << i for i in end)
        self._allow(free)
        found = sorted((self._least_left(i, {end[0]: left} if end else {}, behind), i) for i in free)
        for rest, i in found:
            if rest < left or not rest:
                yield (i, *end), not rest
                yield from self._ends((i, *end), max(rest, 1))  # with more classes, each holds a layer

    def _least_left(self, i: int, here: dict[int, int], behind: int) -> int:
        """Fewest layers left before the stages of class i, over the classes that may follow it; all layers: none is possible.

        here: class -> fewest layers left before its stages. Each class has a message of its own from class i."""
        if not behind:
            return self._filled(i, self.stages.layers, 0)
        fewest = self.stages.layers
        for j, layers in here.items():
            self._ahead = self.stages.neighbours.between[i][j]
            if math.isfinite(self._ahead):
                rest = self._filled(i, layers, behind.bit_count())
                fewest = min(fewest, rest if rest < layers else fewest)
        return fewest

    def sizes(self, i: int, role: str, after: int) -> StageSizes:
        """Seconds of a stage of class i by its layers, with the message to the stage behind it."""
        sends = self.stages.sending(self._ahead if role != "last" else 0.0, self.back(i) if role != "first" else 0.0)
        return self.stages.sizes(i, role, after, self.pp, sends)

    def back(self, i: int) -> float:
        """Least seconds of a message from a stage of class i to the stage before it, on one of the free classes."""
        return self._back[i]

    def _messages(self, i: int, hops: int) -> float:
        return self.back(i) + (hops - 1) * self.hop[i] if hops else 0.0

    def _allow(self, free: Sequence[int]) -> None:
        """Let the layers before a stage be on the classes `free` only."""
        self._free = self.stages.neighbours.before(tuple(free))
        self.hop, self.stages_before, self.by_rate = self._free.hop, self._free.stages, self._free.by_rate
        self.longest = [max(1, *(self.most[i] for i in free))] * len(self.counts)

    def _filled(self, i: int, left: int, behind: int) -> int:
        """Fewest layers left before the stages of class i, behind which `behind` classes have stages; 0 where none is left."""
        for after in range(behind, behind + self.counts[i]):
            if after > behind:
                self._ahead = self.stages.neighbours.between[i][i]
            if behind and self._fits(i, "first", left, left, after):
                return 0
            nearest = (self._free.outside if after == behind + self.counts[i] - 1 else self._free.inside)[i]
            self._back[i] = nearest if math.isfinite(nearest) else 0.0
            before = self.fewest_before(i, "middle" if after else "last", left, after)
            if before is None:
                break
            left = min(left, before)
        return left
