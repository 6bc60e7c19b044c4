"""Measured seconds of a model's parts on a device, which replace the formulas of `sim.kernels.compute`.

A profile is valid for what it was measured with: model shape, sequence length, precision, tensor-parallel degree, and the
attention kernel and fusions of the profiled stack. Between two profiled microbatch sizes the seconds are interpolated linearly;
outside of them, and at a tensor-parallel degree that was not profiled, the formulas are used. At tp > 1 the measured seconds
include the tensor-parallel collectives of the profiled node (`sim.analytic.stage_costs` and `sim.engine.durations` then leave
them out), unless a row says that its ranks were measured apart.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from sim.units import Seconds
from sim.workload.model import Model
from sim.workload.workload import Workload

ForwardBackward: TypeAlias = tuple[Seconds, Seconds]
"""Seconds of the forward and of the backward pass of one microbatch."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """Measured seconds of one rank: layer, embedding, head, and `update`, the seconds of Adam per parameter (None: use
    formula).

    `collectives`: whether the seconds include the exchanges of tensor-parallel ranks.
    """

    model: Model
    seq_len: int
    precision: str
    tp: int
    microbatch_size: int
    layer: ForwardBackward
    embedding: ForwardBackward
    head: ForwardBackward | None = None
    update: Seconds | None = None
    collectives: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """All measured rows of one device."""

    rows: tuple[MeasuredRow, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.rows))

    def __hash__(self) -> int:
        """Hash, computed once: kernel times are cached by device."""
        return self._hash


def shape(model: Model) -> Model:
    """A model without the fields that do not change the seconds of its parts: name, tied embedding, learned positions."""
    return replace(model, name="", tied_embeddings=True, learned_positions=0)


@functools.lru_cache(maxsize=4096)
def lookup(
    profile: Profile, workload: Workload, precision: str, tp: int, microbatch_size: int
) -> tuple[MeasuredRow | None, str]:
    """(row, its origin) for a workload that the device runs at `precision`; (None, reason) if formulas must be used."""
    model = shape(workload.model)
    rows = [row for row in profile.rows if row.model == model]
    if not rows:
        return None, f"formula: no model of the shape of {workload.model.name} is profiled"
    rows = [row for row in rows if (row.seq_len, row.precision) == (workload.seq_len, precision)]
    if not rows:
        return None, f"formula: not profiled with {workload.seq_len} tokens at {precision}"
    known = sorted({row.tp for row in rows})
    rows = sorted((row for row in rows if row.tp == tp), key=lambda row: row.microbatch_size)
    if not rows:
        return None, f"formula: tp {tp} is not profiled, only {', '.join(map(str, known))}"
    for row in rows:
        if row.microbatch_size == microbatch_size:
            return row, "measured"
    for low, high in pairwise(rows):
        if low.microbatch_size < microbatch_size < high.microbatch_size:
            between = f"between microbatch sizes {low.microbatch_size} and {high.microbatch_size}"
            return _between(low, high, microbatch_size), f"interpolated {between}"
    sizes = f"{rows[0].microbatch_size} to {rows[-1].microbatch_size}"
    return None, f"formula: microbatch size {microbatch_size} is outside the profiled sizes {sizes}"


def _between(low: MeasuredRow, high: MeasuredRow, microbatch_size: int) -> MeasuredRow:
    part = (microbatch_size - low.microbatch_size) / (high.microbatch_size - low.microbatch_size)

    def blend(a: ForwardBackward, b: ForwardBackward) -> ForwardBackward:
        return a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])

    return replace(
        low,
        microbatch_size=microbatch_size,
        layer=blend(low.layer, high.layer),
        embedding=blend(low.embedding, high.embedding),
        head=blend(low.head, high.head) if low.head and high.head else None,
    )
