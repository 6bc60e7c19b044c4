"""The layers of a model by kinds: which a range of layers has, and the workload of a stage that holds them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from sim.workload.model import Model
from sim.workload.workload import Workload

Counts: TypeAlias = tuple[int, ...]
"""Number of layers of each kind, in the order of `Layers.kinds`."""
Ends: TypeAlias = tuple[bool, bool]
"""Whether a stage has the embedding, and whether it has the head."""


class Layers:
    """The layers of a model: their kinds in order, and the workload of a stage that holds some of them.

    The layers that predict further tokens are on the stage of the head, and like the last layer."""

    def __init__(self, workload: Workload):
        model = workload.model
        kinds = [model.kinds(index, index + 1)[0][1] for index in range(model.layers)]
        self.workload, self.number, self.further = workload, model.layers, model.mtp_layers
        self.kinds: tuple[Model, ...] = tuple(dict.fromkeys(kinds))
        self._workloads: dict[tuple[Counts, bool], Workload] = {}
        self.order = tuple(self.kinds.index(kind) for kind in kinds)
        """The kind of each layer."""
        self.last, self._counts = self.order[-1], dict[tuple[int, int], Counts]()

    def counts(self, first: int, past: int) -> Counts:
        """Number of layers of each kind from `first` up to, not including, `past`."""
        if (first, past) not in self._counts:
            own = self.order[first:past]
            self._counts[first, past] = tuple(own.count(kind) for kind in range(len(self.kinds)))
        return self._counts[first, past]

    @property
    def every(self) -> Counts:
        """Number of layers of each kind that a microbatch passes, those that predict further tokens included."""
        return self.with_further(self.counts(0, self.number))

    def with_further(self, counts: Counts) -> Counts:
        """The layers of a stage with the head: those that predict further tokens too."""
        return tuple(n + self.further * (index == self.last) for index, n in enumerate(counts))

    def of_stage(self, counts: Counts, head: bool) -> Counts:
        """The layers of a stage, those that predict further tokens included where it has the head."""
        return self.with_further(counts) if head else counts

    def only(self, kind: int, number: int) -> Counts:
        """So many layers of one kind."""
        return tuple(number * (index == kind) for index in range(len(self.kinds)))

    def of(self, counts: Counts, head: bool) -> Workload:
        """The workload of a stage with these layers, and with the head."""
        if (counts, head) not in self._workloads:
            held = self.of_stage(counts, head)
            found = replace(self.workload, held=tuple((n, kind) for n, kind in zip(held, self.kinds, strict=True) if n))
            self._workloads[counts, head] = found
        return self._workloads[counts, head]
