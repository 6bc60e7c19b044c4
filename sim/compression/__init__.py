"""Compression of what islands exchange (`sim.sync`): one module, one way to write parameters with fewer bytes.

A module must define

NAME              its name in options and files; `NAME=ARGUMENT` if `ARGUMENT` is not empty
ARGUMENT          example of the argument, such as `1%`; empty if it takes none
SUMMED            islands add up compressed values on the way around a ring (all_reduce); else each island needs those of all
                  others and adds them up itself (all_gather)
LOSSY             the result differs from that of full precision by more than the rounding of fp32
FEEDBACK          an island keeps what the compression lost and adds it to its next values (error feedback): 4 bytes a parameter
PASSES            how often compression and decompression together read or write an fp32 value of memory, for each exchange
bytes_per_parameter(model, argument)    bytes that one parameter takes on the network, a mean over the model

The folder is the registry. `holmes_sim.torch_backend.compressors` executes them."""

from __future__ import annotations

from typing import Protocol

from sim.errors import OptionError
from sim.registry import Registry
from sim.workload.model import Model

FULL_BYTES = 4
"""Bytes of a value in full precision: gradients and outer gradients are fp32."""


class Compressor(Protocol):
    """Interface of every module of this folder."""

    NAME: str
    ARGUMENT: str
    SUMMED: bool
    LOSSY: bool
    FEEDBACK: bool
    PASSES: float

    def bytes_per_parameter(self, model: Model, argument: str) -> float:
        """Mean bytes of a parameter on the network. Raises OptionError for a wrong argument."""
        ...


REGISTRY: Registry[Compressor] = Registry(__name__, "compression", OptionError, by_constant=True)


def names() -> tuple[str, ...]:
    """Names of all ways to compress, sorted, without arguments."""
    return REGISTRY.names


def get(text: str) -> Compressor:
    """The compressor of `NAME` or `NAME=ARGUMENT`.

    Raises OptionError for an unknown one, and for an argument that is missing, wrong or not taken."""
    name, _, argument = text.partition("=")
    found = REGISTRY.get(name)
    if bool(argument) != bool(found.ARGUMENT):
        right = f"{name}={found.ARGUMENT}" if found.ARGUMENT else name
        raise OptionError(f"compression {text!r}: write {right}")
    return found


def bytes_per_parameter(text: str, model: Model) -> float:
    """Mean bytes of a parameter of a model on the network, under `NAME` or `NAME=ARGUMENT`. Raises OptionError."""
    return get(text).bytes_per_parameter(model, text.partition("=")[2])


def feedback_bytes(text: str) -> int:
    """Bytes of error feedback for each parameter."""
    return FULL_BYTES if get(text).FEEDBACK else 0
