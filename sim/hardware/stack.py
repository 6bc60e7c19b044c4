"""Software stack of a run: the share of the isolated rates of devices and links that a training step reaches.

The catalogue holds rates measured in isolation: matrix products in a loop, nccl-tests, STREAM. A training step reaches a share
of them that depends on the software. `gemm`, `attention`, `elementwise` and `communication` are the shares for matrix products
(clocks under load, caches), cores of older attention kernels (age of the kernel, length of sequences), passes over memory
(degree of fusion) and links (library, congestion); `attention_newest` is that for cores of the newest attention kernels. The
other numbers are times and bytes that software adds; `sim/catalog/stacks` holds fitted stacks. Plans are made with `DEFAULT`
unless the topology names another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sim.hardware.cluster import Cluster, Device, Fleet
from sim.hardware.device_spec import DeviceSpec, GemmCurve
from sim.hardware.link_spec import LinkSpec
from sim.hardware.memory_facts import MEGATRON, MemoryFacts
from sim.units import Bytes, Seconds

SHARES = ("gemm", "attention", "attention_newest", "elementwise", "communication")
"""Numbers that are shares of isolated rates."""
TIMES = ("launch", "step", "launch_per_rank", "network_delay")
"""Numbers that are seconds."""
NUMBERS = (*SHARES, *TIMES, "update_bytes")
"""Numbers that can be fitted; a stack fits four of them at most."""
ATTENTION_FACTS = ("cudnn_9_19", "attention_bf16_sums")
"""Facts of software for which a device may have attention rates of its own (`DeviceSpec.other_attention`)."""
FACTS = (
    "blocking", "all_reduces", "tp_overlap", "tp_backward_overlap", "newest_attention", "newest_products", "fused_accumulation",
    "early_stop", "whole_messages", "fp8_param_gather", "fp8_attention", "fp8_head", "current_scaling", "amax_reduction",
    "fused_experts", "overlap_shared_experts", "overlap_expert_communication", "copied_sequences", "gathered_keys",
    "whole_latents", "separate_qkv", "separate_gate", "separate_scatters", "summed_norms", "tensor_lists", "engine_modules",
    "held_receivers", "unfused_optimizer", *ATTENTION_FACTS,
)  # fmt: skip
"""What is read in a software's source or in how it was started, and not fitted: switches. `passes`, `memory`, `dispatcher`
and `message_calls` are further facts."""
MESSAGE_CALLS = ("sender of an activation", "its receiver", "sender of a gradient", "its receiver")
"""What the numbers of `Stack.message_calls` belong to: calls of the host during which the device waits, for one message."""
PASSES = ("norm", "heads", "residual", "activation", "loss", "scores", "adapter")
"""Elementwise kernels of a layer that software may fuse less than Megatron-LM does (`sim.workload.kernels`), the scores of
unfused attention (`sim.kernels.formulas`), and the sums of adapters, of which PEFT's are 1 (`sim.workload.adapter_kernels`)."""

