"""Lowering of a plan to the program of a rank: the schedule's compute actions and the communication around them.

For every forward the activations are received before and sent after, for every backward the gradients (`sim.kernels.messages`);
tensor-parallel
collectives follow the compute they belong to, those of all layers of a stage together. The distributed optimizer (ZeRO 1)
reduces each bucket of gradients after its part of the last backward of a stage, or of its last W where weight gradients are
split off (`overlap_grad_reduce`; tensor-parallel collectives belong to B), and gathers each bucket of updated parameters before
its part of the first forward (`overlap_param_gather`): those of the step before, as in a steady run. ZeRO 2 and 3 reduce
gradients in this way in every microbatch, without `overlap_grad_reduce` behind each backward. ZeRO 3 (FSDP) gathers each
layer's weights before its forward and again before its backward, a few layers ahead (`memory.GATHERED_AHEAD`; arXiv 2304.11277,
section 3.3); without `overlap_grad_reduce` each layer waits for its gathers and reductions. Weights of embedding and head are
spread over the layers of their stage. Under context parallelism the exchange of keys and values runs beside the attention of a
forward or backward; under expert parallelism two all_to_alls a layer bring tokens to their experts and back. Gradients are
reduced over the ranks that hold the same weights (`sim.kernels.memory.by_sharing`). The gradient of a tied embedding is summed
between the first stage and the head before the optimizer, as Megatron-LM does. A stage after the head computes nothing and has
no messages.

Ranks with the same pipeline rank whose replicas have the same number of microbatches have the same program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise

from sim.kernels import memory, paired_passes
from sim.kernels.beside import Exchange, exchanges
from sim.kernels.gradient_buckets import Buckets, buckets_of_stage
from sim.kernels.messages import Messages
from sim.kernels.pass_messages import Rates, message_cuts, pass_messages, with_messages
from sim.kernels.payloads import (
    gathered_bytes,
    layer_collectives,
    tensor_collectives,
    tied_bytes,
)
from sim.kernels.recomputation import backward_gathers
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.plan.program import Action, Program
from sim.plan.sections import Section
from sim.workload.workload import Workload


def program(plan: Plan, pp_rank: int, microbatches: int, sections: tuple[Section, ...] = ()) -> Program:
    """The program of the ranks of pipeline rank `pp_rank` whose replica has `microbatches` microbatches in a step; `sections`
    in unlike pipelines."""
    lowered = Lowered(plan, pp_rank, microbatches, sections)
    return tuple(chain.from_iterable(lowered.piece(index) for index in range(len(lowered))))


def moves(schedule: str, pp_rank: int, pp: int, microbatches: int, vpp: int = 1) -> Iterator[Action]:
    """Compute actions of a pipeline rank, each after its recv and before its send; without payloads and collectives."""
    work = schedules.actions(schedule, pp_rank, pp, microbatches, vpp)
    hops = (0.0,) * (pp * vpp - 1)
    messages = pass_messages(schedule, pp_rank, pp, pp * vpp)
    for index in range(len(work)):
        yield from with_messages(messages, work, index, hops)


def _is_of_tokens(exchange: Exchange) -> bool:
    """Whether a collective dispatches tokens to experts, or combines their results."""
    return exchange.kind == "collective" and exchange.group == paired_passes.HIDDEN


def _is_repeat(earlier: Action, later: Action, microbatches: int, last: Mapping[int, int]) -> bool:
    """Whether two compute actions differ only in the microbatch, which is neither the first nor the last of the stage.

    last: the last microbatch of each stage."""
    return (
        earlier.kind == later.kind
        and earlier.operation == later.operation
        and earlier.stage == later.stage
        and earlier.microbatch + microbatches == later.microbatch
        and earlier.microbatch != 0
        and later.microbatch != last[later.stage]
    )


class Lowered:
    """The program of a rank in pieces that are made on demand: piece 0 opens the step, piece i is compute action i - 1 of the
    schedule with the communication around it, the last piece closes the step.

    `sections`: those of the stage, in unlike pipelines; none where all weights of a stage have one gradient group."""

    def __init__(self, plan: Plan, pp_rank: int, microbatches: int, sections: tuple[Section, ...] = ()):
        self.workload, self.config, self.pp_rank = plan.workload, plan.config.of_pp_rank(pp_rank), pp_rank
        self.stages = {stage: plan.stages[stage].layers for stage in plan.stages_of(pp_rank)}
        self.head_stage = plan.head_stage
        self.configs = {stage: plan.config_of((stage,)) for stage in self.stages}
        self.workloads = {stage: plan.workload_of((stage,)) for stage in self.stages}
        self.ends = {stage: plan.ends((stage,)) for stage in self.stages}
        self.compute = plan.config.actions_of(pp_rank, microbatches)
        self.closing = "W" if schedules.get(plan.config.schedule).SPLITS_BACKWARD else "B"
        self.last_microbatch = {a.stage: a.microbatch for a in self.compute if a.kind == self.closing}
        self.buckets = {stage: buckets_of_stage(plan, stage, sections) for stage in self.stages}
        self.parts = {stage: sum(one.number for one in self.buckets[stage]) for stage in self.stages}
        messages = Messages(plan)
        held = [plan.config.rank_of(stage) for stage in range(self.head_stage + 1)]
        self.hops = tuple(messages.nbytes(*pair) for pair in pairwise(held))
        self.messages = pass_messages(plan.config.schedule, pp_rank, plan.config.pp, self.head_stage + 1)
        self.cuts, self.rates = message_cuts(plan.config, pp_rank), Rates.of(plan.config, pp_rank)
        self.gathered = gathered_bytes(self.workload, self.config)
        self.tied = tied_bytes(self.workload, plan.config, self.head_stage)
        self.exchanges = {(s, back): tuple(self._exchanges(s, back)) for s in self.stages for back in (False, True)}
        self._pieces: dict[int, tuple[Action, ...]] = {}
        self._alike: dict[tuple[object, ...], tuple[int, tuple[Action, ...]]] = {}  # the first piece of each form
        self._runs: dict[tuple[int, int], tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.compute) + 2

    def piece(self, index: int) -> tuple[Action, ...]:
        """Actions of piece `index` (0 to len - 1)."""
        if index not in self._pieces:
            self._pieces[index] = self._made(index)
        return self._pieces[index]

    def form(self, index: int) -> tuple[object, ...] | None:
        """What decides about the actions of piece `index` but for their microbatches: pieces of one form differ only in these,
        all of which are as far from `microbatch`. None where the passes around it decide, too, and where the step begins and
        ends. Weights and gradients have no microbatch."""
        if self.cuts or self.messages.paired or not 0 < index <= len(self.compute):
            return None
        kind, stage, m = (own := self.compute[index - 1]).kind, own.stage, own.microbatch
        ends = m == 0, m == self.last_microbatch[stage]
        return kind, stage, own.operation, *ends, self.messages.held_around(self.compute, index - 1)

    def microbatch(self, index: int) -> int:
        """The microbatch of the compute action of piece `index`; 0 where the step begins and ends."""
        return self.compute[index - 1].microbatch if 0 < index <= len(self.compute) else 0

    def _made(self, index: int) -> tuple[Action, ...]:
        """The actions of piece `index`: those of an earlier piece of its form for another microbatch, where there is one."""
        weights = self.config.shards_parameters or self.config.reduces_each_microbatch  # which have no microbatch
        if weights or (form := self.form(index)) is None:
            return tuple(self._piece(index))
        m = self.microbatch(index)
        if form not in self._alike:
            self._alike[form] = m, tuple(self._piece(index))
        known, actions = self._alike[form]
        later = m - known
        return tuple([Action(a[0], a[1], a[2] + later, *a[3:]) for a in actions]) if later else actions

    def repeats(self, index: int, length: int, microbatches: int) -> int:
        """How often the `length` pieces that end with `index` repeat after it, each time `microbatches` microbatches later."""
        before = index - 2  # a piece depends on the compute actions before and after its own
        if not 0 < length <= before:
            return 0
        return max(self._end_of_repeats(before, length, microbatches) - before - 3, 0) // length

    def _end_of_repeats(self, first: int, length: int, microbatches: int) -> int:
        """Index of the first compute action, from `first` on, that does not repeat the one `length` before it.

        The last run of repeats for each distance is kept, because a run is asked for again and again from later actions."""
        begin, end = self._runs.get((length, microbatches), (0, 0))
        if not begin <= first <= end:
            pairs = zip(self.compute[first - length :], self.compute[first:], strict=False)
            repeats = itertools.takewhile(lambda pair: _is_repeat(*pair, microbatches, self.last_microbatch), pairs)
            begin, end = first, first + sum(1 for _ in repeats)
            self._runs[length, microbatches] = begin, end
        return end

    def _shape(self, stage: int) -> tuple[Workload, ParallelConfig, int, bool, bool]:
        return self.workloads[stage], self.configs[stage], self.stages[stage], *self.ends[stage]

    def _piece(self, index: int) -> Iterator[Action]:
        config = self.config
        if index == 0:
            if config.gathers_ahead and not config.shards_parameters:
                for stage in self.stages:
                    yield from self._each_bucket("start", stage, "all_gather")
        elif index <= len(self.compute):
            yield from self._surrounded(index - 1)
        else:
            yield from self._end()
            if config.zero_stage >= 1 and not config.gathers_ahead and not config.shards_parameters:
                for stage in self.stages:
                    yield from self._whole(stage, "all_gather")

    def _surrounded(self, index: int) -> Iterator[Action]:
        """A compute action of the schedule with its messages and collectives."""
        own = self.compute[index]
        for move in with_messages(self.messages, self.compute, index, self.hops, self.cuts):
            if move is own:
                yield from self._beside("start", paired_passes.begun_before(self.compute, index))
                yield from self._cut(own, index)
                yield from self._beside("wait", paired_passes.ended_after(self.compute, index))
                continue
            yield move
            if move.kind == "recv" and self.gathered:
                nbytes = self.gathered / self.cuts.get(move.peer, 1)
                yield Action("collective", own.stage, own.microbatch, group="tp", operation="all_gather", nbytes=nbytes)

    def _beside(self, kind: str, passes: Sequence[Action]) -> Iterator[Action]:
        """Start of the exchanges of tokens of a pair of passes, or the wait for their end."""
        for one in passes:
            for _, group, operation, nbytes, times in filter(_is_of_tokens, self.exchanges[one.stage, one.kind == "B"]):
                payload = (nbytes, times) if kind == "start" else (0.0, 1)
                yield Action(kind, one.stage, one.microbatch, 0, 1, -1, group, operation, *payload)

    def _cut(self, action: Action, index: int) -> Iterator[Action]:
        """A compute action and the collectives of its layers, cut into buckets where gradients or weights travel beside it."""
        config, stage, m, forward = self.config, action.stage, action.microbatch, action.kind == "F"
        sharded = config.shards_parameters and action.kind != "W"
        gathered = sharded or (forward and m == 0 and config.gathers_ahead)
        last = m == self.last_microbatch[stage] or config.reduces_each_microbatch
        between = config.gathers_between
        reduced = action.kind == self.closing and last and (config.reduces_behind or between)
        every = self._each(stage, not forward) if gathered or reduced else ()
        for part, ahead in enumerate(every[: memory.GATHERED_AHEAD] if sharded and not between else ()):
            yield from self._bucket("start", stage, part, "all_gather", ahead)
        for part, own in enumerate(every or (None,)):
            if gathered and own:
                for _ in range(1 if forward else backward_gathers(self.workload, config)):
                    yield from self._bucket("collective" if between else "wait", stage, part, "all_gather", own)
            if sharded and not between and (later := part + memory.GATHERED_AHEAD) < len(every):
                yield from self._bucket("start", stage, later, "all_gather", every[later])
            cut = (part, len(every), own.size) if own else (0, 1, 1.0)
            yield Action(action.kind, stage, m, part, cut[1], times=cut[2])
            if action.kind != "W":
                yield from self._within(stage, m, cut, not forward, paired_passes.is_paired(self.compute, index))
            if reduced and own:
                yield from self._bucket("collective" if between else "start", stage, part, config.reduction, own)
        if action.kind == self.closing and config.reduces_between and not between:
            yield from self._whole(stage, config.reduction)

    def _each(self, stage: int, backward: bool) -> tuple[Buckets, ...]:
        """The buckets of a stage in the order of a pass."""
        every = tuple(one for bucket in self.buckets[stage] for one in bucket.each())
        return every[::-1] if backward else every

    def _within(self, stage: int, m: int, cut: tuple[int, int, float], backward: bool, paired: bool) -> Iterator[Action]:
        """Exchanges of cp, ep and tp ranks within the layers of a stage; those of tokens not where they are beside a pair.

        `cut`: the part of how many, and its size over that of a mean part."""
        part, parts, size = cut
        for one in self.exchanges[stage, backward]:
            kind, group, operation, nbytes, count = one
            if not (paired and _is_of_tokens(one)):
                yield Action(kind, stage, m, part, parts, -1, group, operation, nbytes, count / parts * size)

    def _exchanges(self, stage: int, backward: bool) -> Iterator[Exchange]:
        """(kind of action, kind of group, operation, payload, count) of the exchanges that `_within` cuts into parts."""
        config, layers = self.configs[stage], self.stages[stage]
        yield from exchanges(self.workloads[stage], config, layers, backward)
        for group, operation, nbytes, count in layer_collectives(self.workloads[stage], config, layers, backward):
            yield Exchange("collective", group, operation, nbytes, count)
        for operation, nbytes, count in tensor_collectives(*self._shape(stage), backward):
            yield Exchange("collective", "tp", operation, nbytes, count)

    def _each_bucket(self, kind: str, stage: int, operation: str) -> Iterator[Action]:
        for part, own in enumerate(self._each(stage, operation != "all_gather")):
            yield from self._bucket(kind, stage, part, operation, own)

    def _bucket(self, kind: str, stage: int, part: int, operation: str, own: Buckets) -> Iterator[Action]:
        for group, nbytes in own.weights if operation == "all_gather" else own.gradients:
            yield Action(
                kind, stage, part=part, parts=self.parts[stage], group=group, operation=operation,
                nbytes=0.0 if kind == "wait" else nbytes, section=own.section,
            )  # fmt: skip

    def _whole(self, stage: int, operation: str) -> Iterator[Action]:
        for own in self.buckets[stage]:
            for group, nbytes in own.whole.weights if operation == "all_gather" else own.whole.gradients:
                yield Action("collective", stage, group=group, operation=operation, nbytes=nbytes, section=own.section)

    def _end(self) -> Iterator[Action]:
        """Wait for or start the reduction of gradients, sum the tied embedding, step the optimizer."""
        for stage in self.stages:
            if self.config.reduces_behind:
                yield from self._each_bucket("wait", stage, self.config.reduction)
            elif not self.config.reduces_between:
                yield from self._whole(stage, self.config.reduction)
        if self.tied and (0 in self.stages or self.head_stage in self.stages):
            yield Action("collective", group="embedding", operation="all_reduce", nbytes=self.tied)
        yield Action("optimizer")
