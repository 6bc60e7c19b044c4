"""Tables of all stages of unlike pipelines by size of microbatches, slot and layers, and groups of numbers of microbatches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from planner.bounds.stage_options import DeviceKind, StageOption

Floats = NDArray[np.float64]
Whole = NDArray[np.intp]
Flags = NDArray[np.bool_]
FINE = 5e-3
"""Relative accuracy of the bound (a guess): each halving of it takes one more search for columns."""
GROUPED = 1.1
"""Ratio of the most to the fewest microbatches that are priced together first (a guess)."""
APART = 8
"""Microbatches up to which replicas are told apart by their widest slot (a guess): of more, fill and drain are a small part."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Numbers of microbatches that are priced together, one group in each place: the index of their size, the index of the
    widest slot of their replicas, whether these are those with such a slot only, and the fewest and most microbatches."""

    size: Whole
    width: Whole
    wide: Flags
    fewest: Floats
    most: Floats

    def __len__(self) -> int:
        return len(self.size)

    @property
    def are_narrow(self) -> Flags:
        """Whether all numbers of a group are taken for its largest: they differ by less than the accuracy of the bound."""
        return np.asarray(self.most <= self.fewest * (1 + FINE))

    def only(self, which: Flags) -> Groups:
        """Some of them."""
        return Groups(*(getattr(self, field.name)[which] for field in fields(self)))

    def halves(self) -> Groups:
        """The same without the fewest of each, in two parts each."""
        middle = np.floor((self.fewest + self.most) / 2)
        fewest, most = np.concatenate((self.fewest + 1, middle + 1)), np.concatenate((middle, self.most))
        twice = Groups(np.tile(self.size, 2), np.tile(self.width, 2), np.tile(self.wide, 2), fewest, most)
        return twice.only(fewest <= most)


def grouped(most: int) -> list[tuple[int, int]]:
    """The whole numbers up to `most` in groups, (fewest, most) of each."""
    groups, fewest = list[tuple[int, int]](), 1
    while fewest <= most:
        last = min(max(fewest, math.floor(fewest * GROUPED)), most)
        groups.append((fewest, last))
        fewest = last + 1
    return groups


class StageTables:
    """Seconds of all stages, by the size of microbatches (first axis), kind of slot (second) and layers (third).

    whole: k (f + b) + r f; passing: k (f + i) + r f; behind: k i + r f; ahead: k f; head: of the head. forward and through: the
    least seconds of a layer's forward, and of that and the gradients of its inputs, by size and widest slot (second axis).
    slots: the kind and the devices of each; allowed, widest: by widest slot, whether a slot is no wider, and is as wide."""

    def __init__(self, kinds: Sequence[DeviceKind], layers: int):
        self.layers = layers
        self.sizes = sorted({size for kind in kinds for size in kind.options})
        every = [(size, one) for kind in kinds for size, own in kind.options.items() for one in own]
        self.slots = sorted({(one.kind, one.devices) for _, one in every})
        wide = np.array([devices for _, devices in self.slots])
        widths = np.unique(wide)[:, None]
        self.allowed, self.widest = wide <= widths, wide == widths
        shape = len(self.sizes), len(self.slots)
        self.whole, self.passing, self.behind, self.ahead = (np.full((*shape, layers + 1), np.inf) for _ in range(4))
        self.head = np.full(shape, np.inf)
        self.forward, self.through = (np.full((shape[0], len(widths)), np.inf) for _ in range(2))
        for size, one in every:
            self._fill(self.sizes.index(size), self.slots.index((one.kind, one.devices)), one)

    def _fill(self, size: int, slot: int, one: StageOption) -> None:
        again = np.array(one.again)
        layers = np.arange(len(again), dtype=float)
        where = size, slot, slice(len(again))
        self.whole[where] = layers * one.both + again
        self.passing[where] = layers * (one.forward + one.inputs) + again
        self.behind[where] = layers * one.inputs + again
        self.ahead[where] = layers * one.forward
        self.head[size, slot] = one.head
        wider = self.allowed[:, slot]
        self.forward[size, wider] = np.minimum(self.forward[size, wider], one.forward)
        self.through[size, wider] = np.minimum(self.through[size, wider], one.forward + one.inputs)

    def groups(self, batch: int) -> Groups:
        """All numbers of microbatches of each size in groups; one replica leaves a sample to another one."""
        rows = list[tuple[int, int, bool, int, int]]()
        last = len(self.allowed) - 1
        for index, size in enumerate(self.sizes):
            for fewest, most in grouped((batch - 1) // size):
                widths = range(last + 1) if fewest <= APART else (last,)
                able = (width for width in widths if np.isfinite(self.forward[index, width]))
                rows += [(index, width, fewest <= APART, fewest, most) for width in able]
        found = np.array(rows, dtype=float).reshape(-1, 5)
        indices = found[:, :2].astype(np.intp)
        return Groups(indices[:, 0], indices[:, 1], found[:, 2] > 0, found[:, 3], found[:, 4])

    def most(self, groups: Groups, before: Floats, deadline: float) -> Whole:
        """The most layers of a stage behind so many layers (first axis) for each group (second) on each slot (third); -1 where
        it has no time for any."""
        own, m = (groups.size, groups.width), groups.fewest
        filled, passed = ((deadline - before[:, None] * least[own]) / m for least in (self.forward, self.through))
        found = np.empty((*filled.shape, len(self.slots)), dtype=np.intp)
        latest = self._latest(groups, deadline)
        for size in np.unique(groups.size):
            some = groups.size == size
            for slot in range(len(self.slots)):
                work = np.searchsorted(self.whole[size, slot], filled[:, some], side="right")
                passing = np.searchsorted(self.passing[size, slot], passed[:, some], side="right")
                found[:, some, slot] = np.minimum(np.minimum(work, passing) - 1, latest[some, slot])
        return found

    def _latest(self, groups: Groups, deadline: float) -> Whole:
        """The most layers of a stage whose last microbatch passes backward through all layers in time, wherever it is."""
        own, m, layers = groups.size, groups.fewest[:, None, None], np.arange(self.layers + 1, dtype=float)
        others = (self.layers - layers) * self.through[own, groups.width][:, None, None]
        seconds = others + self.ahead[own] + m * self.behind[own]
        return np.asarray(np.sum(seconds <= deadline, axis=-1) - 1, dtype=np.intp)

    def with_head(self, groups: Groups, before: int, most: Whole, deadline: float) -> Flags:
        """Whether a stage on each slot may hold all layers behind so many of them, and the head."""
        left = self.layers - before
        filled = (deadline - before * self.forward[groups.size, groups.width]) / groups.fewest
        seconds = self.whole[groups.size, :, left] + self.head[groups.size]
        return np.asarray((most >= left) & (seconds <= filled[:, None]))