OVERLAPPED_LINKS = ("nvlink", "hccs")
"""What the names of links begin with over which collectives overlap products: NVLink by Transformer Engine's user buffers, HCCS
of Ascend by MindSpeed's mc2 (--use-mc2)."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Shares of isolated rates, and what software adds to them.

    `launch` is host seconds per forward of a layer, and `step` per step. In a pipeline over several nodes, `launch_per_rank` is
    added to `launch` for each rank of the tensor-parallel group. `network_delay` is added to the latency of every NIC type,
    except for gradients and parameters of data parallelism (`LinkSpec.delay`).
    `update_bytes` is bytes moved per parameter and step beside the optimizer (`DeviceSpec`).

    `blocking`: the run uses CUDA_LAUNCH_BLOCKING=1, so the host waits for each kernel before it launches the next (CUDA Toolkit
    Documentation, environment variables). `all_reduces`: ZeRO 1 all-reduces gradients. `tp_overlap`: collectives of tensor
    parallelism overlap the products beside them, over NVLink and HCCS. `tp_backward_overlap`: the sums of input gradients do.
    `copied_sequences`: they copy what they gather and scatter. `gathered_keys`: cp ranks gather keys and values at once, of
    as many heads as queries. `separate_qkv`, `separate_gate`: queries, keys and values, or gate and up, have input gradients
    of their own, which ranks sum one by one; `separate_scatters`: with sequence parallelism ranks scatter all five one by one.
    `whole_latents`: with latent attention, each tensor-parallel rank makes the latent vectors of all tokens (all nine:
    `ParallelConfig`). `newest_attention`: attention has the newest
    kernels; `cudnn_9_19`: of cuDNN 9.19 or later, `attention_bf16_sums`: adding the gradients of queries in bf16
    (NVTE_CK_IS_V3_ATOMIC_FP32=0 of Transformer Engine for ROCm), both where the device has rates.
    `newest_products`: products reach the rates of the newest libraries (`GemmCurve.older`). `fused_accumulation`: gradients are
    accumulated by the products that compute them. `passes`: bytes that elementwise kernels move, as (name, multiple of
    Megatron-LM's fused kernels) (all three: `DeviceSpec`). `early_stop`: recomputation of a layer ends before its last product;
    `whole_messages`: tensor-parallel ranks send all activations each to the next stage, not a slice; `fp8_param_gather`:
    weights of fp8 products are gathered in fp8 (all three: `ParallelConfig`). `fp8_attention`, `fp8_head`:
    attention and logits multiply in fp8 where the other products do; `current_scaling`: tensors in fp8 have the scale of their
    own largest value, not of earlier ones; `fused_experts`: products of experts in mxfp8 apply the activation function (all
    four: `DeviceSpec`). `amax_reduction`: all ranks of a stage share largest values in fp8; `dispatcher`: how tokens reach the
    ranks of an ep group; `overlap_shared_experts`, `overlap_expert_communication`: they travel beside shared experts, or beside
    another microbatch (all four: `ParallelConfig`, the last three for plans that are searched; a plan that is given has its
    own).
    `memory`: what the software keeps beyond Megatron-LM. `tensor_lists`: under ZeRO 3 collectives take a list of one tensor for
    each rank, which the host cuts and copies one by one; `engine_modules`: layers are made of Transformer Engine's modules,
    whose calls take the host longer; `unfused_optimizer`: Adam is torch's, kernel by kernel (all three: `DeviceSpec`).
    `held_receivers`: messages of a pipeline hold the receiver for as long as they travel, too (`ParallelConfig`);
    `message_calls`: calls of the host for each message (`MESSAGE_CALLS`).
    `refuses`: plans that it cannot run (`sim.hardware.refusals`).
    """

    gemm: float = 1.0
    attention: float = 1.0
    attention_newest: float = 1.0
    elementwise: float = 1.0
    communication: float = 1.0
    launch: Seconds = 0.0
    step: Seconds = 0.0
    launch_per_rank: Seconds = 0.0
    network_delay: Seconds = 0.0
    update_bytes: Bytes = 0.0
    blocking: bool = False
    all_reduces: bool = False
    tp_overlap: bool = False
    tp_backward_overlap: bool = False
    copied_sequences: bool = False
    gathered_keys: bool = False
    whole_latents: bool = False
    separate_qkv: bool = False
    separate_gate: bool = False
    separate_scatters: bool = False
    newest_attention: bool = False
    cudnn_9_19: bool = False
    attention_bf16_sums: bool = False
    newest_products: bool = False
    fused_accumulation: bool = False
    early_stop: bool = False
    whole_messages: bool = False
    fp8_param_gather: bool = False
    fp8_attention: bool = False
    fp8_head: bool = False
    current_scaling: bool = False
    amax_reduction: bool = False
    fused_experts: bool = False
    summed_norms: bool = False
    tensor_lists: bool = False
    engine_modules: bool = False
    unfused_optimizer: bool = False
    held_receivers: bool = False
    message_calls: tuple[int, int, int, int] = (0, 0, 0, 0)
    dispatcher: str = "alltoall"
    overlap_shared_experts: bool = False
    overlap_expert_communication: bool = False
    passes: tuple[tuple[str, float], ...] = ()
    memory: MemoryFacts = MEGATRON
    refuses: tuple[str, ...] = ()

    def unfitted(self) -> Stack:
        """The default numbers with the facts of this stack."""
        return replace(self, **{name: getattr(DEFAULT, name) for name in NUMBERS})

    def device(self, isolated: DeviceSpec) -> DeviceSpec:
        """The device at the rates that a step with this software reaches."""
        others = isolated.other_attention
        newest = next((rates for fact, rates in others if getattr(self, fact)), isolated.newest_attention)
        return replace(
            isolated,
            gemm=self._products(isolated.gemm),
            narrow_gemm=tuple((name, self._products(curve)) for name, curve in isolated.narrow_gemm),
            attention=isolated.attention.scaled(self.attention),
            newest_attention=newest.scaled(self.attention_newest) if newest else None,
            other_attention=tuple((fact, rates.scaled(self.attention_newest)) for fact, rates in others),
            runs_newest=self.newest_attention,
            elementwise_efficiency=isolated.elementwise_efficiency * self.elementwise,
            launch=self.launch,
            launch_per_rank=self.launch_per_rank,
            step=self.step,
            update_bytes=self.update_bytes,
            blocking=self.blocking,
            fused_accumulation=self.fused_accumulation,
            fp8_attention=self.fp8_attention,
            fp8_head=self.fp8_head,
            current_scaling=self.current_scaling,
            fused_experts=self.fused_experts,
            summed_norms=self.summed_norms,
            tensor_lists=self.tensor_lists,
            engine_modules=self.engine_modules,
            unfused_optimizer=self.unfused_optimizer,
            message_calls=self.message_calls,
            passes=self.passes,
        )

    def _products(self, curve: GemmCurve) -> GemmCurve:
        compute, memory = curve.compute_efficiency * self.gemm, curve.memory_efficiency * self.gemm
        older = 1.0 if self.newest_products else curve.older
        return replace(curve, compute_efficiency=compute, memory_efficiency=memory, older=older)

    def link(self, isolated: LinkSpec) -> LinkSpec:
        """The link at the rates that a step with this software reaches; no scaled efficiency exceeds both 1 and its isolated
        value."""
        shares = tuple((name, min(share * self.communication, max(share, 1.0))) for name, share in isolated.efficiency)
        return replace(isolated, efficiency=shares)

    def nic(self, isolated: LinkSpec) -> LinkSpec:
        """The NIC type at the rates and latencies that a step with this software reaches."""
        return replace(self.link(isolated), delay=self.network_delay)


