"""Ways to write values with fewer bytes: one module, one compression.

Two kinds of traffic are compressed: what islands exchange (`sim.sync`), and the messages of a pipeline between clusters
(`sim.kernels.messages`). A module must define

NAME              its name in options and files; `NAME=ARGUMENT` if `ARGUMENT` is not empty
ARGUMENT          example of the argument, such as `1%`; empty if it takes none
USES              what it can compress: `EXCHANGES`, `MESSAGES` or both

A module for exchanges must also define

SUMMED            islands add up compressed values on the way around a ring (all_reduce); else each island needs those of all
                  others and adds them up itself (all_gather)
LOSSY             the result differs from that of full precision by more than the rounding of fp32
FEEDBACK          an island keeps what the compression lost and adds it to its next values (error feedback): 4 bytes a parameter
PASSES            how often compression and decompression together read or write an fp32 value of memory, for each exchange
bytes_per_value(model, argument, width)    bytes that a value of `width` bytes takes on the network, a mean over the model

and a module for messages

code(argument, width, slowness)    how a message is written (`Code`), on a hop that takes `slowness` times as long as the
                                   slowest compressed hop of the pipeline, from above 0 to 1

The folder is the registry. `holmes_sim.torch_backend` executes them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sim.errors import OptionError
from sim.registry import Registry
from sim.workload.model import Model

FULL_BYTES = 4
"""Bytes of a value in full precision: gradients and outer gradients are fp32."""
NONE = "none"
"""No compression."""
EXCHANGES, MESSAGES = "exchanges between islands", "messages between clusters"


class Code(NamedTuple):
    """Bytes of each value of a message: those on the network (`sent`), and those that the sender, as it compresses, and the
    receiver, as it decompresses, read from memory and write to it."""

    sent: float
    compressing: float
    decompressing: float


class Compressor(Protocol):
    """Interface of every module of this folder."""

    NAME: str
    ARGUMENT: str
    USES: tuple[str, ...]
    SUMMED: bool
    LOSSY: bool
    FEEDBACK: bool
    PASSES: float

    def bytes_per_value(self, model: Model, argument: str, width: int) -> float:
        """Mean bytes on the network of a value of `width` bytes. Raises OptionError for a wrong argument."""
        ...

    def code(self, argument: str, width: int, slowness: float) -> Code:
        """How values of `width` bytes are written in a message. Raises OptionError for a wrong argument."""
        ...


REGISTRY: Registry[Compressor] = Registry(__name__, "compression", OptionError, by_constant=True)


def names(use: str = EXCHANGES) -> tuple[str, ...]:
    """Names of all compressions for a use, sorted, without arguments."""
    return tuple(name for name in REGISTRY.names if use in REGISTRY.get(name).USES)


def get(text: str, use: str = EXCHANGES) -> Compressor:
    """The compression of `NAME` or `NAME=ARGUMENT`.

    Raises OptionError for an unknown one, one that is not for this use, and for an argument that is missing or not taken."""
    name, _, argument = text.partition("=")
    if name not in names(use):
        wrong = f"not for {use}" if name in REGISTRY.names else "unknown"
        raise OptionError(f"compression {name!r} is {wrong}; known: {', '.join(names(use))}")
    found = REGISTRY.get(name)
    if bool(argument) != bool(found.ARGUMENT):
        right = f"{name}={found.ARGUMENT}" if found.ARGUMENT else name
        raise OptionError(f"compression {text!r}: write {right}")
    return found


def bytes_per_parameter(text: str, model: Model) -> float:
    """Mean bytes of a parameter of a model on the network, under `NAME` or `NAME=ARGUMENT`. Raises OptionError."""
    return get(text).bytes_per_value(model, text.partition("=")[2], FULL_BYTES)


def code(text: str, width: int, slowness: float = 1.0) -> Code:
    """How values of `width` bytes are written in a message under `NAME` or `NAME=ARGUMENT`: whole, where that takes no more
    bytes. Raises OptionError."""
    found = get(text, MESSAGES).code(text.partition("=")[2], width, slowness)
    return found if found.sent < width else Code(width, 0.0, 0.0)


def feedback_bytes(text: str) -> int:
    """Bytes of error feedback for each parameter."""
    return FULL_BYTES if get(text).FEEDBACK else 0
