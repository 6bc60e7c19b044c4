"""A stage of the model on one rank: its blocks, what it keeps of microbatches, and how its weights are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from holmes_sim.torch_backend.adapters import AdaptedLayer, freeze
from holmes_sim.torch_backend.blocks import Block, Embedding, Head, Layer
from holmes_sim.torch_backend.buckets import Sharing
from holmes_sim.torch_backend.expert_mesh import ExpertMesh
from holmes_sim.torch_backend.experts import ExpertLayer
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Shares:
    """How a rank shares its weights, with the configuration of its stage. `own`: its number among the ranks of the stage;
    `tied`: whether the word embedding is tied and on two stages."""

    config: ParallelConfig
    own: int
    tied: bool

    def of(self, block: Block, name: str) -> Sharing:
        """How the weight `name` of a block is shared."""
        config = self.config
        if config.splits_experts and name in block.routed:
            return Sharing("edp", config.edp, self.own // config.expert_mesh)
        replicated = name in block.replicated and config.tp > 1
        return Sharing("dp", config.shards, self.own // config.tp % config.shards, self.tied and name == "words", replicated)


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

    def by_bucket(self, parts: int, held: set[int], shares: Shares) -> Iterator[list[tuple[nn.Parameter, Sharing]]]:
        """The weights of each of `parts` gradient buckets, and how they are shared. Weights whose id is in `held` are already
        in a bucket; those of these buckets are added to it."""
        for part in range(parts):
            weights = []
            for block in (self.blocks[index] for index in self.cut(part, parts)):
                for name, weight in block.named_parameters():
                    if id(weight) not in held and weight.requires_grad:
                        held.add(id(weight))
                        weights.append((weight, shares.of(block, name)))
            yield weights


def blocks_of(plan: Plan, stage: int, parallel: TensorParallel, seed: int, mesh: ExpertMesh) -> list[Block]:
    """The blocks of a stage in forward order."""
    model, config, layers = plan.workload.model, plan.config_of((stage,)), plan.stages[stage]
    adapter = plan.workload.adapter
    found: list[Block] = [Embedding(model, parallel, seed)] if stage == 0 else []
    alike = config.by_recomputation(layers.layers)
    recompute = [one.recompute for number, one in alike for _ in range(number)]
    numbers = range(layers.first, layers.past_last)
    for index, again in zip(numbers, recompute, strict=True):
        if model.experts:
            found.append(ExpertLayer(model, parallel, seed, index, again, mesh))
        elif adapter is not None:
            found.append(AdaptedLayer(model, parallel, seed, index, again, adapter))
        else:
            found.append(Layer(model, parallel, seed, index, again))
    if stage == config.num_stages - 1:
        found.append(Head(model, parallel, seed, plan.workload.tokens))
    for block in found if adapter is not None else ():
        if not isinstance(block, Layer):
            freeze(block)
    return found
