"""Copies beside gathers and scatters of tensor parallelism along the sequence, which software without fused kernels makes.

Collectives join and cut tensors along their first dimension. Activations of Megatron-LM have the sequence first, so that what
arrives is what is meant. Those of torch's DTensor have the batch first and are cut along the second dimension: after a gather
the parts are copied into their places, and before a scatter the tensor is copied part by part (pytorch/pytorch
torch/distributed/_functional_collectives.py, all_gather_tensor and reduce_scatter_tensor: torch.cat of torch.chunk where the
dimension is not 0). A copy reads and writes all that tp ranks share.

Asynchronous tensor parallelism (`ParallelConfig.tp_overlap`) multiplies parts as they arrive. Before a gather a rank copies its
own part to where others read it, which nothing hides, and after a scatter it adds up the parts that all ranks sent for it,
which reads as much as all share and writes its own part (pytorch/pytorch torch/distributed/_symmetric_memory/__init__.py,
_pipelined_multi_all_gather_and_consume: "giving up the chance to overlap"; stacked_partials of _fused_matmul_reduce_scatter).
It fuses a scatter with one product whose result it is (torch/_inductor/fx_passes/micro_pipeline_tp.py,
fuse_matmul_reduce_scatter: aten.mm, or nothing). An input gradient is the sum of those of queries, keys and values, or of gate
and up, which have weights of their own (torchtitan): its scatter overlaps nothing, and is copied as without overlap.

A layer has four in each direction: after the gathers before both column-parallel products, and before the scatters after both
row-parallel ones; in a backward gathers and scatters change places, and each gradient that is scattered by itself is copied
(`input_sums.further_scatters`). Layers with routed experts have those of attention. Left
out: those of embedding and head.
"""

from __future__ import annotations

from sim.kernels.casts import GATHERED
from sim.kernels.input_sums import further_scatters
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes
from sim.workload.kernels import Kernel, Pass
from sim.workload.workload import Workload

BEFORE, AFTER = ("qkv", "up"), ("projection", "down")
"""Products whose input ranks gather, and those whose result they scatter."""


def with_copies(kernels: tuple[Kernel, ...], workload: Workload, config: ParallelConfig) -> tuple[Kernel, ...]:
    """The kernels of a layer with these copies, where the software makes them (`ParallelConfig.copied_sequences`)."""
    if not config.copied_sequences or config.tp == 1 or not config.sequence_parallel:
        return kernels
    values = float(config.microbatch_size * (workload.seq_len // config.cp) * workload.model.hidden)
    gathered = values * GATHERED.get(workload.precision, workload.bytes_per_value)
    scattered = values * workload.bytes_per_value
    narrow = 2.0 * gathered / config.tp if config.tp_overlap else 2.0 * gathered
    whole = scattered * (1.0 + 1.0 / config.tp) if config.tp_overlap else 2.0 * scattered
    names = ("qkv", "projection") if workload.model.experts else (*BEFORE, *AFTER)
    further = dict(zip(BEFORE, further_scatters(workload, config), strict=True))
    found: list[Kernel] = []
    for kernel in kernels:
        if kernel.name in names and kernel.name in BEFORE:
            found += [_copy("gathered", narrow, 2.0 * scattered * (1 + further[kernel.name])), kernel]
        elif kernel.name in names:
            found += [kernel, _copy("scattered", whole, narrow)]
        else:
            found.append(kernel)
    return tuple(found)


def scatters_sums(config: ParallelConfig) -> bool:
    """Whether input gradients that ranks scatter are sums of several products, so that asynchronous tensor parallelism does not
    overlap them: in software that copies sequences."""
    return config.tp_overlap and config.copied_sequences


def _copy(name: str, forward: Bytes, backward: Bytes) -> Pass:
    return Pass(name, forward, backward=backward)
