"""What each set of ranks computes of a layer with experts: kernels, parameters and the tokens that travel.

Attention ranks compute all but the routed experts: norms, attention, residuals, router, the copies of tokens and shared
experts. A rank with routed experts sorts the rows that came where it has several experts, and multiplies them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sim.disaggregation.stage import DisaggregatedStage
from sim.units import Bytes
from sim.workload.kernels import Kernel, LayerSharding, Pass, layer_kernels

SORTS = 4.0
"""Values of h that a rank with several experts reads and writes for each row, to sort what came and what leaves
(`sim.workload.kernels.layer_kernels`)."""


class Share(NamedTuple):
    """What one rank has of the experts of a layer: `experts` of them, which process `rows` rows of a microbatch."""

    experts: int
    rows: int


def expert_share(stage: DisaggregatedStage, kept: int) -> Share:
    """The share of an expert rank, of a layer of which attention ranks keep `kept` experts; routing is balanced."""
    experts = stage.workload.model.experts
    copies = _copies(stage) * stage.attention_ranks
    return Share((experts - kept) // stage.expert_ranks, round(copies * (experts - kept) / experts / stage.expert_ranks))


def kept_share(stage: DisaggregatedStage, kept: int) -> Share:
    """The share of an attention rank, of a layer of which attention ranks keep `kept` experts."""
    return Share(kept // stage.attention_ranks, round(_copies(stage) * kept / stage.workload.model.experts))


def _copies(stage: DisaggregatedStage) -> int:
    """Copies of tokens that an attention rank routes in a microbatch."""
    workload = stage.workload
    return stage.microbatch_size * workload.seq_len * workload.model.experts_per_token


def attention_kernels(stage: DisaggregatedStage) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
    """Kernels of a layer and a microbatch on an attention rank, (before, after) its routed experts."""
    sharding = LayerSharding(ep=stage.workload.model.experts)  # tokens leave for other ranks, and none is sorted here
    *before, _, _, _, residual = stage.workload.kernels(stage.microbatch_size, sharding)
    return tuple(before), (residual,)


def expert_kernels(stage: DisaggregatedStage, share: Share) -> tuple[Kernel, ...]:
    """Kernels of a rank's experts of one layer and a microbatch."""
    workload, experts = stage.workload, share.experts
    if not share.rows:
        return ()
    model = replace(workload.model, experts=experts, experts_per_token=1, n_group=1, topk_group=1)
    sharding = LayerSharding(load=share.rows / (stage.microbatch_size * workload.seq_len))
    *_, up, activation, down, _ = layer_kernels(model, stage.microbatch_size, workload.seq_len, sharding, _nbytes(stage))
    moved = SORTS * share.rows * model.hidden * _nbytes(stage) if experts > 1 else 0.0
    return (*((Pass("sort", moved),) if moved else ()), up, activation, down)


def _nbytes(stage: DisaggregatedStage) -> int:
    return stage.workload.bytes_per_value


def expert_size(stage: DisaggregatedStage) -> int:
    """Parameters of one routed expert."""
    model = stage.workload.model
    return model.expert_parameters // model.experts


def dense_layer_parameters(stage: DisaggregatedStage) -> int:
    """Parameters of a layer without its routed experts."""
    return stage.workload.model.layer_parameters - stage.workload.model.expert_parameters


def dense_parameters(stage: DisaggregatedStage) -> int:
    """Parameters that each attention rank holds once, without kept experts: layers, embedding and head."""
    model = stage.workload.model
    tied = model.vocab * model.hidden if model.tied_embeddings else 0
    return model.layers * dense_layer_parameters(stage) + model.embedding_parameters + model.head_parameters - tied


def attention_rank_experts(stage: DisaggregatedStage) -> int:
    """Experts that an attention rank keeps, of all layers together."""
    return sum(stage.kept) // stage.attention_ranks


def expert_rank_experts(stage: DisaggregatedStage) -> int:
    """Experts that an expert rank holds, of all layers together."""
    model = stage.workload.model
    return (model.layers * model.experts - sum(stage.kept)) // stage.expert_ranks


def held_parameters(stage: DisaggregatedStage) -> tuple[int, int, int]:
    """Parameters of (an attention rank without kept experts, its kept experts, the experts of an expert rank)."""
    size = expert_size(stage)
    return dense_parameters(stage), attention_rank_experts(stage) * size, expert_rank_experts(stage) * size


def held_experts(stage: DisaggregatedStage, kept: int) -> tuple[range, ...]:
    """The experts of a layer that each rank of a group holds, attention ranks first; attention ranks keep the first `kept`."""
    found, first = list[range](), 0
    shares = [(kept, stage.attention_ranks), (stage.workload.model.experts - kept, stage.expert_ranks)]
    for each in (experts // ranks for experts, ranks in shares for _ in range(ranks)):
        found.append(range(first, first + each))
        first += each
    return tuple(found)


def sent_bytes(stage: DisaggregatedStage, kept: int) -> list[list[Bytes]]:
    """Bytes that the ranks of a group, attention ranks first, send each other in the dispatch of a microbatch; combine returns
    as many."""
    m, n, experts = stage.attention_ranks, stage.expert_ranks, stage.workload.model.experts
    values = _copies(stage) * stage.workload.model.hidden * _nbytes(stage)
    to_attention, to_experts = values * kept / experts / m, values * (experts - kept) / experts / n
    sent = [[to_attention] * m + [to_experts] * n for _ in range(m)] + [[0.0] * (m + n) for _ in range(n)]
    for rank in range(m):
        sent[rank][rank] = 0.0
    return sent
