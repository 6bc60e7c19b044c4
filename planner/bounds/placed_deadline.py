"""A deadline of a placement with mixed stages, and the sizes of its stages that are tested (`planner.bounds.mixed_filling`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat
from typing import NamedTuple, TypeAlias

from planner.costs.mixed_rings import NOTHING, Load, Shared
from sim.units import Seconds

Around: TypeAlias = tuple[Seconds, Seconds, float]
"""`OfSize.begin`, `OfSize.tail` and `OfSize.share`."""
Each: TypeAlias = tuple[Seconds, ...] | Seconds
"""Seconds of a layer on each stage of a pipeline; one number where all stages are alike."""
ROUNDED = 1e-12
"""Relative difference of seconds that is due to rounding."""


class OfSize(NamedTuple):
    """A stage of so many layers, with those before it.

    begin: seconds before the first forward, for gathers of its own weights; tail: seconds after its last backward, or weight
    gradient where schedules split the backward; share: least fraction of the first forward that follows these gathers."""

    stage: int
    layers: int
    before: int = 0
    begin: Seconds = 0.0
    tail: Seconds = 0.0
    share: float = 0.0


class SlowStage(NamedTuple):
    """A stage whose first forward begins, and whose reductions end after its last backward, within so many seconds at least.

    outside: most layers of the stages before it."""

    stage: int
    seconds: Seconds
    outside: int


@dataclass(frozen=True, slots=True)
class DeadlineOf:
    """Whether stages finish within `seconds`. forward: least fraction of a layer's seconds that is its forward; 0 leaves out
    fill, drain, tails and memory. most: layers of each stage by compute.

    after: the stage whose links take `shared` seconds, where the stages behind it are tested; None where all stages are. slow:
    stages whose own gathers and reductions take long."""

    seconds: Seconds
    forward: float
    most: Sequence[int]
    after: int | None = None
    shared: Shared = NOTHING
    slow: tuple[SlowStage, ...] = ()
    _outside: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    _passed: dict[tuple[int, int, int], list[Seconds]] = field(default_factory=dict)

    def outside(self, stage: int, first: int, links: Iterable[tuple[Load, ...]]) -> list[int]:
        """For each of the links that end at a stage, the most layers of the stages from `first` to it that do not load it."""
        if (stage, first) not in self._outside:
            loading = ({load.stage for load in link} for link in links)
            between = range(first, stage)
            self._outside[stage, first] = [sum(self.most[one] for one in between if one not in own) for own in loading]
        return self._outside[stage, first]

    def passed(self, each: Each, first: int, end: int, layers: int) -> Seconds:
        """Least seconds of a microbatch on the stages from `first` to before `end`, which have so many layers in all.

        each: seconds of a layer on each stage of the pipeline. Fewer layers than stages count as one on each."""
        stages = end - first
        if stages <= 0 or layers <= 0:
            return 0.0
        if isinstance(each, float):
            return max(layers, stages) * each
        key = id(each), first, end
        if key not in self._passed:
            self._passed[key] = least_sums(each[first:end], self.most[first:end])
        found = self._passed[key]
        return found[min(max(layers - stages, 0), len(found) - 1)]


def alike_or_all(each: Sequence[Seconds]) -> Each:
    """Seconds of a layer on each stage, as one number where all are equal but for rounding: their least."""
    least = min(each)
    return least if max(each) <= least * (1 + ROUNDED) else tuple(each)


def least_sums(each: Sequence[Seconds], most: Sequence[int]) -> list[Seconds]:
    """Least seconds of one layer on every stage and 0, 1, ... more on any of them, up to `most` on each; for the last of these
    numbers, and so all larger ones, no stages hold more.

    each: seconds of a layer on each stage. The layers beyond the first ones are on the fastest stages that have room."""
    room = sorted((seconds, max(number - 1, 0)) for seconds, number in zip(each, most, strict=True))
    return [*accumulate(chain.from_iterable(repeat(seconds, number) for seconds, number in room), initial=sum(each))]


def least_from(known: list[Around], k: int, largest: int, around: Callable[[int], Around]) -> Around:
    """The least of each number of `around` for k to `largest` layers. known: those from `largest` down that are known."""
    while len(known) <= largest - k:
        here = around(largest - len(known))
        begin, tail, share = map(min, known[-1] if known else here, here)
        known.append((begin, tail, share))
    return known[largest - k]
