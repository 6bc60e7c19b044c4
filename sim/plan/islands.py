"""A plan of islands: parts of a fleet, each with a plan of its own, that keep one model together by a sync strategy.

An island is a set of devices that train synchronously (the word of DiLoCo, arXiv 2311.08105). The plans of two islands may
differ in everything but the model, the sequence length and the number format; each has its own share of the batch."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sim.errors import NotModelled, PlanError
from sim.hardware.cluster import Device, Fleet
from sim.hardware.topology import Topology
from sim.plan.certificate import Certificate
from sim.plan.plan import MadeBy, Plan
from sim.sync import Sync
from sim.units import Seconds
from sim.workload.workload import Workload


def check_exchanged(workload: Workload, compressions: Iterable[str]) -> None:
    """Raise NotModelled for a compression of exchanges that is not modelled for adapters."""
    if workload.adapter is not None and any(text.partition("=")[0] == "powersgd" for text in compressions):
        raise NotModelled("adapter with powersgd: it is modelled for matrices of the model, not of adapters; int8, or none")


@dataclass(frozen=True, slots=True)
class IslandsPrediction:
    """Results of a simulated outer period in steady state.

    period_s        seconds of an outer period, all inner steps and exchanges included
    inner_step_s    seconds of an inner step of each island, without exchanges
    exchange_s      seconds that the exchanges of one outer period take on the network, one after the other
    exposed_s       seconds of an outer period in which the slowest island waits for exchanges and outer updates
    waiting_s       seconds of an outer period in which each island waits for slower islands
    tokens_per_s    tokens of all islands per second
    mfu             model FLOPs utilisation of all devices of the islands"""

    period_s: Seconds
    inner_step_s: tuple[Seconds, ...]
    exchange_s: Seconds
    exposed_s: Seconds
    waiting_s: tuple[Seconds, ...]
    tokens_per_s: float
    mfu: float


@dataclass(frozen=True, slots=True)
class IslandsPlan:
    """Plans of islands, each on its own devices of one fleet, and the sync strategy between them.

    Raises PlanError if there are fewer than two islands, if they do not train the same model on the same fleet, or if two use
    the same device; NotModelled for PowerSGD of adapters."""

    sync: Sync
    islands: tuple[Plan, ...]
    made_by: MadeBy
    prediction: IslandsPrediction | None = None
    certificate: Certificate | None = None

    def __repr__(self) -> str:
        speed = f", {self.prediction.tokens_per_s:,.0f} tokens/s" if self.prediction is not None else ""
        return f"{self.topology.name}: {self.workload.model.name} on {len(self.islands)} islands, sync {self.sync.short}{speed}"

    def __post_init__(self) -> None:
        if len(self.islands) < 2:
            raise PlanError(f"islands: {len(self.islands)} given; at least two exchange something")
        check_exchanged(self.islands[0].workload, (self.sync.compression,))
        first, owner = self.islands[0], dict[Device, int]()
        for index, island in enumerate(self.islands):
            if island.fleet != first.fleet:
                raise PlanError(
                    f"islands[{index}].topology: it differs from that of islands[0]; islands are parts of one fleet"
                )
            if _trained(island.workload) != _trained(first.workload):
                raise PlanError(
                    f"islands[{index}].workload: all but global_batch_size must be as in islands[0], since they train one model"
                )
            if island.config.stage_zero:
                raise NotModelled(f"islands[{index}].config.stage_zero: an island has one ZeRO stage; leave it out")
            if island.config.stage_cp:
                raise NotModelled(f"islands[{index}].config.stage_cp: an island has one cp; leave it out")
            for device in island.placement:
                if owner.setdefault(device, index) != index:
                    raise PlanError(f"islands[{index}].placement: {device} is already a device of islands[{owner[device]}]")

    def annotated(self, prediction: IslandsPrediction, certificate: Certificate | None = None) -> IslandsPlan:
        """The plan with a prediction and a certificate, without repeating its checks, which do not depend on them."""
        found = copy.copy(self)
        object.__setattr__(found, "prediction", prediction)
        object.__setattr__(found, "certificate", certificate or self.certificate)
        return found

    @property
    def topology(self) -> Topology:
        """The topology of the whole fleet, with the workload of all islands."""
        return replace(self.islands[0].topology, workload=self.workload)

    @property
    def fleet(self) -> Fleet:
        """The machines of the topology."""
        return self.islands[0].fleet

    @property
    def workload(self) -> Workload:
        """One inner step of all islands together."""
        return replace(self.islands[0].workload, global_batch_size=sum(self.batches))

    @property
    def batches(self) -> tuple[int, ...]:
        """Sequences of an inner step of each island."""
        return tuple(island.workload.global_batch_size for island in self.islands)

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight of each island in the mean: its share of the batch."""
        return tuple(batch / sum(self.batches) for batch in self.batches)

    @property
    def first_ranks(self) -> tuple[int, ...]:
        """Number of the first rank of each island among the ranks of all islands, which follow one another."""
        sizes = [island.config.world_size for island in self.islands]
        return tuple(sum(sizes[:index]) for index in range(len(sizes)))


def _trained(workload: Workload) -> Workload:
    """What islands have in common: the workload without its batch."""
    return replace(workload, global_batch_size=1)
