"""Per-rank programs: tuples of actions such as forward, send, or all_reduce.

A schedule gives the compute actions of a pipeline rank: F (forward), B (backward) and W (weight gradient, in schedules that
split it from B), each with a stage and a microbatch. Lowering (`sim.kernels.lowering`) adds communication and the optimizer.
Actions name peers by pipeline rank and groups by kind, never by global rank, so that ranks with the same work have equal
programs.

Text form: `F0`, `B3`; with several stages on a rank the stage comes first, as in PyTorch's pipelining: `2F0`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, TypeAlias

COMPUTE = ("F", "B", "W")
"""Kinds of compute actions: forward, backward, weight gradient."""
PAIR, WHOLE = "pair", "whole"
"""`operation` of an F that runs at the same time as the next B, and of a B whose W follows before its gradient is sent
(`sim.plan.schedules.dualpipev`)."""
BESIDE = {"ring": "send_recv", "beside": "all_to_all", "gather": "all_gather", "scatter": "reduce_scatter"}
"""Kinds of exchanges that run beside compute of their microbatch -> the operation of their group."""

TENSOR = ("gather", "scatter")
"""Those of them that are collectives of tensor-parallel ranks."""


class Action(NamedTuple):
    """One action of one rank.

    kind        F, B, W           compute on `stage` for `microbatch`; `part` of `parts` if cut at gradient buckets;
                                  `times` is the size of the part over that of a mean part
                send, recv        message to or from pipeline rank `peer`: activations (`operation` "F") or gradients ("B")
                ring              `times` exchanges of `nbytes` around this rank's `group` while it computes the attention core
                                  of a forward (`operation` "F"), a backward ("B") or a forward recomputed in a backward
                                  ("R"); blocks until both have ended
                beside            `times` exchanges of tokens among this rank's `group`, each of `nbytes`, while it computes
                                  shared experts: `operation` is dispatch or combine with F, B or R; blocks until both have
                                  ended (`sim.kernels.beside`)
                gather, scatter   `times` collectives of tensor-parallel ranks, each of `nbytes`, while it computes a product of
                                  its layers: `operation` is that with F, B or R (`sim.kernels.tensor_overlap`)
                collective        `times` collectives `operation` of `nbytes` each in this rank's `group`; blocks until the end
                start, wait       start of a collective without blocking, and wait for its end; `part` identifies the pair
                optimizer         the optimizer step
    nbytes      payload in bytes: of a message, or of the whole buffer that a collective reduces or gathers
    section     the layers whose gradients or weights a collective has, in unlike pipelines (`sim.plan.pipelines`)
    """

    kind: str
    stage: int = 0
    microbatch: int = 0
    part: int = 0
    parts: int = 1
    peer: int = -1
    group: str = ""
    operation: str = ""
    nbytes: float = 0.0
    times: float = 1
    section: int = 0

    def __str__(self) -> str:
        head, tail = self.text
        return head if tail is None else f"{head}{self.microbatch}{tail}"

    def earlier(self, microbatches: int) -> Action:
        """The same action for the microbatch `microbatches` before."""
        return self._replace(microbatch=self.microbatch - microbatches)

    @property
    def text(self) -> tuple[str, str | None]:
        """Text form as (text before, text after) the microbatch number; the second is None if the text has no such number."""
        if self.kind in COMPUTE:
            return self.kind, f".{self.part}" if self.parts > 1 else ""
        if self.kind in ("send", "recv", *BESIDE):
            return f"{self.kind} {self.operation}", ""
        if self.kind == "collective":
            return f"{self.group} {self.operation}", None
        if self.kind == "optimizer":
            return "optimizer", None
        return f"{self.kind} {self.group} {self.operation}.{self.part}", None


@functools.lru_cache(maxsize=1 << 16)
def compute(kind: str, stage: int, microbatch: int, operation: str = "") -> Action:
    """A whole compute action; the same object in the programs of all schedules, because the planner makes millions of them."""
    return Action(kind, stage, microbatch, operation=operation)


Program: TypeAlias = tuple[Action, ...]


def text(program: Program, stages: int = 1) -> str:
    """Text of a program; with several stages on a rank, the stage precedes the letter of a compute action."""
    return " ".join((f"{a.stage}{a}" if stages > 1 and a.kind in COMPUTE else str(a)) for a in program)
