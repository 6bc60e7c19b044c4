"""Routing of tokens to experts in files: `workload.routing` of a topology, and `config.routing` of a plan or case."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import model_validator

from sim.errors import TopologyError
from sim.formats.fields import CapacityFactor, Flag, NonNegative, Ratio, StrictModel, Whole
from sim.workload.model import Model
from sim.workload.routing import BALANCED, Routing, real

RoutingName: TypeAlias = Literal["balanced", "real"]


class RoutingFacts(StrictModel):
    """How uneven the tokens of the experts are: those of the busiest rank of an ep group over the mean, at least 1, or the
    tokens that each expert was given, from which that follows: consecutive experts are on one rank. capacity_factor: most
    tokens that an expert takes, over the mean; those above it are dropped, which changes what is trained. pad_to_capacity:
    experts with fewer tokens get rows of padding up to it. With a capacity_factor the default of imbalance is 1."""

    imbalance: Ratio | None = None
    tokens: tuple[Whole, ...] = ()
    capacity_factor: CapacityFactor | None = None
    pad_to_capacity: Flag = False

    @model_validator(mode="after")
    def _consistent(self) -> RoutingFacts:
        if self.pad_to_capacity and self.capacity_factor is None:
            raise ValueError("pad_to_capacity needs a capacity_factor, such as 1.1, up to which rows are padded")
        given = int(self.imbalance is not None) + int(bool(self.tokens))
        if given > 1 or (not given and self.capacity_factor is None):
            raise ValueError("give either imbalance, such as 1.3, or tokens, a number for each expert")
        if self.tokens and not sum(self.tokens):
            raise ValueError("tokens: all experts together have none; some expert needs a token")
        return self

    def routing(self) -> Routing:
        """The routing of the simulator."""
        imbalance = 1.0 if self.imbalance is None else self.imbalance
        return Routing(imbalance, self.tokens, self.capacity_factor, self.pad_to_capacity)


class ConfigRoutingFacts(RoutingFacts):
    """Routing under the placement of experts of one plan, in place of that of its workload. exchange: seconds that the bytes of
    an exchange of tokens take over those of equal shares; default: as imbalance."""

    exchange: NonNegative | None = None


def routing_of(given: RoutingName | RoutingFacts, model: Model | None = None) -> Routing:
    """The routing of a name or of facts in place, for a model; None: one that is not known."""
    if isinstance(given, str):
        return real(model) if given == "real" else BALANCED
    return given.routing()


def written(routing: Routing) -> dict[str, Any]:
    """A routing as plain data, without what is not set; nothing for forced balance."""
    found: dict[str, Any] = {"tokens": list(routing.tokens)} if routing.tokens else {"imbalance": routing.imbalance}
    if routing.capacity_factor is not None:
        found["capacity_factor"] = routing.capacity_factor
    if routing.pad_to_capacity:
        found["pad_to_capacity"] = True
    return {} if routing == BALANCED else found


def check(routing: Routing, model: Model) -> None:
    """Raise TopologyError where a model has no experts to route to, or a routing does not fit their number."""
    try:
        routing.check(model)
    except ValueError as error:
        raise TopologyError(str(error)) from None
