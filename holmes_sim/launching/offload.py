"""Optimizer state and activations in host memory: limits of the targets that have them, and refusals of those that have not.

Megatron-LM has --optimizer-cpu-offload, for the precision-aware path of the distributed optimizer (NVIDIA/Megatron-LM d98e8a64,
megatron/training/arguments.py and megatron/core/optimizer/__init__.py); DeepSpeed has offload_optimizer, for ZeRO 1 to 3
(deepspeedai/DeepSpeed edaa722, docs/_pages/config-json.md). Both keep fp32 state on the host.

Megatron-LM's --cpu-offloading-num-layers copies all that the first layers keep, through Transformer Engine, without a pipeline
and without recomputation, and of fewer layers than the model has (megatron/core/transformer/transformer_config.py). Its
--fine-grained-activation-offloading takes pipelines and recomputation, but copies the inputs of chosen modules only, of a dense
MLP none: that is another plan. DeepSpeed's cpu_checkpointing is for layers that call its own checkpoint function."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload


def limited(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What neither Megatron-LM nor DeepSpeed can offload, or not as it is modelled."""
    if config.offloads_parameters:
        yield "offload parameters: it runs no layers of which two are on the device, with all microbatches; --offload optimizer"
    if config.offloads_optimizer and not config.zero_stage:
        yield "offload optimizer with zero_stage 0: it needs a sharded optimizer; --zero-stage 1"
    if config.offloads_optimizer and workload.optimizer != "adam":
        yield f"offload optimizer with optimizer {workload.optimizer}: the state on the host is fp32; adam"


def with_megatron(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What Megatron-LM cannot offload, or not as it is modelled, of the optimizer."""
    yield from limited(config, workload)
    if config.offloads_optimizer and workload.precision in ("fp16", "fp32", "tf32"):
        yield f"offload optimizer with precision {workload.precision}: its optimizer on the host is for bf16; bf16"
    if config.offloads_optimizer and config.fp8_param_gather and config.current_scaling and workload.precision == "fp8":
        yield "offload optimizer with fp8_param_gather: it takes delayed scaling only; a stack without current_scaling"


def whole_layers(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What Megatron-LM cannot copy of activations."""
    if not config.offloads_activations:
        return
    flag = "--cpu-offloading-num-layers"
    if config.pp > 1:
        yield f"offload activations with pp {config.pp}: {flag} takes no pipeline; --pp 1"
    if config.recompute == "full" or config.modules:
        yield f"offload activations with recompute {config.recompute}: {flag} takes no recomputation; --recompute none"
    if workload.model.layers < 2:
        yield f"offload activations of a single layer: {flag} leaves the last one on the device; --offload none"


def refused(config: ParallelConfig, reason: str) -> Iterator[str]:
    """Offloaded optimizer state, for a target that cannot have it, with the reason, and offloaded activations."""
    if config.offloads_optimizer:
        yield f"offload optimizer: {reason}; --offload none"
    yield from kept(config)


def kept(config: ParallelConfig) -> Iterator[str]:
    """Offloaded activations, for a target for which they are not written."""
    if config.offloads_activations:
        yield "offload activations: written for Megatron-LM only, as copies of whole layers; --offload none"


def threads(config: ParallelConfig, ranks: str) -> str:
    """A line of a shell script that gives each rank of a host its share of the CPUs for the optimizer's threads; empty where
    the optimizer is on the devices. `ranks`: a shell word, the number of ranks of the host.

    torchrun sets OMP_NUM_THREADS to 1 for several ranks on a host unless it is set (torch/distributed/run.py), and one thread
    moves 14.6 GB/s at most (`sim.kernels.offload.CPU_SHARE`); the plan's update has all CPUs of the host at work."""
    if not config.offloads_optimizer:
        return ""
    each = f"cpus=$(nproc) && echo $((cpus > {ranks} ? cpus / {ranks} : 1))"
    return f'export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-$({each})}}"  # for the optimizer on the host\n'
