"""Results that a layer does not keep for its backward, which computes them again: of norms and of activation functions.

Megatron-Core frees such a result once the operation behind it has run, and fills it again before the backward of that operation
(megatron/core/tensor_parallel/random.py, CheckpointWithoutOutput). Here torch's saved_tensors_hooks replace each view of the
result that an operation saves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

View: TypeAlias = tuple[torch.Size, tuple[int, ...], int]
"""A view of a result: shape, strides and offset."""


@dataclass(slots=True, eq=False)
class Discarded:
    """A result at `address` that `again` computes; `value`, once a backward has asked for it."""

    address: int
    again: Callable[[], Tensor]
    value: Tensor | None = None

    def pack(self, saved: Tensor) -> Tensor | View:
        """What an operation keeps for its backward."""
        if not saved.numel() or saved.untyped_storage().data_ptr() != self.address:
            return saved
        return saved.shape, saved.stride(), int(saved.storage_offset())

    def unpack(self, kept: Tensor | View) -> Tensor:
        """What the backward of an operation gets."""
        if isinstance(kept, Tensor):
            return kept
        if self.value is None:
            with torch.no_grad():
                self.value = self.again()
        return self.value.as_strided(*kept)


def discarding(result: Tensor, again: Callable[[], Tensor] | None) -> AbstractContextManager[object]:
    """A context in which operations do not keep `result`, a contiguous tensor with its own storage: their backwards get the
    result of `again`, which is called once. None: they keep it."""
    if again is None or not torch.is_grad_enabled():
        return nullcontext()
    discarded = Discarded(result.untyped_storage().data_ptr(), again)
    return saved_tensors_hooks(discarded.pack, discarded.unpack)