DEFAULT = Stack(
    gemm=0.95, attention=0.72, attention_newest=0.95, elementwise=0.90, communication=0.92, launch=1.0e-3, step=5e-3,
    newest_attention=True,
)  # fmt: skip
"""The stack of all plans and simulations. Its numbers were fitted once to the runs of validation/ with equal weight for each
source; docs/model.md says how well such a fit predicts a source that it has not seen. `attention_newest` was not fitted: it is
the share of products, because the rates of both were measured in short loops (docs/model.md). Its one fact: attention runs the
newest kernels, because the attention of torch and of Transformer Engine does, on Hopper cuDNN's (docs/profile.md). Software
that runs older ones has a stack that says so."""


def applied(stack: Stack, fleet: Fleet) -> Fleet:
    """The fleet under another stack; `fleet` has the rates of the default stack."""
    if stack == DEFAULT:
        return fleet
    shares = {name: getattr(stack, name) / getattr(DEFAULT, name) for name in SHARES}
    change = replace(stack, **shares, launch_per_rank=stack.launch_per_rank if _several_nodes(fleet) else 0.0)
    return replace(fleet, clusters=tuple(_cluster(change, cluster) for cluster in fleet.clusters))


def overlaps_tensor_parallel(
    stack: Stack, fleet: Fleet, tp: int, own: bool | None = None, placement: Iterable[Device] = ()
) -> bool:
    """Whether collectives of tensor parallelism overlap products: the plan says so (`own`) or, where it says nothing, the
    software does it, and every node joins its devices by links over which it can (`OVERLAPPED_LINKS`). A group over several
    nodes does not overlap. What a plan says counts for the nodes of its `placement`, where that is given."""
    used = {device.cluster for device in placement if own is not None} or {cluster.name for cluster in fleet.clusters}
    nodes = [cluster.node for cluster in fleet.clusters if cluster.node.count > 1 and cluster.name in used]
    joined = all(node.intra_node.name.startswith(OVERLAPPED_LINKS) for node in nodes)
    return (stack.tp_overlap if own is None else own) and joined and tp <= max((node.count for node in nodes), default=1)


def software_facts(
    stack: Stack, fleet: Fleet, tp: int, own_tp_overlap: bool | None = None, placement: Iterable[Device] = ()
) -> dict[str, Any]:
    """The facts of a stack and a fleet that a parallel configuration of tensor-parallel degree `tp` has, as its fields.

    own_tp_overlap, placement: what the plan itself says of `tp_overlap`, if it does, and its devices."""
    overlaps = overlaps_tensor_parallel(stack, fleet, tp, own_tp_overlap, placement)
    names = "all_reduces", "tp_backward_overlap", "copied_sequences", "gathered_keys", "early_stop", "whole_messages"
    others = "separate_qkv", "separate_gate", "separate_scatters", "fp8_param_gather", "current_scaling", "amax_reduction"
    facts = {name: getattr(stack, name) for name in (*names, *others, "memory", "refuses", "whole_latents", "held_receivers")}
    return facts | {"tp_overlap": overlaps, "domain": min(cluster.node.count for cluster in fleet.clusters)}


def searched_facts(stack: Stack, fleet: Fleet, tp: int) -> dict[str, Any]:
    """`software_facts`, and what the software does with the tokens of experts: a plan that is given has its own."""
    names = ("dispatcher", "overlap_shared_experts", "overlap_expert_communication")
    return software_facts(stack, fleet, tp) | {name: getattr(stack, name) for name in names}


def _several_nodes(fleet: Fleet) -> bool:
    return sum(cluster.nodes for cluster in fleet.clusters) > 1


def _cluster(change: Stack, cluster: Cluster) -> Cluster:
    node = cluster.node
    nics = tuple(replace(nic, spec=change.nic(nic.spec)) for nic in node.nics)
    return replace(
        cluster, node=replace(node, device=change.device(node.device), intra_node=change.link(node.intra_node), nics=nics)
    )
