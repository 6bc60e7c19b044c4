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
around it. Gradients are reduced over the ranks that hold the same weights (`sim.kernels.memory.by_sharing`). A tied embedding's
gradient is summed between the two end stages, as Megatron-LM does, before the optimizer.

Ranks at the same pipeline place whose replicas have the same number of microbatches have the same program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from sim.kernels import memory
from sim.plan import schedules
from sim.plan.parallel_config import GRADIENT_BYTES, ParallelConfig
from sim.plan.plan import Plan
from sim.plan.program import Action, Program
from sim.units import Bytes
from sim.workload.workload import Workload

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
    lowered = Lowered(plan, place, microbatches)
    return tuple(chain.from_iterable(lowered.piece(index) for index in range(len(lowered))))


def moves(schedule: str, place: int, pp: int, microbatches: int, vpp: int = 1) -> Iterator[Action]:
    """Compute actions of a pipeline place, each behind what it receives and before what it sends; payloads are left out."""
    work = schedules.actions(schedule, place, pp, microbatches, vpp)
    for index in range(len(work)):
        yield from _moves_around(schedule, work, index, place, pp, vpp, 0.0)


def _moves_around(
    schedule: str, work: Sequence[Action], index: int, place: int, pp: int, vpp: int, nbytes: Bytes
) -> Iterator[Action]:
    """A compute action behind what it receives (and a message held until then), and before what it sends."""
    action = work[index]
    stage, m, kind = action.stage, action.microbatch, action.kind
    ahead = stage - 1 if kind == "F" else stage + 1
    if kind != "W" and 0 <= ahead < pp * vpp and pp > 1:
        yield Action("recv", ahead, m, peer=ahead % pp, operation=kind, nbytes=nbytes)
    if index and _is_held(schedule, work[index - 1], action, pp - place - 1):
        yield from _sent(work[index - 1], pp, vpp, nbytes)
    yield action
    if index + 1 == len(work) or not _is_held(schedule, action, work[index + 1], pp - place - 1):
        yield from _sent(action, pp, vpp, nbytes)


def _is_held(schedule: str, action: Action, following: Action, behind: int) -> bool:
    """Whether a forward's message waits for the next gradient: in the steady state of schedules that receive first."""
    pair = schedules.get(schedule).RECEIVES_FIRST and action.kind == "F" and following.kind == "B"
    return pair and action.microbatch - following.microbatch == behind


def _sent(action: Action, pp: int, vpp: int, nbytes: Bytes) -> Iterator[Action]:
    """The message behind a forward or backward."""
    behind = action.stage + 1 if action.kind == "F" else action.stage - 1
    if action.kind != "W" and 0 <= behind < pp * vpp and pp > 1:
        yield Action("send", action.stage, action.microbatch, peer=behind % pp, operation=action.kind, nbytes=nbytes)


