"""What a software stack keeps in device memory beyond what Megatron-LM keeps.

The formulas of `sim.kernels` are Megatron-LM's: fused kernels that keep what arXiv 2205.05198 counts. Software that runs each
operation of PyTorch as a kernel of its own keeps more tensors. They are read in its source; `sim.kernels.kept_tensors` counts
their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sim.units import GIBI, Bytes

KEPT = {
    "silu": "SwiGLU in separate kernels keeps silu(gate) beside gate, up and their product",
    "kv_copy": "keys and values stay twice: as sliced from the product, and as rotated",
    "rotated_copies": "the product of queries, keys and values stays beside the rotated queries and keys, and so the result of "
    "attention, which has their order, beside its copy in the order of the next product",
    "fp32_logits": "the loss holds the logits as computed, in fp32 and as softmax at the same time",
    "ddp_buckets": "DistributedDataParallel holds gradients in its buckets beside the accumulated ones (ZeRO 0)",
    "flat_gathers": "ZeRO 1 gathers all weights in one flat tensor before it copies them into the model",
    "gather_buffers": "sequence parallelism gathers inputs and gradients of products in two buffers that are never freed",
    "collective_inputs": "the allocator does not reuse inputs of tensor-parallel collectives until the device reaches them",
}
"""Name of something that software keeps -> its description."""

WORKSPACE: Bytes = 1.0 * GIBI
"""Bytes that torch reserves beyond the tensors that are counted: temporary gradients, GEMM workspace, fragmentation. A 4B GPT
has 0.8 to 2.2 GiB in seven runs, 1.8 to 4.6 in eight older ones (sail-sg/VocabularyParallelism 6191c3b, artifact/, reserved
less allocated). torch gives most of it back before it runs out of memory, so the value is the least of these, rounded."""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Memory of a software stack that Megatron-LM does not take.

    `keeps`: names of `KEPT`. `workspace`: bytes that torch reserves beyond all tensors that are counted. `fragmentation`: bytes
    that torch reserves for each byte of the activations of waiting microbatches, beyond that byte. `launches`: kernels and
    stream waits that the host launches for the forward and for the backward of a layer; None: not known.
    """

    keeps: tuple[str, ...] = ()
    workspace: Bytes = WORKSPACE
    fragmentation: float = 0.0
    launches: tuple[int, int] | None = None


class Degrees(Protocol):
    """What parts of the memory of a rank need of a configuration, or of a shape that stands for it."""

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""

    @property
    def vpp(self) -> int:
        """Virtual stages of a pipeline rank."""

    @property
    def memory(self) -> MemoryFacts:
        """What the software keeps."""


MEGATRON = MemoryFacts()
"""The memory of Megatron-LM, which plans have unless the topology names another software stack."""
