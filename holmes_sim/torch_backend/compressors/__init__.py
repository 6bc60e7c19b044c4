"""Compressors of what islands exchange, executed with torch: one module for each module of `sim.compression`.

A module must define

codec(argument)   how values become bytes and bytes become values (`Codec`), or None where the compressor is not such a code but
                  an exchange of its own (PowerSGD: `holmes_sim.torch_backend.islands.powersgd`)

The number of bytes of a code depends on the number of values only, so that a receiver knows it beforehand."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from sim import compression
from sim.errors import OptionError
from sim.registry import Registry


class Codec(Protocol):
    """Code of a vector of fp32 values as bytes, a vector of uint8."""

    def nbytes(self, count: int) -> int:
        """Bytes of the code of so many values."""
        ...

    def encode(self, values: Tensor) -> Tensor:
        """The code of fp32 values."""
        ...

    def decode(self, code: Tensor, count: int) -> Tensor:
        """The fp32 values, a new tensor, of the code of so many values."""
        ...


class Compressor(Protocol):
    """Interface of every module of this folder."""

    NAME: str

    def codec(self, argument: str) -> Codec | None:
        """The code of an argument of `sim.compression`, such as `1%`."""
        ...


REGISTRY: Registry[Compressor] = Registry(__name__, "compression", OptionError, by_constant=True)


def codec(text: str) -> Codec | None:
    """The code of `NAME` or `NAME=ARGUMENT`; None where the compressor is an exchange of its own. Raises OptionError."""
    compression.get(text)
    name, _, argument = text.partition("=")
    return REGISTRY.get(name).codec(argument)


def as_bytes(values: Tensor) -> Tensor:
    """The memory of a contiguous tensor as a vector of uint8."""
    return values.contiguous().view(-1).view(torch.uint8)


def blocks(values: Tensor, size: int) -> Tensor:
    """Values as rows of `size` values; the last row repeats the last value."""
    missing = -values.numel() % size
    return torch.cat([values, values[-1:].expand(missing)]).view(-1, size) if missing else values.view(-1, size)


class Rounded:
    """Code of values rounded to a floating-point type."""

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype

    def nbytes(self, count: int) -> int:
        """Bytes of so many values of the type."""
        return count * self.dtype.itemsize

    def encode(self, values: Tensor) -> Tensor:
        """The rounded values."""
        return as_bytes(values.to(self.dtype))

    def decode(self, code: Tensor, count: int) -> Tensor:
        """The rounded values as fp32."""
        return code.view(self.dtype).to(torch.float32, copy=True)
