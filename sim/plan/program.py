"""Action: one thing that one rank does; a program is a tuple of them.

A schedule gives the compute actions of a pipeline rank: F (forward), B (backward), W (weight gradient, where a schedule
splits it off), each with a stage and a microbatch. Lowering adds what a rank does besides. Actions name peers by their
place in the pipeline and groups by their kind, never by rank, so that ranks that do the same have the same program.

Text form: `F0`, `B3`; with several stages on a rank the stage stands first, as in PyTorch's pipelining: `2F0`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

COMPUTE = ("F", "B", "W")


class Action(NamedTuple):
    """One thing that one rank does.

    kind        F, B, W           compute on `stage` for `microbatch`; `part` of `parts` where it is cut at buckets
                send, recv        activations ("F") or gradients ("B", in `operation`) to or from pipeline place `peer`
                ring              `times` exchanges of `nbytes` around this rank's `group` while it computes the attention core
                                  of a forward ("F"), a backward ("B") or a forward recomputed in it ("R", in
                                  `operation`); waits for the end of both
                collective        `times` collectives `operation` of `nbytes` each in this rank's `group`; waits for the end
                start, wait       the same without waiting, and the waiting; `part` tells them apart
                optimizer         the optimizer step
    nbytes      payload in bytes: of a message, or of the whole buffer that a collective reduces or gathers
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

    def __str__(self) -> str:
        head, tail = self.text
        return head if tail is None else f"{head}{self.microbatch}{tail}"

    def earlier(self, microbatches: int) -> Action:
        """The same for a microbatch so many before."""
        return self._replace(microbatch=self.microbatch - microbatches)

    @property
    def text(self) -> tuple[str, str | None]:
        """Text form: what stands before and behind the number of the microbatch; None behind where it has no such number."""
        if self.kind in COMPUTE:
            return self.kind, f".{self.part}" if self.parts > 1 else ""
        if self.kind in ("send", "recv", "ring"):
            return f"{self.kind} {self.operation}", ""
        if self.kind == "collective":
            return f"{self.group} {self.operation}", None
        if self.kind == "optimizer":
            return "optimizer", None
        return f"{self.kind} {self.group} {self.operation}.{self.part}", None


Program: TypeAlias = tuple[Action, ...]


def text(program: Program, stages: int = 1) -> str:
    """A program as people write it; with several stages on a rank, the stage before the letter."""
    return " ".join((f"{a.stage}{a}" if stages > 1 and a.kind in COMPUTE else str(a)) for a in program)
