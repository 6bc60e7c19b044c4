"""A rank that computes: its stages of the model, the gradients, the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import buckets
from holmes_sim.torch_backend.blocks import Block, Embedding, Head, Layer
from holmes_sim.torch_backend.devices import HOST, settle
from holmes_sim.torch_backend.products import Tensors
from sim.kernels.lowering import Lowered
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.plan.program import Action


def samples(plan: Plan, seed: int, step: int, replica: int, microbatch: int) -> Tensor:
    """Tokens (seq_len + 1, microbatch size) of a microbatch: the same samples however the batch is divided."""
    workload, size = plan.workload, plan.config.microbatch_size
    first = (sum(plan.config.num_microbatches[:replica]) + microbatch) * size
    rows = []
    for sample in range(first, first + size):
        stream = torch.Generator().manual_seed((seed * 1_000_003 + step) * 1_000_003 + sample)
        rows.append(torch.randint(workload.model.vocab, (workload.seq_len + 1,), generator=stream))
    return torch.stack(rows, 1)


class Part:
    """A stage: its blocks, and what it keeps of each microbatch from forward to backward."""

    def __init__(self, blocks: list[Block], layers: int):
        self.blocks, self.layers = blocks, layers
        self.first, self.last = isinstance(blocks[0], Embedding), isinstance(blocks[-1], Head)
        self.kept: dict[tuple[int, int], tuple[Tensor | None, Tensor]] = {}
        self.put_off: dict[tuple[int, int], list[Callable[[], None]]] = {}

    def cut(self, part: int, parts: int) -> range:
        """Blocks of one of `parts` parts in forward order: some layers, with the embedding or the head beside its end."""
        lead = int(self.first)
        start, stop = part * self.layers // parts + lead, (part + 1) * self.layers // parts + lead
        return range(0 if part == 0 else start, len(self.blocks) if part == parts - 1 else stop)


class Real:
    """What one rank holds and does. `told` is called around what tensor-parallel ranks exchange within a stage."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        groups: dict[str, dist.ProcessGroup],
        told: Callable[[str, float, Callable[[], None]], None],
        seed: int = 0,
        device: torch.device = HOST,
    ):
        self.plan, self.config, self.groups, self.seed, self.device = plan, plan.config, groups, seed, device
        tp, self.dp_cp, self.place = plan.config.place(rank)
        self.step = 0
        self.tensors = Tensors(groups.get("tp"), tp, plan.config.tp, plan.config.sequence_parallel, told, device=device)
        self.splits = schedules.get(plan.config.schedule).SPLITS_BACKWARD
        self.stages = {stage: Part(self._blocks(stage), plan.stages[stage].layers) for stage in plan.stages_of(self.place)}
        if plan.config.pp == 1 and plan.workload.model.tied_embeddings:  # one weight, held once
            self.stages[plan.config.num_stages - 1].blocks[-1].words = self.stages[0].blocks[0].words
        parts = Lowered(plan, self.place, plan.config.microbatches_of(self.dp_cp)).parts
        held: set[int] = set()  # weights that a bucket has: one that both ends share is in that of the embedding
        self.buckets = {stage: self._buckets(stage, parts[stage], held) for stage in self.stages}
        self.every = [bucket for some in self.buckets.values() for bucket in some]
        self.optimizer = buckets.Optimizer(segment for bucket in self.every for segment in bucket.segments)
        self.inputs: dict[tuple[str, int, int], Tensor] = {}
        self.outputs: dict[tuple[str, int, int], Tensor] = {}
        self.came = ("F", 0, 0)
        self.loss: Tensor | float = 0.0

    def _blocks(self, stage: int) -> list[Block]:
        model, config, workload = self.plan.workload.model, self.config, self.plan.workload
        held = self.plan.stages[stage]
        found: list[Block] = [Embedding(model, self.tensors, self.seed)] if stage == 0 else []
        found += [Layer(model, self.tensors, self.seed, index, config.recompute) for index in range(held.first, held.past_last)]
        if stage == config.num_stages - 1:
            found.append(Head(model, self.tensors, self.seed, workload.tokens))
        return found

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
                    weights.append((weight, tied and name == "words", name in block.alike and self.config.tp > 1))
            found.append(buckets.bucket(weights, self.config, precision, self.dp_cp))
        return found

    def gather(self) -> None:
        """Make the weights whole, where the last optimizer step left each rank its shard."""
        if self.config.zero_stage >= 1 and "dp" in self.groups:
            for bucket in self.every:
                bucket.gathering(self.groups["dp"])()

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in the model, this rank's part) of all weights."""
        for stage in self.stages.values():
            for block in stage.blocks:
                yield from ((name, weight.data) for name, weight in block.named())

    # compute

    def compute(self, action: Action) -> None:
        """F, B, W or the optimizer."""
        if action.kind == "F":
            self._forward(action)
        elif action.kind == "B":
            self._backward(action)
        elif action.kind == "W":
            self._weigh(action)
        else:
            self._finish()
        settle(self.device)

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
            self._hand("F", action.stage, action.stage + 1, m, x.detach())

    def _backward(self, action: Action) -> None:
        stage, m, part = self.stages[action.stage], action.microbatch, action.part
        grad = self.inputs.pop(("B", action.stage, m)) if part or not stage.last else None
        for index in reversed(stage.cut(action.parts - 1 - part, action.parts)):
            leaf, out = stage.kept.pop((m, index))
            self.tensors.later = [] if self.splits else None
            torch.autograd.backward(out, grad)
            if self.tensors.later:
                stage.put_off[m, index] = self.tensors.later
            grad = leaf.grad if leaf is not None else None
        self.tensors.later = None
        if grad is None:
            return
        if part + 1 < action.parts:
            self.inputs["B", action.stage, m] = grad
        else:
            self._hand("B", action.stage, action.stage - 1, m, grad)

    def _hand(self, way: str, stage: int, to: int, m: int, value: Tensor) -> None:
        """Keep what a stage hands on, until it is sent; to the next stage at once where that stands on this rank."""
        if self.config.pp == 1:
            self.inputs[way, to, m] = value
        else:
            self.outputs[way, stage, m] = value

    def _weigh(self, action: Action) -> None:
        stage, m = self.stages[action.stage], action.microbatch
        for index in reversed(stage.cut(action.parts - 1 - action.part, action.parts)):
            with torch.no_grad():
                for weigh in stage.put_off.pop((m, index), ()):
                    weigh()

    def _finish(self) -> None:
        for bucket in self.every:
            for segment in bucket.segments:
                segment.settle()
        if self.config.sequence_parallel and self.config.tp > 1:
            for segment in buckets.of_kind(self.every, alike=True):
                assert segment.reduced is not None
                self.tensors.all_reduce(segment.reduced)
        self.optimizer.step()
        self.step += 1

    # messages

    def outgoing(self, action: Action) -> Tensor:
        """What a send carries: this tensor-parallel rank's slice of it."""
        value = self.outputs.pop((action.operation, action.stage, action.microbatch))
        if self.config.tp > 1 and not self.config.sequence_parallel:
            value = self.tensors.cut(value, 0)
        return value.contiguous()

    def room(self, action: Action) -> Tensor:
        """Where a receive puts what comes: in the host's memory."""
        workload, config = self.plan.workload, self.config
        shape = workload.seq_len // config.tp, config.microbatch_size, workload.model.hidden
        return torch.empty(shape, dtype=buckets.PRECISIONS[workload.precision])

    def take(self, action: Action, value: Tensor) -> None:
        """A message has come; `action.stage` is the stage that sent it."""
        to = action.stage + 1 if action.operation == "F" else action.stage - 1
        self.came = action.operation, to, action.microbatch
        self.inputs[self.came] = value.to(self.device)

    def join(self) -> None:
        """Gather the slices of the message that came last."""
        self.inputs[self.came] = self.tensors.all_gather(self.inputs[self.came])

    # gradients and weights over data-parallel ranks

    def travelling(self, action: Action, backward: bool) -> Callable[[], None]:
        """What a collective of the data-parallel ranks does, of one bucket or of a whole stage."""
        group = self.groups["dp"]
        held = self.buckets[action.stage]
        if action.kind == "start":
            held = [held[action.parts - 1 - action.part if backward else action.part]]
        gathers = action.operation == "all_gather"
        works = [bucket.gathering(group) if gathers else bucket.reduction(group) for bucket in held]

        def work() -> None:
            for do in works:
                do()

        return work

    def tie(self) -> None:
        """Sum the gradient of the tied embedding between the two end stages."""
        for segment in buckets.of_kind(self.every, tied=True):
            segment.settle()
            segment.share(self.groups["embedding"])
