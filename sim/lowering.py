"""Plan -> the program of a rank: the schedule's compute, and the communication that makes it right.

For every forward the activations are received before and sent after, for every backward the gradients; tensor-parallel
collectives follow the compute they belong to, those of all layers of a stage together. The distributed optimizer (ZeRO 1)
reduces gradients bucket by bucket behind the last backward of each stage, or its last W where weight gradients are split off
(`overlap_grad_reduce`; tensor-parallel collectives belong to B), and gathers the
parameters of the step before bucket by bucket ahead of the first forward (`overlap_param_gather`): a program is one step of
a steady run. ZeRO 2 and 3 reduce every microbatch's gradients behind its backward; ZeRO 3 (FSDP) gathers each layer's weights
before its forward and again before its backward, a few layers ahead (`memory.GATHERED_AHEAD`; arXiv 2304.11277, section 3.3).
Weights of embedding and head are spread over the layers of their stage. Under context parallelism the exchange of keys and
values goes on behind the attention of a forward or backward; under expert parallelism tokens go to their experts and back
around it. Gradients are reduced over the ranks that hold the same weights (`sim.memory.by_sharing`). A tied embedding's
gradient is summed between the two end stages, as Megatron-LM does, before the optimizer.

Ranks at the same pipeline place whose replicas have the same number of microbatches have the same program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from sim import memory, schedules
from sim.model import Workload
from sim.plan import GRADIENT_BYTES, ParallelConfig, Plan
from sim.program import COMPUTE, Action, Program
from sim.units import Bytes

BUCKET_PARAMETERS = 40e6
"""Parameters of one gradient bucket: Megatron-LM's default, max(40 million, 1 million x dp) (megatron/core/distributed)."""


def message_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Activations that one tensor-parallel rank hands to its peer of the next stage: one slice of them.

    With sequence parallelism the slice is all it has; without, the receivers gather the slices (`gathered_bytes`).
    """
    return activation_bytes(workload, config) / config.tp


def activation_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Activations of one microbatch between two layers, of all tensor-parallel ranks together: their part of the sequence."""
    tokens = config.microbatch_size * workload.seq_len / config.cp
    return tokens * workload.model.hidden * workload.bytes_per_value


def gathered_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Activations that tensor-parallel ranks gather after each message; 0 where slices stay slices.

    Each rank sends 1/tp of the activations, which all ranks of a tensor-parallel group hold alike, and the receivers gather
    them inside the node (Narayanan et al., arXiv 2104.04473, section 4.1; DeepSpeed's PartitionedTensor).
    """
    return activation_bytes(workload, config) if config.tp > 1 and config.pp > 1 and not config.sequence_parallel else 0.0


def tensor_collectives(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool, backward: bool
) -> tuple[tuple[str, Bytes, float], ...]:
    """(operation, payload, count) of the tensor-parallel collectives of one microbatch on one stage.

    Two all_reduces a layer and direction (Shoeybi et al., arXiv 1909.08053, section 3), or an all_gather and a reduce_scatter
    in place of each with sequence parallelism (arXiv 2205.05198, section 4.2.2; the second gather of its backward hides
    behind the product for the input gradient). Embedding and head add one each; full recomputation repeats the forward's.
    Experts gather and scatter, in place of the MLP's, the tokens that were dispatched to them (the alltoall dispatcher of
    Megatron-Core, expert tensor parallel as wide as tp)."""
    if config.tp == 1:
        return ()
    payload = activation_bytes(workload, config)
    once = layers * (2 if backward and config.recompute == "full" else 1)
    rounds = 2 * once
    ends = int(first and not backward) + int(last and backward)
    if not config.sequence_parallel:
        return (("all_reduce", payload, float(rounds + ends)),)
    routed: tuple[tuple[str, Bytes, float], ...] = ()
    if workload.model.experts:
        rounds -= 0 if workload.model.shared_ffn_hidden else once
        chosen = payload * workload.model.experts_per_token
        routed = (("all_gather", chosen, float(once)), ("reduce_scatter", chosen, float(once)))
    gathers = rounds + int(last and not backward) + int(first and backward)
    return (("all_gather", payload, float(gathers)), ("reduce_scatter", payload, float(rounds + ends)), *routed)


def ring_exchanges(
    workload: Workload, config: ParallelConfig, layers: int, backward: bool
) -> tuple[tuple[str, Bytes, float], ...]:
    """("F", "B" or "R", payload, count) of the exchanges among cp ranks of one microbatch on one stage.

    Every rank's keys and values walk once around the ring in a forward (Liu et al., arXiv 2310.01889); in a backward so do
    their gradients besides. The payload is that of all cp ranks together. Full recomputation repeats the forward's ("R").
    """
    if config.cp == 1:
        return ()
    width = max(workload.model.kv_size / config.tp, workload.model.head_dim)
    payload = 2.0 * config.microbatch_size * workload.seq_len * width * workload.bytes_per_value
    if not backward:
        return (("F", payload, float(layers)),)
    again = (("R", payload, float(layers)),) if config.recompute == "full" else ()
    return (*again, ("B", 2 * payload, float(layers)))


def expert_collectives(
    workload: Workload, config: ParallelConfig, layers: int, backward: bool
) -> tuple[tuple[str, Bytes, float], ...]:
    """(operation, payload, count) of the expert-parallel collectives of one microbatch on one stage.

    A rank's tokens go to the experts they chose and come back: two all_to_all a layer and direction of tokens x experts per
    token x hidden values (Lepikhin et al., arXiv 2006.16668, section 3; the alltoall dispatcher of Megatron-Core), of this
    rank's slice of the sequence where sequence parallel. Full recomputation repeats the forward's.
    """
    if config.ep == 1:
        return ()
    slices = config.tp if config.sequence_parallel else 1
    payload = activation_bytes(workload, config) / slices * workload.model.experts_per_token
    return (("all_to_all", payload, 2.0 * layers * (2 if backward and config.recompute == "full" else 1)),)


def buckets(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> int:
    """Gradient buckets of one stage; at most one a layer, so that each follows some layer's backward. FSDP: each layer one."""
    if config.shards_parameters:
        return layers
    parameters = memory.stage_parameters(workload, config, layers, first, last)
    return max(1, min(layers, round(parameters / max(BUCKET_PARAMETERS, 1e6 * config.dp_cp))))


