"""The tasks of a step with attention and experts on two sets of ranks: streams, order and dependencies.

A stream runs its tasks one after the other, as a CUDA stream does. There are four: compute of the attention ranks, compute of
the expert ranks, dispatch (attention ranks to expert ranks) and combine (back). All ranks of a set behave alike, so that one
stream stands for all.

Between two layers of experts an attention task A computes the end of one layer and the attention of the next one; task 0 begins
with the embedding, task L ends with the head. The order is that of theorem 1 of arXiv 2504.03871:

attention   A0 of all microbatches, A1 of all, ..., then AL and its backward for one microbatch after the other, then the
            backward of A(L-1) of all, ..., of A0 of all
experts     E1 of all, ..., EL of all, then the backward of EL of all, ..., of E1 of all

Experts that attention ranks keep (X) come after the A of all microbatches before that layer (section 4.2); in the backward, of
all microbatches after it. A combine waits for the experts of both sets. Gradients travel on the same streams: those of results
to the experts by dispatch, those of tokens back by combine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

STREAMS = {"A": "attention", "X": "attention", "E": "experts", "D": "dispatch", "C": "combine"}
"""Kind of task -> its stream."""

Name: TypeAlias = tuple[str, bool, int, int, int]
"""(kind, whether backward, layer, microbatch, round)."""


class Task(NamedTuple):
    """A task: A, X, E, D or C of a microbatch. A has `layer` 0 to L, all others 1 to L. `after`: numbers of the tasks, in the
    order of `tasks`, that must have ended before."""

    kind: str
    backward: bool
    layer: int
    microbatch: int
    round: int
    after: tuple[int, ...]

    @property
    def stream(self) -> str:
        """The stream on which the task runs."""
        return STREAMS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}{self.layer}{'B' if self.backward else 'F'}{self.microbatch}"


def tasks(kept: tuple[int, ...], microbatches: int, rounds: int = 1) -> tuple[Task, ...]:
    """All tasks of a step, each after those that it depends on; those of a stream in the order in which it runs them.

    `kept`: experts of each layer on attention ranks; only whether there are any matters here."""
    listed: list[Task] = []
    numbers: dict[Name, int] = {}
    for name in _names(kept, microbatches, rounds):
        after = tuple(numbers[other] for other in _before(name, kept) if other in numbers)
        numbers[name] = len(listed)
        listed.append(Task(*name, after))
    return tuple(listed)


def _names(kept: tuple[int, ...], microbatches: int, rounds: int) -> Iterator[Name]:
    """Names of the tasks, in an order that is also that of each stream."""
    last, every = len(kept), range(microbatches)
    for turn in range(rounds):
        for layer in range(1, last + 1):
            for kind in ("A", "D", "X", "E", "C"):
                if kind != "X" or kept[layer - 1]:
                    yield from ((kind, False, layer - (kind == "A"), m, turn) for m in every)
        for m in every:
            yield "A", False, last, m, turn
            yield "A", True, last, m, turn
        for layer in range(last, 0, -1):
            for kind in ("D", "X", "E", "C", "A"):
                if kind != "X" or kept[layer - 1]:
                    yield from ((kind, True, layer - (kind == "A"), m, turn) for m in every)


def _before(name: Name, kept: tuple[int, ...]) -> Iterator[Name]:
    """Names of the tasks on other streams that a task waits for."""
    kind, backward, layer, m, turn = name
    if kind == "A":
        if backward and layer == len(kept):
            return  # right after its forward, on the same stream
        yield "C", backward, layer + 1 if backward else layer, m, turn
    elif kind == "D":
        yield "A", backward, layer if backward else layer - 1, m, turn
    elif kind == "C":
        yield "E", backward, layer, m, turn
        if kept[layer - 1]:
            yield "X", backward, layer, m, turn
    else:
        yield "D", backward, layer, m, turn
