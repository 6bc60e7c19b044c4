"""A rank that trains: its stages of the model, gradients and the optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import buckets, context_parallel, message_parts
from holmes_sim.torch_backend.blocks import Embedding, Head, Layer
from holmes_sim.torch_backend.devices import HOST, synchronize
from holmes_sim.torch_backend.expert_mesh import RunTimed, mesh_of
from holmes_sim.torch_backend.groups import of_kind
from holmes_sim.torch_backend.host_activations import HostActivations
from holmes_sim.torch_backend.rank_in_plan import RankInPlan
from holmes_sim.torch_backend.stage_module import Shares, in_parts, stage_module
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.plan import schedules
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.program import Action
from sim.workload.workload import Workload


def samples(plan: Plan, seed: int, step: int, replica: int, microbatch: int, before: int = 0, size: int = 0) -> Tensor:
    """Tokens (seq_len + 1, microbatch size) of a microbatch. The samples of a batch do not depend on the parallel layout.
    `before`: samples of the batch that precede those of the plan, where it is that of one of several islands. `size`: samples
    of a microbatch of a stage, where stages have unlike ones; 0: the plan's."""
    config, size = plan.config, size or plan.config.microbatch_size
    first = before + sum(config.num_microbatches[:replica]) * config.microbatch_size + microbatch * size
    return sequences(plan.workload, seed, step, range(first, first + size))


def sequences(workload: Workload, seed: int, step: int, numbers: range) -> Tensor:
    """Tokens (seq_len + 1, sequences) of the sequences with these numbers in the batch of a step."""
    rows = []
    for sample in numbers:
        stream = torch.Generator().manual_seed((seed * 1_000_003 + step) * 1_000_003 + sample)
        rows.append(torch.randint(workload.model.vocab, (workload.seq_len + 1,), generator=stream))
    return torch.stack(rows, 1)


