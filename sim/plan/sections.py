"""Sections of a model in unlike pipelines (`sim.plan.pipelines`): runs of layers whose gradients the same ranks sum."""

from __future__ import annotations

from dataclasses import dataclass

from sim.plan.parallel_config import ParallelConfig


@dataclass(frozen=True, slots=True)
class Section:
    """Layers `first` up to, not including, `past_last`, which no stage of any pipeline cuts; with the `embedding`, or the
    `head`. `slices`: the largest tensor-parallel degree of the stages that hold it. Of its routed experts, `expert_parts` and
    `expert_slices` of each part: the largest ep and etp."""

    number: int
    first: int
    past_last: int
    embedding: bool
    head: bool
    slices: int = 1
    expert_parts: int = 1
    expert_slices: int = 1

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.past_last - self.first

    def number_of_slices(self, kind: str) -> int:
        """Slices of its dense weights (kind dp), or of its routed experts, part by part (edp)."""
        return self.slices if kind == "dp" else self.expert_parts * self.expert_slices

    def slices_of(self, config: ParallelConfig, own: int, kind: str) -> list[int]:
        """The slices of a kind that a rank has; own: its number in its stage, whose configuration is given."""
        width, parts = (config.tp, 1) if kind == "dp" else (config.expert_tp, config.ep)
        slices, every = (self.slices, 1) if kind == "dp" else (self.expert_slices, self.expert_parts)
        part, one = divmod(own % (width * parts), width)
        of_part, of_slice = (range(at * n // m, (at + 1) * n // m) for at, n, m in ((part, every, parts), (one, slices, width)))
        return [number * slices + index for number in of_part for index in of_slice]

    @property
    def begin(self) -> int:
        """Its first unit (`sim.plan.pipelines`)."""
        return 0 if self.embedding else self.first + 1