def gradient_bytes(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, Bytes], ...]:
    """(kind of group, bytes) of the gradients of a stage on one rank, as they are reduced."""
    width = GRADIENT_BYTES[config.gradient_precision]
    held = memory.by_sharing(workload, config, layers, first, last)
    return tuple((group, parameters * width) for group, parameters, sharing in held if sharing > 1)


def parameter_bytes(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, Bytes], ...]:
    """(kind of group, bytes) of the weights of a stage on one rank, as they are gathered."""
    held = memory.by_sharing(workload, config, layers, first, last)
    return tuple((group, parameters * workload.bytes_per_value) for group, parameters, sharing in held if sharing > 1)


def tied_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Gradient of a tied embedding that the two end stages sum; 0 where there is none."""
    if config.pp == 1 or not workload.model.tied_embeddings:
        return 0.0
    return workload.model.vocab * workload.model.hidden / config.tp * GRADIENT_BYTES[config.gradient_precision]


def program(plan: Plan, place: int, microbatches: int) -> Program:
    """The program of the ranks at pipeline place `place` whose replica plays `microbatches` microbatches."""
    return tuple(_Lowering(plan, place, microbatches).actions())


def moves(schedule: str, place: int, pp: int, microbatches: int, vpp: int = 1) -> Iterator[Action]:
    """Compute actions of a pipeline place, each behind what it receives and before what it sends; payloads are left out.

    Under a schedule that receives first (`sim.schedules`) a forward's message waits for the next gradient in the steady state.
    """
    last_stage = pp * vpp - 1
    receives_first = schedules.get(schedule).RECEIVES_FIRST
    work = schedules.actions(schedule, place, pp, microbatches, vpp)
    held: tuple[Action, ...] = ()
    for action, following in zip_longest(work, work[1:]):
        stage, m, kind = action.stage, action.microbatch, action.kind
        ahead, behind = (stage - 1, stage + 1) if kind == "F" else (stage + 1, stage - 1)
        if kind != "W" and 0 <= ahead <= last_stage and pp > 1:
            yield Action("recv", ahead, m, peer=ahead % pp, operation=kind)
        yield from held
        held = ()
        yield action
        if kind != "W" and 0 <= behind <= last_stage and pp > 1:
            message = Action("send", stage, m, peer=behind % pp, operation=kind)
            gradient = following.microbatch if following and following.kind == "B" else None
            if receives_first and kind == "F" and gradient == m - (pp - place - 1):
                held = (message,)
            else:
                yield message


class _Lowering:
    """Walks what one place computes, receives and sends, and puts payloads and collectives to it."""

    def __init__(self, plan: Plan, place: int, microbatches: int):
        self.workload, self.config = plan.workload, plan.config
        self.stages = {stage: plan.stages[stage].layers for stage in plan.stages_of(place)}
        self.last_stage = plan.config.num_stages - 1
        self.moves = tuple(moves(plan.config.schedule, place, plan.config.pp, microbatches, plan.config.vpp))
        self.closing = "W" if schedules.get(plan.config.schedule).SPLITS_BACKWARD else "B"
        self.last_microbatch = {stage: self._last(self.closing, stage) for stage in self.stages}
        self.parts = {stage: buckets(*self._shape(stage)) for stage in self.stages}

    def _last(self, kind: str, stage: int) -> int:
        return [a.microbatch for a in self.moves if a.kind == kind and a.stage == stage][-1]

    def _shape(self, stage: int) -> tuple[Workload, ParallelConfig, int, bool, bool]:
        return self.workload, self.config, self.stages[stage], stage == 0, stage == self.last_stage

    def actions(self) -> Iterator[Action]:
        config, payload = self.config, message_bytes(self.workload, self.config)
        if config.gathers_ahead and not config.shards_parameters:
            for stage in self.stages:
                yield from self._sync("start", stage, "all_gather", parameter_bytes(*self._shape(stage)))
        for move in self.moves:
            if move.kind in COMPUTE:
                yield from self._compute(move)
                continue
            yield replace(move, nbytes=payload)
            if move.kind == "recv" and (whole := gathered_bytes(self.workload, config)):
                stage = move.stage + (1 if move.operation == "F" else -1)
                yield Action("collective", stage, move.microbatch, group="tp", operation="all_gather", nbytes=whole)
        yield from self._end()
        if config.zero_stage >= 1 and not config.gathers_ahead:
            for stage in self.stages:
                yield from self._whole(stage, "all_gather", parameter_bytes(*self._shape(stage)))

    def _compute(self, action: Action) -> Iterator[Action]:
        """A compute action, cut at buckets where gradients or weights travel beside it, and the collectives of its layers."""
        forward, stage, m, config = action.kind == "F", action.stage, action.microbatch, self.config
        sharded = config.shards_parameters and action.kind != "W"
        gathered = sharded or (forward and m == 0 and config.gathers_ahead)
        last = m == self.last_microbatch[stage] or config.reduces_each_microbatch
        reduced = action.kind == self.closing and last and config.reduces_behind
        parts = self.parts[stage] if gathered or reduced else 1
        weights = parameter_bytes(*self._shape(stage))
        for part in range(min(memory.GATHERED_AHEAD, parts) if sharded else 0):
            yield from self._bucket("start", stage, part, "all_gather", weights)
        for part in range(parts):
            if gathered:
                yield from self._bucket("wait", stage, part, "all_gather", weights)
            if sharded and part + memory.GATHERED_AHEAD < parts:
                yield from self._bucket("start", stage, part + memory.GATHERED_AHEAD, "all_gather", weights)
            yield Action(action.kind, stage, m, part, parts)
            if action.kind != "W":
                yield from self._within(stage, m, part, parts, not forward)
            if reduced:
                yield from self._bucket("start", stage, part, self._reduction, gradient_bytes(*self._shape(stage)))

    def _within(self, stage: int, m: int, part: int, parts: int, backward: bool) -> Iterator[Action]:
        """What cp, ep and tp ranks exchange within the layers of a stage."""
        layers = self.stages[stage]
        for way, nbytes, count in ring_exchanges(self.workload, self.config, layers, backward):
            yield Action("ring", stage, m, part, parts, group="cp", operation=way, nbytes=nbytes, count=count / parts)
        for operation, nbytes, count in expert_collectives(self.workload, self.config, layers, backward):
            share = count / parts
            yield Action("collective", stage, m, part, parts, group="ep", operation=operation, nbytes=nbytes, count=share)
        for operation, nbytes, count in tensor_collectives(*self._shape(stage), backward):
            share = count / parts
            yield Action("collective", stage, m, part, parts, group="tp", operation=operation, nbytes=nbytes, count=share)

    @property
    def _reduction(self) -> str:
        return "reduce_scatter" if self.config.zero_stage >= 1 else "all_reduce"

    def _sync(self, kind: str, stage: int, operation: str, shared: tuple[tuple[str, Bytes], ...]) -> Iterator[Action]:
        for part in range(self.parts[stage]):
            yield from self._bucket(kind, stage, part, operation, shared)

    def _bucket(
        self, kind: str, stage: int, part: int, operation: str, shared: tuple[tuple[str, Bytes], ...]
    ) -> Iterator[Action]:
        parts = self.parts[stage]
        for group, nbytes in shared:
            nbytes = 0.0 if kind == "wait" else nbytes / parts
            yield Action(kind, stage, part=part, parts=parts, group=group, operation=operation, nbytes=nbytes)

    def _whole(self, stage: int, operation: str, shared: tuple[tuple[str, Bytes], ...]) -> Iterator[Action]:
        for group, nbytes in shared:
            yield Action("collective", stage, group=group, operation=operation, nbytes=nbytes)

    def _end(self) -> Iterator[Action]:
        """Reduce what is not reduced yet, sum the tied embedding, step the optimizer."""
        for stage in self.stages:
            if self.config.reduces_behind:
                yield from self._sync("wait", stage, self._reduction, gradient_bytes(*self._shape(stage)))
            else:
                yield from self._whole(stage, self._reduction, gradient_bytes(*self._shape(stage)))
        tied = tied_bytes(self.workload, self.config)
        if tied and (0 in self.stages or self.last_stage in self.stages):
            yield Action("collective", group="embedding", operation="all_reduce", nbytes=tied)
        yield Action("optimizer")
