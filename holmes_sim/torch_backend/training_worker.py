"""A rank that trains: its stages of the model, gradients and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import buckets
from holmes_sim.torch_backend.blocks import Block, Embedding, Head, Layer
from holmes_sim.torch_backend.devices import HOST, synchronize
from holmes_sim.torch_backend.groups import of_kind
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.kernels.lowering import Lowered
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.plan.program import Action


def samples(plan: Plan, seed: int, step: int, replica: int, microbatch: int) -> Tensor:
    """Tokens (seq_len + 1, microbatch size) of a microbatch. The samples of a batch do not depend on the parallel layout."""
    workload, size = plan.workload, plan.config.microbatch_size
    first = (sum(plan.config.num_microbatches[:replica]) + microbatch) * size
    rows = []
    for sample in range(first, first + size):
        stream = torch.Generator().manual_seed((seed * 1_000_003 + step) * 1_000_003 + sample)
        rows.append(torch.randint(workload.model.vocab, (workload.seq_len + 1,), generator=stream))
    return torch.stack(rows, 1)


class StageModule:
    """A stage: its blocks, and what it keeps of each microbatch from forward to backward."""

    def __init__(self, blocks: list[Block], layers: int):
        self.blocks, self.layers = blocks, layers
        self.first, self.last = isinstance(blocks[0], Embedding), isinstance(blocks[-1], Head)
        self.kept: dict[tuple[int, int], tuple[Tensor | None, Tensor]] = {}
        self.deferred: dict[tuple[int, int], list[Callable[[], None]]] = {}

    def cut(self, part: int, parts: int) -> range:
        """Indices of the blocks in one of `parts` parts of the stage, in forward order. The first part includes the embedding,
        the last part the head."""
        lead = int(self.first)
        start, stop = part * self.layers // parts + lead, (part + 1) * self.layers // parts + lead
        return range(0 if part == 0 else start, len(self.blocks) if part == parts - 1 else stop)


def _blocks(plan: Plan, stage: int, parallel: TensorParallel, seed: int) -> list[Block]:
    """The blocks of a stage in forward order."""
    model, config, layers = plan.workload.model, plan.config_of((stage,)), plan.stages[stage]
    found: list[Block] = [Embedding(model, parallel, seed)] if stage == 0 else []
    alike = config.by_recomputation(layers.layers)
    recompute = [one.recompute for number, one in alike for _ in range(number)]
    numbers = range(layers.first, layers.past_last)
    found += [Layer(model, parallel, seed, index, again) for index, again in zip(numbers, recompute, strict=True)]
    if stage == config.num_stages - 1:
        found.append(Head(model, parallel, seed, plan.workload.tokens))
    return found


class TrainingWorker:
    """Worker that computes the stages of one rank. `run_timed` runs each tensor-parallel collective inside a stage."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        groups: dict[str, dist.ProcessGroup],
        run_timed: Callable[[str, float, Callable[[], None]], None],
        seed: int = 0,
        device: torch.device = HOST,
    ):
        self.plan, self.groups, self.seed, self.device = plan, groups, seed, device
        tp, self.dp_cp, self.pp_rank = plan.config.coordinates(rank)
        self.config = config = plan.config.with_tp(plan.config.tp_of(self.pp_rank))
        self.step = 0
        self.parallel = TensorParallel(groups.get("tp"), tp, config.tp, config.sequence_parallel, run_timed, device=device)
        self.splits = schedules.get(plan.config.schedule).SPLITS_BACKWARD
        self.stages = {
            stage: StageModule(_blocks(plan, stage, self.parallel, seed), plan.stages[stage].layers)
            for stage in plan.stages_of(self.pp_rank)
        }
        if plan.config.pp == 1 and plan.workload.model.tied_embeddings:  # share one weight
            self.stages[plan.config.num_stages - 1].blocks[-1].words = self.stages[0].blocks[0].words
        parts = Lowered(plan, self.pp_rank, plan.config.microbatches_of(self.dp_cp)).parts
        held: set[int] = set()  # weights already in a bucket; a tied weight goes to the embedding's
        self.buckets = {stage: self._buckets(stage, parts[stage], held) for stage in self.stages}
        self.every = [bucket for some in self.buckets.values() for bucket in some]
        self.optimizer = buckets.Optimizer(segment for bucket in self.every for segment in bucket.segments)
        self.inputs: dict[tuple[str, int, int], Tensor] = {}
        self.outputs: dict[tuple[str, int, int], Tensor] = {}
        self.last_received = ("F", 0, 0)
        self.loss: Tensor | float = 0.0

    def _buckets(self, stage: int, parts: int, held: set[int]) -> list[buckets.Bucket]:
        part_of, precision = self.stages[stage], self.plan.workload.precision
        tied = self.plan.workload.model.tied_embeddings and self.config.pp > 1
        found = []
        for part in range(parts):
            weights = []
            for block in (part_of.blocks[index] for index in part_of.cut(part, parts)):
                for name, weight in block.named_parameters():
                    if id(weight) in held:
                        continue
                    held.add(id(weight))
                    weights.append((weight, tied and name == "words", name in block.replicated and self.config.tp > 1))
            found.append(buckets.bucket(weights, self.config, precision, self.dp_cp % self.config.shards))
        return found

    def gather(self) -> None:
        """All-gather the weights: the last optimizer step updated only this rank's shard of them."""
        if self.config.zero_stage >= 1 and "dp" in self.groups:
            for bucket in self.every:
                bucket.gathering(self.groups["dp"])()

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
            tokens = samples(self.plan, self.seed, self.step, self.dp_cp, m).to(self.device)
        if part or not stage.first:
            x = self.inputs.pop(("F", action.stage, m))
        for index in stage.cut(part, action.parts):
            block = stage.blocks[index]
            leaf = x.detach().requires_grad_() if x is not None else None
            if isinstance(block, Embedding):
                assert tokens is not None
                x = block(tokens[:-1])
            elif isinstance(block, Head):
                assert tokens is not None
                x = block(leaf, tokens[1:])
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
        grad = self.inputs.pop(("B", action.stage, m)) if part or not stage.last else None
        for index in reversed(stage.cut(action.parts - 1 - part, action.parts)):
            leaf, out = stage.kept.pop((m, index))
            self.parallel.deferred = [] if self.splits else None
            torch.autograd.backward(out, grad)
            if self.parallel.deferred:
                stage.deferred[m, index] = self.parallel.deferred
            grad = leaf.grad if leaf is not None else None
        self.parallel.deferred = None
        if grad is None:
            return
        if part + 1 < action.parts:
            self.inputs["B", action.stage, m] = grad
        else:
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
        if self.config.sequence_parallel and self.config.tp > 1:
            for segment in buckets.segments_of(self.every, replicated=True):
                assert segment.reduced is not None
                self.parallel.all_reduce(segment.reduced)
        self.optimizer.step()
        self.step += 1

    # messages

    def send_values(self, action: Action, peers: int) -> list[Tensor]:
        """The tensor to send to each peer: a part of this tensor-parallel rank's slice of the output."""
        value = self.outputs.pop((action.operation, action.stage, action.microbatch))
        if self.config.tp > 1 and not self.config.sequence_parallel:
            value = self.parallel.shard(value, 0)
        return [part.contiguous() for part in value.chunk(peers)]

    def receive_buffer(self, action: Action) -> Tensor:
        """The tensor to receive into, in host memory."""
        workload, config = self.plan.workload, self.config
        slices = max(config.tp, self.plan.config.tp_of(action.peer))
        shape = workload.seq_len // slices, config.microbatch_size, workload.model.hidden
        return torch.empty(shape, dtype=buckets.PRECISIONS[workload.precision])

    def receive(self, action: Action, values: list[Tensor]) -> None:
        """Accept the received slices as input of the next stage; `action.stage` is the stage that sent them."""
        to = action.stage + 1 if action.operation == "F" else action.stage - 1
        self.last_received = action.operation, to, action.microbatch
        self.inputs[self.last_received] = torch.cat(values).to(self.device) if len(values) > 1 else values[0].to(self.device)

    def gather_received(self) -> None:
        """All-gather the slices of the last received message."""
        self.inputs[self.last_received] = self.parallel.all_gather(self.inputs[self.last_received])

    # gradients and weights over data-parallel ranks

    def dp_collective(self, action: Action, backward: bool) -> Callable[[], None]:
        """A function that executes a data-parallel collective, of one bucket or of a whole stage."""
        group, copies = self.groups["dp"], self.groups.get("copies")
        held = self.buckets[action.stage]
        if action.kind == "start":
            held = [held[action.parts - 1 - action.part if backward else action.part]]
        gathers = action.operation == "all_gather"
        works = [bucket.gathering(group) if gathers else bucket.reduction(group, copies) for bucket in held]

        def work() -> None:
            for do in works:
                do()

        return work

    def reduce_tied_embedding(self) -> None:
        """Sum the gradients of the tied embedding over the first and the last stage."""
        for segment in buckets.segments_of(self.every, tied=True):
            segment.accumulate()
            segment.sum_tied(of_kind(self.groups, "embedding"), self.config.tied_shards)