class TrainingWorker:
    """Worker that computes the stages of one rank. `run_timed` runs each collective of tp, etp or ep ranks inside a stage."""

    def __init__(
        self,
        whole: Plan | PipelinesPlan,
        rank: int,
        groups: dict[str, dist.ProcessGroup],
        run_timed: RunTimed,
        seed: int = 0,
        device: torch.device = HOST,
    ):
        self.place = place = RankInPlan.of(whole, rank)
        self.plan = plan = place.plan
        self.groups, self.seed, self.device = groups, seed, device
        tp, self.dp_cp, self.pp_rank = plan.config.coordinates(place.rank)
        self.config = config = plan.config.of_pp_rank(self.pp_rank)
        self.step, self.samples_before, self.split = 0, place.samples_before, plan.config.split_of(self.pp_rank)
        self.before_update: Callable[[], None] = lambda: None  # called with the reduced gradients, before the optimizer
        timed = functools.partial(run_timed, "tp")
        self.parallel = TensorParallel(groups.get("tp"), tp, config.tp, config.sequence_parallel, timed, device=device)
        self.parallel.context = context_parallel.context_of(config, self.dp_cp, groups, run_timed, device)
        own = tp + config.tp * self.dp_cp
        mesh = mesh_of(config, own, groups, self.parallel, run_timed)
        self.splits = schedules.get(plan.config.schedule).SPLITS_BACKWARD
        self.stages = {stage: stage_module(place, stage, self.parallel, seed, mesh) for stage in plan.stages_of(self.pp_rank)}
        if plan.config.pp == 1 and plan.workload.model.tied_embeddings:  # share one weight
            self.stages[plan.config.num_stages - 1].blocks[-1].words = self.stages[0].blocks[0].words
        held: set[int] = set()  # weights already in a bucket; a tied weight goes to the embedding's
        tied = plan.workload.model.tied_embeddings and config.pp > 1
        shares = Shares(config, own, place.dp_cp_before, place.edp_before, tied, in_parts(plan))
        self.buckets = {
            stage: [buckets.bucket(weights, config, plan.workload.precision) for weights in module.by_bucket(held, shares)]
            for stage, module in self.stages.items()
        }
        self.every = [bucket for some in self.buckets.values() for bucket in some]
        self.optimizer = buckets.Optimizer(segment for bucket in self.every for segment in bucket.segments)
        self.away = HostActivations(device) if config.offloads_activations else None
        self.inputs: dict[tuple[str, int, int], Tensor] = {}
        self.outputs: dict[tuple[str, int, int], Tensor] = {}
        self._entered = functools.partial(message_parts.entered, self.inputs, plan.config, self.pp_rank)
        self.last_received = ("F", 0, 0)
        self.loss: Tensor | float = 0.0

    def gather(self) -> None:
        """All-gather the weights: the last optimizer step updated only this rank's shard of them."""
        for kind in GRADIENT_KINDS if self.config.zero_stage >= 1 else ():
            for stage, module in self.stages.items() if kind in self.groups else ():
                for bucket, section in zip(self.buckets[stage], module.sections, strict=True):
                    for gather in bucket.gathering(kind, self._groups_of(kind, section)):
                        gather()

    def _groups_of(self, kind: str, section: int) -> list[dist.ProcessGroup]:
        """The groups that reduce the gradients of the rank's slices of a section."""
        return [self.groups[name] for name in self.place.groups_of(kind, section)]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name in the model, this rank's shard) of all weights."""
        for stage in self.stages.values():
            for block in stage.blocks:
                yield from ((name, weight.data) for name, weight in block.named())

    # compute

    def compute(self, action: Action) -> None:
        """Execute F, B, W or the optimizer."""
        if action.kind == "F":
            self._forward(action)
        elif action.kind == "B":
            self._backward(action)
        elif action.kind == "W":
            self._weight_gradients(action)
        else:
            self._optimizer_step()
        synchronize(self.device)

    def _forward(self, action: Action) -> None:
        stage, m, part = self.stages[action.stage], action.microbatch, action.part
        x: Tensor | None = None
        tokens: Tensor | None = None
        if stage.first or stage.last:
            replica, part_of_samples = divmod(self.dp_cp // self.config.cp, self.split)
            own = self.config.microbatch_size * self.split
            whole = samples(self.plan, self.seed, self.step, replica, m, self.samples_before, own)
            tokens = whole.chunk(self.split, 1)[part_of_samples].to(self.device)
        if part or not stage.first:
            x = self._entered(action)
        for index in stage.cut(part, action.parts):
            block = stage.blocks[index]
            if self.away is not None and isinstance(block, Layer):
                x = self.away.forward((action.stage, m, index), block, x)
                continue
            leaf = x.detach().requires_grad_() if x is not None else None
            if isinstance(block, Embedding) and tokens is not None:
                x = block(context_parallel.part(tokens[:-1], self.parallel))
            elif isinstance(block, Head) and tokens is not None:
                x = block(leaf, context_parallel.part(tokens[1:], self.parallel))
                self.loss = self.loss + x.detach()
            else:
                x = block(leaf)
            assert x is not None
            stage.kept[m, index] = leaf, x
        assert x is not None
        if part + 1 < action.parts:
            self.inputs["F", action.stage, m] = x
        elif not stage.last:
            self._pass_on("F", action.stage, action.stage + 1, m, x.detach())

    def _backward(self, action: Action) -> None:
        stage, m, part = self.stages[action.stage], action.microbatch, action.part
        grad = self._entered(action) if part or not stage.last else None
        for index in reversed(stage.cut(action.parts - 1 - part, action.parts)):
            self.parallel.deferred = [] if self.splits else None
            if self.away is not None and (layer := (action.stage, m, index)) in self.away.held:
                grad = self.away.backward(layer, grad)
            else:
                grad = stage.backward(m, index, grad)
            if self.parallel.deferred:
                stage.deferred[m, index] = self.parallel.deferred
        self.parallel.deferred = None
        if grad is not None and part + 1 < action.parts:
            self.inputs["B", action.stage, m] = grad
        elif grad is not None:
            self._pass_on("B", action.stage, action.stage - 1, m, grad)

    def _pass_on(self, kind: str, stage: int, to: int, m: int, value: Tensor) -> None:
        """Keep the output of a stage until it is sent. With pp 1 it becomes the input of the next stage on this rank."""
        if self.config.pp == 1:
            self.inputs[kind, to, m] = value
        else:
            self.outputs[kind, stage, m] = value

    def _weight_gradients(self, action: Action) -> None:
        stage, m = self.stages[action.stage], action.microbatch
        for index in reversed(stage.cut(action.parts - 1 - action.part, action.parts)):
            with torch.no_grad():
                for weight_gradient in stage.deferred.pop((m, index), ()):
                    weight_gradient()

    def _optimizer_step(self) -> None:
        for bucket in self.every:
            for segment in bucket.segments:
                segment.accumulate()
        if in_parts(self.plan) and self.config.tp > 1:
            for segment in buckets.segments_of(self.every, replicated=True):
                assert segment.reduced is not None
                self.parallel.all_reduce(segment.reduced)
        self.before_update()
        self.optimizer.step()
        self.step += 1

    # messages

    def send_values(self, action: Action, peers: int) -> list[Tensor]:
        """The tensor to send to each peer: a part of the samples, and of this tensor-parallel rank's slice of the output."""
        value = message_parts.taken(self.outputs, self.plan.config, self.pp_rank, action)
        value = self.parallel.shard(value, 0) if self.config.tp > 1 and not self.config.sequence_parallel else value
        return message_parts.cut(value, *message_parts.division(self.plan.config, self.place.rank, action.peer))

    def receive_buffer(self, action: Action) -> Tensor:
        """The tensor to receive into, in host memory."""
        workload, config = self.plan.workload, self.config
        shares, parts = message_parts.division(self.plan.config, self.place.rank, action.peer)
        tokens = workload.seq_len // config.cp // config.tp // len(parts)
        size = config.microbatch_size // (shares * self.plan.config.messages_of(self.pp_rank, action.peer))
        return torch.empty((tokens, size, workload.model.hidden), dtype=buckets.PRECISIONS[workload.precision])

    def receive(self, action: Action, values: list[Tensor]) -> None:
        """Accept the received slices of samples as input of the next stage; `action.stage` is the stage that sent them."""
        to = action.stage + 1 if action.operation == "F" else action.stage - 1
        self.last_received = action.operation, to, action.microbatch
        division = message_parts.division(self.plan.config, self.place.rank, action.peer)
        self.inputs[self.last_received] = message_parts.joined(values, *division).to(self.device)

    def gather_received(self) -> None:
        """All-gather the slices of the last received message."""
        self.inputs[self.last_received] = self.parallel.all_gather(self.inputs[self.last_received])

    # gradients and weights over the ranks that share them

    def dp_collectives(self, action: Action, backward: bool) -> list[Callable[[], None]]:
        """Functions that execute a collective of dp or edp ranks, of one bucket or of a whole stage: one for each slice of the
        weights that the rank has (`RankInPlan.groups_of`)."""
        kind, groups = action.group, self._groups_of(action.group, action.section)
        copies = self.groups.get("copies") if kind == "dp" else None
        held, sections = self.buckets[action.stage], self.stages[action.stage].sections
        if action.kind == "collective":
            held = [one for one, section in zip(held, sections, strict=True) if section == action.section]
        else:
            held = [held[action.parts - 1 - action.part if backward else action.part]]
        gathers = action.operation == "all_gather"
        return buckets.together(
            [bucket.gathering(kind, groups) if gathers else bucket.reduction(kind, groups, copies) for bucket in held]
        )

    def reduce_tied_embedding(self) -> None:
        """Sum the gradients of the tied embedding over the first and the last stage."""
        for segment in buckets.segments_of(self.every, tied=True):
            segment.accumulate()
            segment.sum_tied(of_kind(self.groups, "embedding"), self.config.tied_shards)
