"""A planning request: a topology, a workload, and the dimensions of the plan that the user has pinned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from planner.limits import NO_LIMITS, Limits
from planner.target import Target
from sim.errors import OptionError, PlanError
from sim.hardware.cluster import Cluster
from sim.hardware.topology import Topology
from sim.plan import schedules
from sim.plan.offloading import ACTIVATIONS, CHOICES, PARAMETERS, SINGLE_PEER
from sim.plan.parallel_config import BLOCK, RECOMPUTE
from sim.plan.plan import Plan
from sim.workload.workload import Workload

OFFLOAD = tuple(CHOICES)
"""What may be pinned to the hosts."""
WORDS = ("schedule", "recompute", "offload")
"""Dimensions whose values are words."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Pinned dimensions of the plan; None leaves a dimension to the planner.

    recompute: one of `sim.plan.parallel_config.RECOMPUTE`, or `BLOCK`: as few layers of each stage as memory requires. offload:
    one of `OFFLOAD`; the planner offloads only what is pinned, and "parameters" pins a single device (`SINGLE_PEER`). Raises
    PlanError for another one, for a schedule with a list, which is made for one pipeline (`sim.plan.schedules`), and for
    `BLOCK` with activations on the hosts: fewer recomputed layers are not always faster there."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    vpp: int | None = None
    microbatch_size: int | None = None
    schedule: str | None = None
    recompute: str | None = None
    zero_stage: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    zero_shard_size: int | None = None
    offload: str | None = None

    def __post_init__(self) -> None:
        known = (*RECOMPUTE, BLOCK)
        if self.recompute is not None and self.recompute not in known:
            raise PlanError(f"recompute {self.recompute!r} is unknown; known: {', '.join(known)}")
        if self.offload not in (None, *OFFLOAD):
            raise PlanError(f"offload {self.offload!r} is unknown; known: {', '.join(OFFLOAD)}")
        if self.recompute == BLOCK and ACTIVATIONS in self.offloaded:
            raise PlanError(f"--recompute {BLOCK} with --offload {self.offload}: none or full, whichever is faster")
        for key, value in SINGLE_PEER.items() if self.offload == PARAMETERS else ():
            if getattr(self, key) not in (None, value):
                raise PlanError(f"--offload {PARAMETERS} is for single devices, with {key} {value}, not {getattr(self, key)}")
            object.__setattr__(self, key, value)
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name == "zero_stage" else 1
            if value is not None and field.name not in WORDS and not _is_count(value, least):
                raise PlanError(f"{field.name} {value!r} should be a whole number of at least {least}")
        if self.schedule is not None and not schedules.can_be_pinned(self.schedule):
            raise PlanError(
                f"--schedule {self.schedule}: the planner has no bounds for it; simulate a plan file whose config has it"
            )
        name, has_list, _ = (self.schedule or "").partition("=")
        if has_list:
            raise PlanError(f"--schedule {self.schedule}: a list belongs to one plan file; pin --schedule {name} without it")

    @property
    def offloaded(self) -> tuple[str, ...]:
        """What hosts keep (`sim.plan.parallel_config.ParallelConfig.offload`)."""
        return CHOICES[self.offload or "none"]

    def given(self) -> dict[str, object]:
        """The pins by name, without those that follow from the offload of parameters."""
        implied = SINGLE_PEER if self.offload == PARAMETERS else {}
        pins = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in pins.items() if value is not None and name not in implied}

    def with_pin(self, name: str, value: object) -> Wishes:
        """These wishes with another value of one pin, or None for no such pin; what followed from the old value goes, too."""
        return Wishes(**(self.given() | {name: value}))  # type: ignore[arg-type]  # a value of its dimension

    def __str__(self) -> str:
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.given().items())


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True, slots=True)
class Request:
    """A planning request.

    time_limit: seconds of search. machines: (cluster, number of nodes) of each cluster that may be used; empty for the whole
    fleet. target: the launch target that must be able to run the plan, if any. limits: what else the plan must keep to.
    unfit_target: the target that was asked for, where no plan that fits it is known and the search has none; what remedies
    promise holds for it."""

    topology: Topology
    workload: Workload
    wishes: Wishes = Wishes()
    time_limit: float = 50.0
    machines: tuple[tuple[str, int], ...] = ()
    target: Target | None = None
    limits: Limits = NO_LIMITS
    unfit_target: Target | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.time_limit, int | float):
            raise OptionError(f"time_limit: a number of seconds is expected, not {self.time_limit!r}")

    def refuses(self, plan: Plan) -> str:
        """Why a limit forbids a plan or the target cannot run it, as a sentence; empty where nothing refuses it."""
        forbidden = next(self.limits.faults(plan), None)
        if forbidden is not None:
            return f"the plan has {forbidden}"
        fault = self.target.fault(plan) if self.target is not None else ""
        return f"{self.target.can_not} express {fault}" if self.target is not None and fault else ""

    def joinable(self) -> list[list[Cluster]]:
        """The clusters that may be used, in sets that a plan may have devices of: all of them, or those of each vendor where
        the target does not join vendors."""
        every = list(self.clusters())
        if self.target is None or self.target.joins(self.topology.fleet, (cluster.name for cluster in every)):
            return [every]
        vendors = dict.fromkeys(cluster.node.device.vendor for cluster in every)
        return [[cluster for cluster in every if cluster.node.device.vendor == vendor] for vendor in vendors]

    def clusters(self) -> Iterator[Cluster]:
        """Clusters that may be used, with the allowed number of nodes, whose devices support the workload's precision and have
        a vendor that the target runs on."""
        nodes, excluded = dict(self.machines), self.target.excluded_vendors if self.target is not None else ()
        for cluster in self.topology.fleet.clusters:
            if cluster.node.device.vendor in excluded:
                continue
            if cluster.node.device.runs(self.workload.precision) and (not nodes or cluster.name in nodes):
                most = min(nodes.get(cluster.name, cluster.nodes), self.limits.most_nodes(cluster))
                yield replace(cluster, nodes=most) if most < cluster.nodes else cluster
