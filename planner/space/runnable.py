"""Which shapes the launch target of a request can run: with one stage, and in a pipeline of several stages."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from planner.request import Request
from planner.space.shape import Shape
from planner.target import Target
from sim.errors import PlanError
from sim.field_changes import changed
from sim.plan import schedules
from sim.plan.offloading import ACTIVATIONS
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload

Kind = tuple[object, ...]
"""The values of `SAME`, of a shape."""
SAME = tuple(one.name for one in fields(Shape) if one.init and one.name not in ("dp", "microbatch_size"))
"""Fields of a shape that a target is asked about as they are; of the others it is asked about small numbers."""
_kind = operator.attrgetter(*SAME)


def runs(request: Request, shape: Shape, pp: int) -> bool:
    """Whether the target of a request, if it has one, can run a shape in pipelines of pp stages.

    Targets are asked for one and for two stages only: whether there are borders decides what they can express."""
    if request.target is None:
        return True
    return not _fault(request.target, request.workload, _kind(shape), _microbatches(request.workload, shape), min(pp, 2))


def fault(request: Request, shape: Shape) -> str:
    """The first property of a shape that the target cannot express with one stage, where it can express the shape with no
    number of stages; that with several where only these are asked for. Empty where the target can run the shape."""
    if request.target is None:
        return ""
    probe = request.target, request.workload, _kind(shape), _microbatches(request.workload, shape)
    one = _fault(*probe, 1)
    several = one and _fault(*probe, 2)
    return one if several and shape.vpp == 1 and (request.wishes.pp or 1) == 1 else several


def runs_under(request: Request, shape: Shape) -> Callable[[str, int, int], bool]:
    """Whether the target can run a shape under a schedule, vpp and ZeRO stage, with some number of stages: `fault` of many."""
    if request.target is None:
        return lambda name, vpp, zero: True
    probe = request.target, request.workload, _kind(shape), _microbatches(request.workload, shape)
    return functools.partial(_runs_under, *probe)


@functools.lru_cache(maxsize=65536)
def _runs_under(
    target: Target, workload: Workload, kind: Kind, microbatches: tuple[int, ...], name: str, vpp: int, zero: int
) -> bool:
    facts = dict(zip(SAME, kind, strict=True)) | {"schedule": name, "vpp": vpp, "zero_stage": zero}
    probe = target, workload, tuple(facts.values()), microbatches
    return not (_fault(*probe, 1) and _fault(*probe, 2))


def takes_unlike_microbatches(request: Request, shape: Shape, pp: int) -> bool:
    """Whether the target of a request, if it has one, can run a shape whose replicas have unlike numbers of microbatches, in
    pipelines of pp stages."""
    if request.target is None:
        return True
    replicas = _few_replicas(shape)
    numbers = (2,) * (replicas - 1) + (1,)
    return replicas > 1 and not _fault(request.target, request.workload, _kind(shape), numbers, min(pp, 2))


def recomputes_blocks(request: Request) -> tuple[bool, bool]:
    """Whether pipelines of one stage, and of several stages, may recompute as few layers as fit
    (`sim.plan.parallel_config.BLOCK`): the target of the request, if it has one, can recompute some layers of each stage and
    not the others, and a layer that is not recomputed is the faster one, which does not hold where hosts keep activations: it
    has more to copy.

    Any training framework (`planner.target.ANY`) cannot where those that can run the workload at all cannot."""
    if ACTIVATIONS in request.wishes.offloaded:
        return False, False
    if request.target is None:
        return True, True
    if request.topology.stack.overlap_expert_communication and (request.wishes.ep or 1) > 1:
        beside = ParallelConfig(dp=2, ep=2, overlap_expert_communication=True, num_microbatches=(1, 1))
        if _is_able(request, beside) and not _is_able(request, replace(beside, recompute="full")):
            return False, False
    one, several = (_takes_blocks(request.target, request.workload, pp) for pp in (1, 2))
    return one, several


@functools.lru_cache(maxsize=1024)
def _takes_blocks(target: Target, workload: Workload, pp: int) -> bool:
    """Whether a target recomputes some layers of each of pp stages, where it recomputes all of them."""
    whole = ParallelConfig(pp=pp, recompute="full", num_microbatches=(pp,))
    some = replace(whole, recompute_layers=(1,))
    faults, alone = (list(target.unsupported_layout(config, workload)) for config in (some, whole))
    return not any(text.startswith("recompute") for text in faults) and bool(faults) == bool(alone)


def refuses_model(request: Request) -> bool:
    """Whether the target of a request cannot express its model or its training, whatever the layout: something is refused with
    one device, and also with two in each plain way."""
    if request.target is None:
        return False
    two = ParallelConfig(tp=2, num_microbatches=(1,)), ParallelConfig(dp=2, num_microbatches=(1, 1))
    plain = ParallelConfig(num_microbatches=(1,)), *two, ParallelConfig(pp=2, num_microbatches=(2,))
    faults = (set(request.target.unsupported_layout(config, request.workload)) for config in plain)
    return bool(set.intersection(*faults))


def _is_able(request: Request, config: ParallelConfig) -> bool:
    assert request.target is not None
    return not any(request.target.unsupported_layout(config, request.workload))


def _microbatches(workload: Workload, shape: Shape) -> tuple[int, ...]:
    """The microbatches of the replicas of a small shape of the same kind: targets ask whether there are several replicas and
    microbatches, and whether replicas are equal, not for their number."""
    most = min(shape.microbatches(workload), 2)
    least = most if shape.divides(workload) else most - 1
    return (most,) * (_few_replicas(shape) - 1) + (max(least, 1),)


def _few_replicas(shape: Shape) -> int:
    return min(shape.dp, 2) if shape.expert_rows == 1 and shape.zero_shard_size is None else shape.dp


@functools.lru_cache(maxsize=65536)
def _fault(target: Target, workload: Workload, kind: Kind, microbatches: tuple[int, ...], pp: int) -> str:
    facts: dict[str, Any] = dict(zip(SAME, kind, strict=True))
    probe = Shape(dp=len(microbatches), microbatch_size=1, **facts)
    try:
        config = changed(probe.config(workload, pp), num_microbatches=microbatches)
        if probe.cluster_tp and pp > 1:
            config = changed(config, stage_tp=(probe.tp, probe.least_tp))
    except PlanError as error:  # such as virtual stages of a single stage
        return str(error)
    return next(iter(target.unsupported_layout(config, workload)), "")


@functools.lru_cache(maxsize=1024)
def schedules_for(target: Target | None, workload: Workload) -> tuple[str, ...]:
    """The schedules that are searched: those of `sim.plan.schedules.is_searched`; where the target plays none of them in a
    pipeline, those that it plays."""
    usual = tuple(filter(schedules.is_searched, schedules.names()))
    if target is None or any(_plays(target, workload, name) for name in usual):
        return usual
    others = filter(schedules.is_planned, schedules.names())
    return tuple(name for name in others if _plays(target, workload, name)) or usual


@functools.lru_cache(maxsize=1024)
def _plays(target: Target, workload: Workload, name: str) -> bool:
    """Whether a target has the schedule in pipelines."""
    vpp = 2 if schedules.get(name).CHUNKED else 1
    try:
        config = ParallelConfig(pp=2, vpp=vpp, schedule=name, num_microbatches=(2,))
    except PlanError:  # a schedule with a list
        return False
    return not any(text.startswith("schedule ") for text in target.unsupported_layout(config, workload))
