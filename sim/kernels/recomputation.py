"""Recomputation: where that of a whole layer ends; what recomputed modules of a layer compute again, and the bytes they free.

The modules are Megatron-Core's (--recompute-modules, megatron/core/transformer/transformer_config.py):

core_attn   the attention core: an unfused one computes its scores again; a fused one keeps none, so it has nothing to recompute
layernorm   both norms: their outputs, the inputs of the products after them, are discarded
moe_act     the activation function of the routed experts: its output, the input of the down projection, is discarded
mlp         the MLP of a layer without experts, with its collectives: it keeps its input alone
moe         router, experts and shared experts, with their collectives: they keep their input alone
mla_up_proj  the products from latent vectors to queries, keys and values: their results are discarded
"""

from __future__ import annotations

from sim.kernels.frozen_weights import trained_layer_parameters
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes
from sim.workload.kernels import Attention, Kernel
from sim.workload.workload import Workload

LATENT = ("queries", "keys and values")
"""Names of the products from latent vectors to queries, keys and values (`sim.workload.kernels`)."""
REUSE = 10**9
"""Parameters between two uses of a weight, from which on DeepSpeed's ZeRO 3 releases it between them: the default of
stage3_max_reuse_distance (deepspeedai/DeepSpeed b3870363e deepspeed/runtime/zero/constants.py, and of today)."""


def backward_gathers(workload: Workload, config: ParallelConfig) -> int:
    """Times for which a backward gathers the weights of a layer under ZeRO 3 that waits for gathers, as DeepSpeed does: twice
    where it repeats the forward of layers that are too large to keep their weights until their gradients (`REUSE`), else once.

    DeepSpeed gathers by module, so a larger layer keeps its last one or none; that it keeps none is an approximation. Gathers
    that overlap are by layer, as FSDP's are, and both passes share one."""
    large = trained_layer_parameters(workload, config) > REUSE
    return 2 if config.gathers_between and config.recompute == "full" and large else 1


def stops_early(workload: Workload, config: ParallelConfig) -> bool:
    """Whether recomputation of a whole layer, or of its MLP, ends when the backward has all values that it needs: before the
    last product and the residual sum (`ParallelConfig.early_stop`). The results of experts are weighted after their last
    product, so layers with experts are recomputed whole."""
    experts = workload.model.experts
    return config.early_stop and (config.recompute == "full" or config.repeats_mlp(experts)) and not experts


def repeated(kernels: tuple[Kernel, ...], config: ParallelConfig) -> tuple[Kernel, ...]:
    """The kernels of a layer whose forward runs again in its backward; of a dense MLP with `early_stop` all but the last."""
    modules, mlp = config.modules, _mlp(kernels)
    found: list[Kernel] = []
    if "core_attn" in modules:
        found += [kernel for kernel in kernels if isinstance(kernel, Attention)]
    if "layernorm" in modules:
        found += [kernel for kernel in kernels if kernel.name == "norm"]
    if config.repeats_mlp(_is_routed(mlp)):
        found += mlp[:-1] if config.early_stop and not _is_routed(mlp) else mlp
    elif "moe_act" in modules and _is_routed(mlp):
        found.append(mlp[-2])
    if "mla_up_proj" in modules:
        found += [kernel for kernel in kernels if kernel.name in LATENT]
    return tuple(found)


def freed_bytes(kernels: tuple[Kernel, ...], config: ParallelConfig) -> Bytes:
    """Bytes that a layer does not keep for a microbatch, of what its kernels save; scores of attention are not among them.

    The output of the second norm is the input of the first product of a dense MLP, or of the router and the shared experts; it
    is kept once. As input of a recomputed MLP it is kept, unless it is discarded."""
    modules, mlp = config.modules, _mlp(kernels)
    ups = [kernel.saved for kernel in mlp if kernel.name == "up"]  # 0 if frozen, and no adapter needs it
    routed = _is_routed(mlp)
    normed = next(kernel.saved for kernel in kernels if kernel.name == "qkv")  # 0 if frozen, and no adapter needs it
    entered = next(kernel.saved for kernel in kernels if kernel.name == "norm")  # a norm's input is as large as its output
    saved = entered if routed else ups[0]
    freed = 0.0
    if config.repeats_mlp(routed):
        freed += sum(kernel.saved for kernel in mlp) - entered
        saved = entered
    elif "moe_act" in modules and routed:
        freed += mlp[-1].saved
    if "mla_up_proj" in modules:
        freed += sum(kernel.saved for kernel in kernels if isinstance(kernel, Attention))
    if "layernorm" in modules:
        freed += normed + saved
    return freed


def _is_routed(mlp: tuple[Kernel, ...]) -> bool:
    return any(kernel.name == "dispatch" for kernel in mlp)


def _mlp(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels between the second norm and the last residual; those of the routed experts, or the dense MLP, come last."""
    second = max(index for index, kernel in enumerate(kernels) if kernel.name == "norm")
    return kernels[second + 1 : -1]
