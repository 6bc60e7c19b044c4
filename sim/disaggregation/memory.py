"""Memory of attention ranks and expert ranks in bytes; parts and constants as in `sim.kernels.memory`.

Attention ranks hold no routed experts but those they keep, and expert ranks hold nothing else. All microbatches of a round are
in flight at the turn from forward to backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sim.disaggregation import shares
from sim.disaggregation.shares import Share
from sim.disaggregation.stage import DisaggregatedStage
from sim.kernels import communicators, kept_tensors, memory
from sim.kernels.compute import first_kernels
from sim.network.routes import Devices
from sim.units import Bytes
from sim.workload.kernels import Kernel


def attention_rank_bytes(stage: DisaggregatedStage) -> Bytes:
    """Peak bytes of an attention rank."""
    workload, config, layers = stage.workload, stage.config, stage.workload.model.layers
    held = memory.state_bytes(shares.dense_parameters(stage), workload, config, len(stage.attention))
    held += _expert_state(stage, shares.attention_rank_experts(stage))
    before, after = shares.attention_kernels(stage)
    saved = _saved((*before, *after))
    entered = float(stage.microbatch_size * workload.seq_len * workload.model.hidden * workload.bytes_per_value)
    own, again = (entered, saved) if stage.recompute == "full" else (saved, 0.0)
    experts, most = _experts(stage, shares.kept_share)
    each = (layers * own + experts) * (1 + config.memory.fragmentation) + _saved(first_kernels(workload, config))
    ends = memory.logits_bytes(workload, config) + kept_tensors.loss_bytes(workload, config)
    return held + stage.microbatches * each + max(again, most) + ends + _fixed(stage)


def expert_rank_bytes(stage: DisaggregatedStage) -> Bytes:
    """Peak bytes of an expert rank."""
    held = _expert_state(stage, shares.expert_rank_experts(stage))
    each, most = _experts(stage, shares.expert_share)
    return held + stage.microbatches * each * (1 + stage.config.memory.fragmentation) + most + _fixed(stage)


def fits(stage: DisaggregatedStage) -> bool:
    """Whether each rank fits its device beside the head-room of the topology."""
    return attention_fits(stage) and experts_fit(stage)


def attention_fits(stage: DisaggregatedStage) -> bool:
    """Whether the attention ranks fit; they need more for each expert that they keep."""
    return attention_rank_bytes(stage) <= room(stage, stage.attention)


def experts_fit(stage: DisaggregatedStage) -> bool:
    """Whether the expert ranks fit; they need less for each expert that attention ranks keep."""
    return expert_rank_bytes(stage) <= room(stage, stage.experts)


def room(stage: DisaggregatedStage, devices: Devices) -> Bytes:
    """Bytes that a rank of a set may take: those of the smallest of its devices, without the head-room of the topology."""
    specs = dict.fromkeys(map(stage.topology.fleet.spec, devices))
    return min(map(stage.topology.room, specs))


def _expert_state(stage: DisaggregatedStage, experts: int) -> Bytes:
    """Weights, gradients and optimizer state of experts; ranks of equal number in their groups share the last."""
    return memory.state_bytes(float(experts * shares.expert_size(stage)), stage.workload, stage.config, stage.groups)


def _experts(stage: DisaggregatedStage, share_of: Callable[[DisaggregatedStage, int], Share]) -> tuple[Bytes, Bytes]:
    """(bytes that the experts of all layers keep of a microbatch, most that one layer computes again in its backward)."""
    alike = [(share_of(stage, kept), layers) for kept, layers in Counter(stage.kept).items()]
    saved = [_saved(shares.expert_kernels(stage, share)) for share, _ in alike]
    if stage.recompute != "full":
        return sum(layers * kept for (_, layers), kept in zip(alike, saved, strict=True)), 0.0
    row = stage.workload.model.hidden * stage.workload.bytes_per_value
    return float(sum(layers * share.rows * row for share, layers in alike)), max(saved)


def _saved(kernels: tuple[Kernel, ...]) -> Bytes:
    return sum(kernel.saved for kernel in kernels)


def _fixed(stage: DisaggregatedStage) -> Bytes:
    """Bytes beside torch's tensors, and buffers."""
    return communicators.outside_torch(stage.config) + stage.config.memory.workspace
