"""Sync strategies: how islands, parts of a fleet that train synchronously inside, keep one model together.

A strategy says which parameters islands exchange after which inner steps, and what they do beside it. Its costs follow from
that in one place (`sim.islands`). A module must define

NAME            its name in options and files
PRICE           what it changes about the training (`Price`), without compression
SENDS           what is exchanged: "gradients" of a step, or "outer gradients", the change of the weights since the last one
OUTER           what is done with the mean of the islands: "step" (the step of the inner optimizer), "mean" (it is added to the
                old weights) or "nesterov" (a step of SGD with Nesterov momentum); all but "step" keep their state on the host
TAKES           settings of `Sync` that it takes, besides compression and aggregation; others must have their defaults
STATE_BYTES     bytes of outer state for each parameter, besides error feedback
PASSES          how often the outer update reads or writes an fp32 value for each parameter
exchanges(sync) the exchanges of one outer period (`Exchange`)

The folder is the registry. `holmes_sim.torch_backend` executes the strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from sim import aggregation, compression
from sim.errors import OptionError
from sim.registry import Registry
from sim.workload.model import Model

Price: TypeAlias = Literal["exact", "bounded", "changed"]
PRICES: dict[Price, str] = {
    "exact": "the same result as synchronous training, up to rounding",
    "bounded": "not the result of synchronous training: islands differ for a bounded number of steps, or send rounded values",
    "changed": "another objective than synchronous training; islands do not become one model",
}
"""What a strategy gives up, from nothing to most."""


class Exchange(NamedTuple):
    """An exchange of `share` of the parameters. It begins after inner step `start` (1 to the period), and its result is needed
    after `overlap` further inner steps, which run beside it; 0: islands wait."""

    share: float
    start: int
    overlap: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A sync strategy and its settings.

    inner_steps     optimizer steps of an island between two exchanges of the same parameters (H of DiLoCo): the outer period
    overlap_steps   inner steps that run beside an exchange before its result is used
    fragments       parts of the model that are exchanged one after the other during the outer period
    compression     `NAME` or `NAME=ARGUMENT` of `sim.compression`
    aggregation     how the islands' values become one, a name of `sim.aggregation`

    Raises OptionError for settings that the strategy does not take or that contradict each other."""

    strategy: str
    inner_steps: int = 1
    overlap_steps: int = 0
    fragments: int = 1
    compression: str = "none"
    aggregation: str = "mean"

    def __post_init__(self) -> None:
        strategy = get(self.strategy)
        compression.get(self.compression)
        aggregation.get(self.aggregation)
        for key, least in (("inner_steps", 1), ("overlap_steps", 0), ("fragments", 1)):
            value = getattr(self, key)
            if value < least:
                raise OptionError(f"sync {self.strategy}: {key} {value} should be at least {least}")
            if value != least and key not in strategy.TAKES:
                raise OptionError(f"sync {self.strategy}: it takes no {key}; leave it out")
        if self.fragments > self.inner_steps:
            raise OptionError(
                f"sync {self.strategy}: {self.fragments} fragments need as many inner_steps, not {self.inner_steps}"
            )
        if self.overlap_steps > self.inner_steps:
            raise OptionError(
                f"sync {self.strategy}: overlap_steps {self.overlap_steps} above inner_steps {self.inner_steps}: the next "
                "exchange of the same parameters would begin before"
            )

    def __str__(self) -> str:
        words = [self.strategy]
        words += [f"every {self.inner_steps} steps"] if self.inner_steps > 1 else []
        words += [f"{self.fragments} fragments"] if self.fragments > 1 else []
        beside = "1 step" if self.overlap_steps == 1 else f"{self.overlap_steps} steps"
        words += [f"{beside} beside the exchange"] if self.overlap_steps else []
        words += [self.compression] if self.compression != "none" else []
        words += [self.aggregation] if self.aggregation != "mean" else []
        return ", ".join(words)

    @property
    def short(self) -> str:
        """The strategy, its inner steps, its compression and its aggregation: `diloco 30, int8`."""
        words = [f"{self.strategy} {self.inner_steps}" if "inner_steps" in get(self.strategy).TAKES else self.strategy]
        words += [self.compression] if self.compression != "none" else []
        words += [self.aggregation] if self.aggregation != "mean" else []
        return ", ".join(words)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of one outer period, in the order in which they begin."""
        return get(self.strategy).exchanges(self)

    @property
    def price(self) -> Price:
        """What the strategy, its compression and its aggregation give up."""
        own = get(self.strategy).PRICE
        lossy = compression.get(self.compression).LOSSY or self.aggregation != "mean"
        return "bounded" if own == "exact" and lossy else own

    @property
    def gathers(self) -> bool:
        """Whether each island needs the values of all others (all_gather), not their sum only (all_reduce)."""
        return not compression.get(self.compression).SUMMED or self.aggregation != "mean"

    def bytes_per_parameter(self, model: Model) -> float:
        """Bytes of a parameter that an island sends in one exchange."""
        return compression.bytes_per_parameter(self.compression, model)

    @property
    def outer_state_bytes(self) -> float:
        """Bytes of outer state for each parameter, of each island, without error feedback."""
        return get(self.strategy).STATE_BYTES

    @property
    def state_bytes(self) -> float:
        """Bytes of outer state and error feedback for each parameter, of each island."""
        return self.outer_state_bytes + compression.feedback_bytes(self.compression)

    @property
    def compression_passes(self) -> float:
        """How often compression and decompression read or write an fp32 value for each parameter, on each island."""
        return compression.get(self.compression).PASSES


class Strategy(Protocol):
    """Interface of every module of this folder."""

    NAME: str
    PRICE: Price
    SENDS: str
    OUTER: str
    TAKES: tuple[str, ...]
    STATE_BYTES: float
    PASSES: float

    def exchanges(self, sync: Sync) -> tuple[Exchange, ...]:
        """The exchanges of one outer period, in the order in which they begin."""
        ...


REGISTRY: Registry[Strategy] = Registry(__name__, "sync strategy", OptionError, by_constant=True)


def names() -> tuple[str, ...]:
    """Names of all sync strategies, sorted."""
    return REGISTRY.names


def get(name: str) -> Strategy:
    """The sync strategy of a name; raises OptionError for an unknown one."""
    return REGISTRY.get(name)
