"""Stages of families of shapes: lower bounds that hold for every member, so that one deadline test rules out the whole family.

A test of a family is sound if each cost is at most that of any member, and each limit on layers by memory at least that of any
member."""

from __future__ import annotations

from collections.abc import Sequence

from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.stage_messages import Sends
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from sim.analytic.stage_costs import StageCost
from sim.plan.round_trips import RoundTrips


class AnyZeroStage(OrderedStages):
    """Stages under every searched ZeRO stage, and with parameter gathers before the forwards or after the optimizer.

    `order` are the classes under the first ZeRO stage.

    ZeRO 2 and 3 add reductions and gathers of every microbatch to ZeRO 1; they are left out here. ZeRO 3, with one bucket for
    each layer, has the shortest tail; `holders` are the classes with the least memory of all (`node_classes.leanest`). Where
    software all-reduces gradients under ZeRO 1 only, the faster of both reductions counts (`NodeClass.least_reduce`)."""

    loads_nics = False  # each ZeRO stage and vpp has its own

    def __init__(self, context: PlanningContext, order: Sequence[NodeClass], holders: Sequence[NodeClass], horizon: float):
        super().__init__(context, order, horizon, True)
        named = {option.cluster.name: option for option in holders}
        self.holders = tuple(named[option.cluster.name] for option in order)

    def cost(self, i: int, role: str, layers: int, recomputed: int = 0, sends: Sends | None = None) -> StageCost:
        """Least costs of a stage with one bucket for each layer."""
        cost = super().cost(i, role, layers, recomputed, sends).bucketed(layers)
        reduce = self.order[i].least_reduce(role, layers, cost.reduce)
        return cost if reduce >= cost.reduce else cost._replace(reduce=reduce)


class AnyChunks(AnyZeroStage):
    """`AnyZeroStage` for the shape's number of virtual stages (vpp) and all larger ones.

    A microbatch passes at least one layer of each stage before (`whole_chunks`), and a stage holds the activations of at least
    one microbatch."""

    whole_chunks = False

    def most_by_memory(self, i: int, role: str, after: int, pp: int | None) -> int:
        """Most layers that fit beside the activations of one microbatch."""
        return self.holders[i].memory.most_layers(role, ((self.shape.vpp, 0),))

    def fewest(self, i: int, role: str, after: int, pp: int | None) -> tuple[int, ...]:
        """Fewest recomputed layers beside the activations of one microbatch."""
        return self.holders[i].memory.fewest(role, ((self.shape.vpp, 0),))

    def round_trips(self, stage: int, stages: int) -> tuple[RoundTrips, ...]:
        """None: every vpp has its own."""
        return ()

    def first_return(self, stage: int, stages: int) -> None:
        """None, as in `round_trips`."""


class AnySchedule(AnyZeroStage):
    """`AnyZeroStage` for each of several schedules without virtual stages; the shape's own schedule splits the backward.

    No rank waits for its messages to leave. A stage holds the fewest activations, and defers the most weight
    gradients, of all the schedules `names`."""

    def __init__(
        self, context: PlanningContext, order: Sequence[NodeClass], holders: Sequence[NodeClass], horizon: float,
        names: tuple[str, ...],
    ):  # fmt: skip
        super().__init__(context, order, holders, horizon)
        self._names = names
        self._most: dict[tuple[object, ...], int] = {}

    def sends(self, i: int, role: str) -> Sends:
        """0: some of the schedules overlap their messages with compute, and the others have no message lane."""
        return Sends(0.0, 0.0)

    def sending(
        self, ahead: float, back: float, stage: int | None = None, stages: int = 0, both: float = 0.0, until: float = 0.0
    ) -> Sends:
        """0, as in `sends`."""
        return Sends(0.0, 0.0)

    def tail(self, cost: StageCost, role: str) -> float:
        """The tail after a whole backward: less reduction is left after it than after a weight gradient alone."""
        return super().tail(cost.sending(0.0, 0.0, 0.0, 0.0), role)

    def most_by_memory(self, i: int, role: str, after: int, pp: int | None) -> int:
        """Most layers under any of the schedules."""
        key = i, role, after, pp
        if key not in self._most:
            self._most[key] = max(self._most_by_memory(name, i, role, after, pp) for name in self._names)
        return self._most[key]

    def fewest(self, i: int, role: str, after: int, pp: int | None) -> tuple[int, ...]:
        """Fewest recomputed layers under any of the schedules."""
        return tuple(map(min, zip(*(self._fewest(name, i, role, after, pp) for name in self._names), strict=True)))

    def deferred(self, stage: int, stages: int) -> int:
        """Most deferred weight gradients under any of the schedules."""
        if (stage, stages) not in self._most:
            self._most[stage, stages] = max(self._deferred(name, stage, stages) for name in self._names)
        return self._most[stage, stages]

    def round_trips(self, stage: int, stages: int) -> tuple[RoundTrips, ...]:
        """None: every schedule has its own."""
        return ()

    def first_return(self, stage: int, stages: int) -> None:
        """None, as in `round_trips`."""
