"""Gradient buckets of a stage: what each carries over which groups, and what part of the stage's compute belongs to it.

A stage of alike replicas has one gradient group for all its weights. Its buckets are equal: weights of embedding and head are
spread over the layers of their stage, and so are the seconds of a pass. In unlike pipelines each section of the stage
(`sim.plan.pipelines`) has buckets of its own, because other ranks sum it; a bucket then has the part of a pass that its weights
are of those of the stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sim.kernels import memory
from sim.kernels.payloads import buckets, gradient_bytes, parameter_bytes
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.plan.sections import Section
from sim.units import Bytes
from sim.workload.workload import Workload

Shared = tuple[tuple[str, Bytes], ...]
"""(kind of group, payload) of the collectives of one bucket."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """`number` equal buckets of the weights of one section of a stage, or of all weights of the stage (section 0).

    size: weights of one of them over those of a mean bucket of the stage. gradients, weights: what each bucket carries."""

    section: int
    number: int
    size: float
    gradients: Shared
    weights: Shared

    @property
    def whole(self) -> Buckets:
        """All of them as one."""
        gradients, weights = (tuple((k, n * self.number) for k, n in one) for one in (self.gradients, self.weights))
        return replace(self, number=1, gradients=gradients, weights=weights)

    def each(self) -> Iterator[Buckets]:
        """Every bucket by itself."""
        yield from (self,) * self.number


def buckets_of_stage(plan: Plan, stage: int, sections: tuple[Section, ...] = ()) -> tuple[Buckets, ...]:
    """The buckets of a stage, in the order of its layers; `sections` in unlike pipelines.

    Each of a section's slices has as many buckets, on every rank that holds it: those of a rank with one slice."""
    config, workload = plan.config_of((stage,)), plan.workload_of((stage,))
    if not sections:
        shape = (plan.stages[stage].layers, *plan.ends((stage,)))
        return (_equal(workload, config, shape, 0),)
    shapes = [(one.layers, one.embedding, one.head) for one in sections]
    workloads = [plan.workload.of_layers(one.first, one.past_last, one.head) for one in sections]
    parameters = [memory.stage_parameters(held, config, *shape) for held, shape in zip(workloads, shapes, strict=True)]
    found = [
        _equal(held, _of_one_slice(config, one), shape, one.number)
        for one, held, shape in zip(sections, workloads, shapes, strict=True)
    ]
    mean = sum(parameters) / sum(one.number for one in found)
    sizes = (own / one.number / mean for own, one in zip(parameters, found, strict=True))
    return tuple(replace(one, size=size) for one, size in zip(found, sizes, strict=True)) if len(found) > 1 else tuple(found)


def _of_one_slice(config: ParallelConfig, section: Section) -> ParallelConfig:
    """The configuration of a rank with one slice of a section's dense weights, and of its routed experts, whose gradients as
    many ranks sum as with that of the stage. It has the fewest replicas for these degrees; the other ranks are those of other
    pipelines, fewer than none where that many replicas are not in the plan."""
    if config.other_edp is None:
        return replace(config, tp=section.slices)
    mesh = section.number_of_slices("edp")
    dp = max(1, mesh // section.slices)
    return replace(
        config, tp=section.slices, etp=section.expert_slices, ep=section.expert_parts, cp=1, dp=dp, num_microbatches=(1,) * dp,
        sequence_parallel=True, other_dp_cp=config.gradient_ranks - dp,
        other_edp=config.expert_gradient_ranks - section.slices * dp // mesh,
    )  # fmt: skip


def _equal(workload: Workload, config: ParallelConfig, shape: tuple[int, bool, bool], section: int) -> Buckets:
    """Equal buckets of layers, embedding and head."""
    number = buckets(workload, config, *shape)
    gradients, weights = (
        tuple((kind, nbytes / number) for kind, nbytes in whole(workload, config, *shape))
        for whole in (gradient_bytes, parameter_bytes)
    )
    return Buckets(section, number, 1.0, gradients, weights)
