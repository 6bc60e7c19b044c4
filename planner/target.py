"""A launch target that a plan must be able to run on, such as Megatron-LM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sim.hardware.cluster import Device, Fleet
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

ANY = "any"
"""Name of the target that is any training framework: at least one of them must be able to run the plan."""
AT_LEAST = "at least "
"""How the name of a target begins that is several training frameworks: `at least 2 frameworks` must be able to run the plan."""
Vendors: TypeAlias = Literal["one", "joined", "any"]
"""Of how many vendors the devices of a plan may be: of one; of several that the fleet's communicator joins; of any."""
Devices: TypeAlias = tuple[Device, ...]
PipelineLimits: TypeAlias = Callable[[Fleet, Iterable[Devices], Devices], Iterator[str]]
"""What a target cannot express of the devices of pipelines: of a fleet, a device of each stage of the pipelines, and devices of
all nodes of the plan."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a launch target cannot express, of layouts and of whole plans; each as text that begins with the property.

    unsupported_pipelines: what of a whole plan depends on its pipelines' devices alone, so that a search leaves them out before
    there are plans; None where nothing does. overlaps_pairs: exchanges of tokens run beside the other pass of a pair, as plans
    of schedules with pairs count (`sim.kernels.paired_passes`), so that these are searched beside the others."""

    name: str
    vendors: Vendors
    excluded_vendors: tuple[str, ...]
    unsupported_layout: Callable[[ParallelConfig, Workload], Iterator[str]]
    unsupported_placement: Callable[[Plan], Iterator[str]]
    unsupported_pipelines: PipelineLimits | None = None
    overlaps_pairs: bool = False

    def __hash__(self) -> int:
        """Hash of the name only, for speed: many results are cached by target."""
        return hash(self.name)

    @property
    def can_not(self) -> str:
        """Subject and verb of a sentence about what the target cannot do: `megatron cannot`, `no training framework can`, or
        `fewer than 2 frameworks can`."""
        if self.name.startswith(AT_LEAST):
            return f"fewer than {self.name.removeprefix(AT_LEAST)} can"
        return "no training framework can" if self.name == ANY else f"{self.name} cannot"

    def joins(self, fleet: Fleet, names: Iterable[str]) -> bool:
        """Whether a plan may have devices of all these clusters, as far as their vendors decide."""
        many = len({fleet.cluster(name).node.device.vendor for name in names})
        return many <= 1 or self.vendors == "any" or (self.vendors == "joined" and fleet.communicator == "unified")

    def fault(self, plan: Plan) -> str:
        """The first property of a plan that the target cannot express; empty where it can run the plan."""
        faults = self.unsupported_layout(plan.config, plan.workload)
        return next(faults, None) or next(self.unsupported_placement(plan), "")
