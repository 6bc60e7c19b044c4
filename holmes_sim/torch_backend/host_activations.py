"""Activations that layers keep in host memory between forward and backward (`sim.kernels.activation_copies`).

torch's saved_tensors_hooks pass on every tensor that the forward of a layer saves. Its storage, unless it is a weight, is
copied to the host once, however many operations save views of it; the views are made again from the copy on the device. On a
GPU, copies to the host and back have a stream of their own each: a forward waits for the copies of the layer before the one
that has just run, whose tensors it then drops, and a backward starts the copies of the layer that follows. So three layers at
most are on the device. The copies of the first layer of a backward start with it; the simulator has them prefetched.

Between two layers autograd would keep the activations that pass from one to the other. `_Enter` and `_Leave` cut the graph
there without keeping them: a scalar stands for the result of the layer, and gradients pass through a `Port`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from holmes_sim.torch_backend.devices import HOST

View: TypeAlias = tuple[int, torch.Size, tuple[int, ...], int]
"""A tensor as a view of a copied storage: number of the copy, shape, strides and offset."""
Layer: TypeAlias = tuple[int, int, int]
"""Stage, microbatch and index of a block there."""


@dataclass(slots=True)
class Port:
    """The gradient of what enters a layer, after its backward; before it, the gradient of its result."""

    grad: Tensor | None = None


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x: Tensor, port: Port) -> Tensor:
        ctx.port = port
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:
        ctx.port.grad = grad
        return None, None, None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, port: Port) -> Tensor:
        ctx.port = port
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None]:
        return ctx.port.grad, None


@dataclass(slots=True, eq=False)
class _Saved:
    """What a layer saved of a microbatch. `weights`: storages that stay; `numbers`: the copy of each storage, `sources` the
    storages as flat tensors until they are copied; `loaded`: the copies on the device, during the backward."""

    weights: set[int]
    end: Tensor | None = None
    port: Port = field(default_factory=Port)
    numbers: dict[tuple[int, torch.dtype], int] = field(default_factory=dict)
    sources: list[Tensor] = field(default_factory=list)
    copies: list[Tensor] = field(default_factory=list)
    loaded: list[Tensor] = field(default_factory=list)
    copied: torch.cuda.Event | None = None
    arrived: torch.cuda.Event | None = None


class HostActivations:
    """The activations of the layers of a rank, in host memory."""

    def __init__(self, device: torch.device):
        self.device, self.on_gpu = device, device.type == "cuda"
        self.out, self.back = (torch.cuda.Stream(device) if self.on_gpu else None for _ in range(2))
        self.held: dict[Layer, _Saved] = {}
        self.leaving: list[_Saved] = []

    def forward(self, layer: Layer, block: nn.Module, x: Tensor | None) -> Tensor:
        """The result of a block, which keeps nothing of this microbatch on the device once it is copied."""
        assert x is not None
        weights = {one.untyped_storage()._cdata for one in (*block.parameters(), *block.buffers())}
        saved = self.held[layer] = _Saved(weights)
        anchor = torch.empty(0, device=self.device, requires_grad=True)
        with saved_tensors_hooks(self._keeping(saved), self._giving(saved)):
            result: Tensor = block(_Enter.apply(anchor, x.detach(), saved.port))  # type: ignore[no-untyped-call]
            saved.end = _Leave.apply(result, saved.port)  # type: ignore[no-untyped-call]
        if self.out is not None:
            saved.copied = self.out.record_event()
        self.leaving.append(saved)
        for earlier in self.leaving[:-1] if self.on_gpu else self.leaving:
            self._drop(earlier)
        return result.detach()

    def backward(self, layer: Layer, grad: Tensor | None) -> Tensor | None:
        """The gradient of what entered a block, from that of its result."""
        saved, following = self.held[layer], (*layer[:2], layer[2] - 1)
        self._load(saved)
        if self.on_gpu and following in self.held:
            self._load(self.held[following])
        if saved.arrived is not None:
            torch.cuda.current_stream(self.device).wait_event(saved.arrived)
        assert saved.end is not None
        saved.port.grad = grad
        torch.autograd.backward(saved.end)
        return self.held.pop(layer).port.grad

    def _keeping(self, saved: _Saved) -> Callable[[Tensor], Tensor | View]:
        def keep(tensor: Tensor) -> Tensor | View:
            storage = tensor.untyped_storage()
            if storage._cdata in saved.weights or not storage.nbytes():
                return tensor
            key = storage._cdata, tensor.dtype
            if key not in saved.numbers:
                saved.numbers[key] = len(saved.copies)
                flat = tensor.detach().as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)
                saved.sources.append(flat)
                saved.copies.append(self._to_host(flat))
            return saved.numbers[key], tensor.shape, tensor.stride(), int(tensor.storage_offset())

        return keep

    def _giving(self, saved: _Saved) -> Callable[[Tensor | View], Tensor]:
        def give(kept: Tensor | View) -> Tensor:
            if isinstance(kept, Tensor):
                return kept
            number, shape, stride, offset = kept
            return saved.loaded[number].as_strided(shape, stride, offset)

        return give

    def _to_host(self, flat: Tensor) -> Tensor:
        copy = torch.empty(flat.shape, dtype=flat.dtype, device=HOST, pin_memory=self.on_gpu)
        if self.out is None:
            return copy.copy_(flat)
        self.out.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.out):
            return copy.copy_(flat, non_blocking=True)

    def _drop(self, saved: _Saved) -> None:
        """Free what a layer saved on the device, after its copies."""
        if saved.copied is not None:
            torch.cuda.current_stream(self.device).wait_event(saved.copied)
        saved.sources.clear()
        self.leaving.remove(saved)

    def _load(self, saved: _Saved) -> None:
        """Start the copies of what a layer saved to the device, unless they have started or it is still there."""
        if saved.loaded:
            return
        if saved in self.leaving:
            saved.loaded = saved.sources
            self.leaving.remove(saved)
        elif self.back is None:
            saved.loaded = [copy.to(self.device) for copy in saved.copies]
        else:
            saved.loaded = [torch.empty(copy.shape, dtype=copy.dtype, device=self.device) for copy in saved.copies]
            self.back.wait_stream(torch.cuda.current_stream(self.device))  # the memory may still be in use there
            if saved.copied is not None:
                self.back.wait_event(saved.copied)
            with torch.cuda.stream(self.back):
                for target, copy in zip(saved.loaded, saved.copies, strict=True):
                    target.copy_(copy, non_blocking=True)
            saved.arrived = self.back.record_event()
