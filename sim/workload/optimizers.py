"""Optimizers: the bytes of their state for each parameter, and the bytes that a step moves."""

from __future__ import annotations

from dataclasses import dataclass

from sim.units import Bytes

GRADIENT_READS: Bytes = 8.0
"""Bytes of the fp32 gradient that a step reads for each parameter: once for its norm, once for the update."""
MASTER: Bytes = 4.0
"""Bytes of an fp32 weight beside a smaller one."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """`moments`: bytes of both moments of a parameter; `has_master`: an fp32 weight is kept beside a smaller one."""

    moments: Bytes
    has_master: bool = True

    def state_bytes(self, bytes_per_value: int) -> Bytes:
        """Bytes of state for each parameter, beside its weight and gradient; fp32 weights are their own master copy."""
        return self.moments + (MASTER if self.has_master and bytes_per_value < MASTER else 0.0)

    @property
    def moved_bytes(self) -> Bytes:
        """Bytes that a step moves for each parameter: gradient, moments and fp32 weight read and written, 2-byte weight written
        (also read, where there is no fp32 one)."""
        weight = 2 * MASTER + 2 if self.has_master else 4.0
        return GRADIENT_READS + 2 * self.moments + weight

    @property
    def unfused_bytes(self) -> Bytes:
        """Bytes that a step of torch's AdamW moves for each parameter if it is not fused: eight kernels and one for the norm.

        Counted in pytorch/pytorch, `_multi_tensor_adam` of torch/optim/adam.py (2.0 and later, foreach, which it chooses for
        parameters on a device if nothing is said), each tensor once for each kernel that reads or writes it: weights 4 (decay,
        update), one moment 14 (first moment 3 with its update, second moment 5, its square root 6), gradients 2, and 1 for the
        norm of all. Weights and gradients are fp32 where there is an fp32 weight (FSDP), else of 2 bytes."""
        width = MASTER if self.has_master else 2.0
        return (4 + 3) * width + 14 * self.moments / 2


OPTIMIZERS = {
    "adam": Optimizer(8.0),
    "adam-bf16-moments": Optimizer(4.0),
    "adam-8bit": Optimizer(2.0 + 2 * 4 / 2048),
    "adam-bf16": Optimizer(4.0, has_master=False),
}
"""Name -> optimizer. adam: fp32 weight and moments (Megatron-LM, DeepSpeed, FSDP with mixed precision). adam-bf16-moments:
Megatron-LM's --use-precision-aware-optimizer with both moments in bf16. adam-8bit: moments of 8 bits in blocks of 2048 with an
fp32 scale each (Dettmers et al., arXiv 2110.02861, section 2.1). adam-bf16: a bf16 model without fp32 weights, bf16 moments."""
