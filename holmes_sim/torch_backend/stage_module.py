"""A stage of the model on one rank: its blocks, what it keeps of microbatches, and how its weights are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from holmes_sim.torch_backend.adapters import AdaptedLayer, freeze
from holmes_sim.torch_backend.blocks import Block, Embedding, Head, Layer
from holmes_sim.torch_backend.buckets import PRECISIONS, Held, Sharing
from holmes_sim.torch_backend.expert_mesh import ExpertMesh
from holmes_sim.torch_backend.experts import ExpertLayer
from holmes_sim.torch_backend.rank_in_plan import RankInPlan
from holmes_sim.torch_backend.slices import WHOLE, Grid
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


def in_parts(plan: Plan) -> bool:
    """Whether each tensor-parallel rank has a part of the gradients of weights that all of them hold: with sequence
    parallelism, and with adapters."""
    return plan.config.sequence_parallel or plan.workload.adapter is not None


@dataclass(frozen=True, slots=True)
class Shares:
    """How a rank shares its weights, with the configuration of its stage. `own`: its number among the ranks of the stage;
    `dp_cp_before`, `edp_before`: ranks of other pipelines before it in a group that reduces gradients of dense weights, and of
    routed experts; `tied`: whether the word embedding is tied and on two stages; `in_parts`: that of the plan."""

    config: ParallelConfig
    own: int
    dp_cp_before: int
    edp_before: int
    tied: bool
    in_parts: bool

    def of(self, block: Block, name: str, grids: Mapping[str, Grid]) -> Sharing:
        """How the weight `name` of a block is shared, in a bucket of which the rank has the slices of `RankInPlan.grids_of`."""
        config = self.config
        if config.sums_experts_apart and name in block.routed:
            shard = self.edp_before + self.own // config.expert_mesh
            return Sharing("edp", config.expert_gradient_ranks, shard, grid=grids.get("edp", Grid()))
        grid = grids.get("dp", Grid())
        replicated = name in block.replicated and config.tp * grid.number > 1
        shard, tied = (self.dp_cp_before + self.own // config.tp) % config.shards, self.tied and name == "words"
        partial = replicated and grid.number > 1 and self.in_parts
        return Sharing("dp", config.shards, shard, tied, replicated, grid, partial)


class StageModule:
    """A stage: its blocks, and what it keeps of each microbatch from forward to backward.

    `ranges`: the blocks of each gradient bucket, in order; `sections`: the section of each (`sim.plan.pipelines`), and
    `grids`: the slices that this rank has of its weights (`RankInPlan.grids_of`)."""

    def __init__(
        self, blocks: list[Block], ranges: tuple[range, ...], sections: tuple[int, ...], grids: tuple[Mapping[str, Grid], ...]
    ):
        self.blocks, self.ranges, self.sections, self.grids = blocks, ranges, sections, grids
        self.first, self.last = isinstance(blocks[0], Embedding), isinstance(blocks[-1], Head)
        self.kept: dict[tuple[int, int], tuple[Tensor | None, Tensor]] = {}
        self.deferred: dict[tuple[int, int], list[Callable[[], None]]] = {}

    def cut(self, part: int, parts: int) -> range:
        """Indices of the blocks in one of `parts` parts of the stage, in forward order: the whole stage, or a bucket of it."""
        return range(len(self.blocks)) if parts == 1 else self.ranges[part]

    def backward(self, microbatch: int, index: int, grad: Tensor | None) -> Tensor | None:
        """The gradient of what entered a block in the forward of a microbatch, from that of its result."""
        leaf, out = self.kept.pop((microbatch, index))
        if out.requires_grad:  # not a frozen embedding
            torch.autograd.backward(out, grad)
        return leaf.grad if leaf is not None else None

    def by_bucket(self, held: set[int], shares: Shares) -> Iterator[list[Held]]:
        """The weights of each gradient bucket, and how they are shared. Weights whose id is in `held` are already in a bucket;
        those of these buckets are added to it."""
        for own, grids in zip(self.ranges, self.grids, strict=True):
            weights: list[Held] = []
            for block in (self.blocks[index] for index in own):
                for name, weight in block.named_parameters():
                    if id(weight) not in held:
                        held.add(id(weight))
                        weights.append((weight, block.cuts.get(name, WHOLE), shares.of(block, name, grids)))
            yield weights


def _ranges(sections: Iterable[tuple[int, bool, bool, int]]) -> Iterator[range]:
    """Indices of the blocks of each gradient bucket, section by section, from (layers, whether with the embedding, whether with
    the head, buckets) of each section. The first bucket of a section includes its embedding,
    the last one its head."""
    begin = 0
    for layers, embedding, head, number in sections:
        lead, past = begin + int(embedding), begin + int(embedding) + layers + int(head)
        ends = [begin, *(lead + part * layers // number for part in range(1, number)), past]
        yield from (range(*pair) for pair in pairwise(ends))
        begin = past


def stage_module(place: RankInPlan, stage: int, parallel: TensorParallel, seed: int, mesh: ExpertMesh) -> StageModule:
    """A stage of a rank."""
    blocks = blocks_of(place.plan, stage, parallel, seed, mesh, place.tokens)
    for weight in (weight for block in blocks for weight in block.parameters() if not weight.requires_grad):
        weight.data = weight.data.to(PRECISIONS[place.plan.workload.precision])
    found = place.buckets(stage)
    ranges = _ranges((*shape, one.number) for shape, one in zip(place.shapes(stage), found, strict=True))
    sections = tuple(one.section for one in found for _ in one.each())
    return StageModule(blocks, tuple(ranges), sections, tuple(place.grids_of(number) for number in sections))


def blocks_of(plan: Plan, stage: int, parallel: TensorParallel, seed: int, mesh: ExpertMesh, tokens: int) -> list[Block]:
    """The blocks of a stage in forward order. `tokens`: those of a whole batch, over which the loss is a mean."""
    model, config, layers = plan.workload.model, plan.config_of((stage,)), plan.stages[stage]
    adapter = plan.workload.adapter
    found: list[Block] = [Embedding(model, parallel, seed)] if stage == 0 else []
    alike = config.by_recomputation(layers.layers)
    recompute = ["+".join(one.recompute_modules) or one.recompute for number, one in alike for _ in range(number)]
    numbers = range(layers.first, layers.past_last)
    for index, again in zip(numbers, recompute, strict=True):
        if model.experts:
            found.append(ExpertLayer(model, parallel, seed, index, again, mesh))
        elif adapter is not None:
            found.append(AdaptedLayer(model, parallel, seed, index, again, adapter))
        else:
            found.append(Layer(model, parallel, seed, index, again))
    if stage == config.num_stages - 1:
        found.append(Head(model, parallel, seed, tokens))
    for block in found if adapter is not None else ():
        if not isinstance(block, Layer):
            freeze(block)
    return found