class Lowered:
    """A program in pieces, each made when it is asked for: what stands before the first compute action of the schedule,
    then each compute action with the communication around it, then what closes the step."""

    def __init__(self, plan: Plan, place: int, microbatches: int):
        self.workload, self.config, self.place = plan.workload, plan.config, place
        self.stages = {stage: plan.stages[stage].layers for stage in plan.stages_of(place)}
        self.last_stage = plan.config.num_stages - 1
        self.compute = schedules.actions(plan.config.schedule, place, plan.config.pp, microbatches, plan.config.vpp)
        self.closing = "W" if schedules.get(plan.config.schedule).SPLITS_BACKWARD else "B"
        self.last_microbatch = {a.stage: a.microbatch for a in self.compute if a.kind == self.closing}
        self.parts = {stage: buckets(*self._shape(stage)) for stage in self.stages}
        self.weights = {stage: parameter_bytes(*self._shape(stage)) for stage in self.stages}
        self.payload = message_bytes(self.workload, self.config)
        self.gathered = gathered_bytes(self.workload, self.config)
        self.exchanges = {(s, back): tuple(self._exchanges(s, back)) for s in self.stages for back in (False, True)}
        self._pieces: dict[int, tuple[Action, ...]] = {}

    def __len__(self) -> int:
        return len(self.compute) + 2

    def piece(self, index: int) -> tuple[Action, ...]:
        """Actions of a piece: 0 opens the step, `i` is around the compute action i - 1, the last one closes the step."""
        if index not in self._pieces:
            self._pieces[index] = tuple(self._piece(index))
        return self._pieces[index]

    def repeats(self, index: int, length: int, microbatches: int) -> int:
        """How often the `length` pieces that end with `index` come again behind it, each time `microbatches` later."""
        before = index - 2  # a piece depends on the compute actions next to its own
        if not 0 < length <= before:
            return 0
        alike = 0
        for earlier, later in zip(self.compute[before - length :], self.compute[before:], strict=False):
            if not self._is_later(earlier, later, microbatches):
                break
            alike += 1
        return max(alike - 3, 0) // length

    def _is_later(self, earlier: Action, later: Action, microbatches: int) -> bool:
        """Whether two compute actions differ in nothing but the microbatch, which is neither the first nor the last."""
        return (
            earlier.kind == later.kind
            and earlier.stage == later.stage
            and earlier.microbatch + microbatches == later.microbatch
            and earlier.microbatch != 0
            and later.microbatch != self.last_microbatch[later.stage]
        )

    def _shape(self, stage: int) -> tuple[Workload, ParallelConfig, int, bool, bool]:
        return self.workload, self.config, self.stages[stage], stage == 0, stage == self.last_stage

    def _piece(self, index: int) -> Iterator[Action]:
        config = self.config
        if index == 0:
            if config.gathers_ahead and not config.shards_parameters:
                for stage in self.stages:
                    yield from self._sync("start", stage, "all_gather", self.weights[stage])
        elif index <= len(self.compute):
            yield from self._around(index - 1)
        else:
            yield from self._end()
            if config.zero_stage >= 1 and not config.gathers_ahead:
                for stage in self.stages:
                    yield from self._whole(stage, "all_gather", self.weights[stage])

    def _around(self, index: int) -> Iterator[Action]:
        """What stands around a compute action, collectives included."""
        config, own = self.config, self.compute[index]
        for move in _moves_around(config.schedule, self.compute, index, self.place, config.pp, config.vpp, self.payload):
            if move is own:
                yield from self._cut(own)
                continue
            yield move
            if move.kind == "recv" and self.gathered:
                whole = self.gathered
                yield Action("collective", own.stage, own.microbatch, group="tp", operation="all_gather", nbytes=whole)

    def _cut(self, action: Action) -> Iterator[Action]:
        """A compute action, cut at buckets where gradients or weights travel beside it, and the collectives of its layers."""
        config, stage, m, forward = self.config, action.stage, action.microbatch, action.kind == "F"
        sharded = config.shards_parameters and action.kind != "W"
        gathered = sharded or (forward and m == 0 and config.gathers_ahead)
        last = m == self.last_microbatch[stage] or config.reduces_each_microbatch
        reduced = action.kind == self.closing and last and config.reduces_behind
        parts = self.parts[stage] if gathered or reduced else 1
        weights = self.weights[stage]
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
        for kind, group, operation, nbytes, count in self.exchanges[stage, backward]:
            yield Action(kind, stage, m, part, parts, group=group, operation=operation, nbytes=nbytes, times=count / parts)

    def _exchanges(self, stage: int, backward: bool) -> Iterator[tuple[str, str, str, Bytes, float]]:
        """(kind, group, operation, payload, count) of what `_within` cuts into parts."""
        layers = self.stages[stage]
        for way, nbytes, count in ring_exchanges(self.workload, self.config, layers, backward):
            yield "ring", "cp", way, nbytes, count
        for operation, nbytes, count in expert_collectives(self.workload, self.config, layers, backward):
            yield "collective", "ep", operation, nbytes, count
        for operation, nbytes, count in tensor_collectives(*self._shape(stage), backward):
            yield "collective", "tp", operation, nbytes, count

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
