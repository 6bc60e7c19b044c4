"""Measured seconds of a model's parts on a device: what a profile says in place of the formulas of `sim.kernels.formulas`.

A profile holds for what it was measured with: the model's shape, sequence length, precision, tensor-parallel degree, and the
attention kernel and fusions of the stack that was profiled. Between two profiled microbatch sizes seconds are linear in the
microbatch size; outside of them, and at a tensor-parallel degree that was not profiled, the formulas stand. At tp > 1 the
tensor-parallel collectives of the profiled node are inside the measured seconds (`sim.analytic.costs` and `sim.engine.engine`
leave them out), unless a row says that its parts were measured alone.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from sim.units import Seconds
from sim.workload.model import Model, Workload

Both: TypeAlias = tuple[Seconds, Seconds]
"""Seconds of the forward and of the backward of one microbatch."""


@dataclass(frozen=True, slots=True)
class Row:
    """Measured seconds of one rank: of a layer, the embedding and the head (None: formula), and of Adam for each parameter.

    `collectives`: whether the exchanges of tensor-parallel ranks are inside.
    """

    model: Model
    seq_len: int
    precision: str
    tp: int
    microbatch_size: int
    layer: Both
    embedding: Both
    head: Both | None = None
    update: Seconds | None = None
    collectives: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """All rows of one device."""

    rows: tuple[Row, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.rows))

    def __hash__(self) -> int:
        """Reckoned once: seconds are cached by device."""
        return self._hash


def shape(model: Model) -> Model:
    """A model without what does not change the seconds of its parts: name, tied embedding, learned positions."""
    return replace(model, name="", tied_embeddings=True, learned_positions=0)


@functools.lru_cache(maxsize=4096)
def look(profile: Profile, workload: Workload, precision: str, tp: int, microbatch_size: int) -> tuple[Row | None, str]:
    """The row for a workload that the device runs at `precision`, and what it rests on; None and why, where formulas stand."""
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
        return None, f"formula: tp {tp} is not profiled; {', '.join(map(str, known))} are"
    for row in rows:
        if row.microbatch_size == microbatch_size:
            return row, "measured"
    for low, high in pairwise(rows):
        if low.microbatch_size < microbatch_size < high.microbatch_size:
            between = f"between microbatch sizes {low.microbatch_size} and {high.microbatch_size}"
            return _between(low, high, microbatch_size), f"interpolated {between}"
    sizes = f"{rows[0].microbatch_size} to {rows[-1].microbatch_size}"
    return None, f"formula: microbatch size {microbatch_size} is outside of those profiled, {sizes}"


def _between(low: Row, high: Row, microbatch_size: int) -> Row:
    part = (microbatch_size - low.microbatch_size) / (high.microbatch_size - low.microbatch_size)

    def blend(a: Both, b: Both) -> Both:
        return a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])

    return replace(
        low,
        microbatch_size=microbatch_size,
        layer=blend(low.layer, high.layer),
        embedding=blend(low.embedding, high.embedding),
        head=blend(low.head, high.head) if low.head and high.head else None,
    )
