"""Launch targets: one file per target.

A module provides `TITLE` (name of the target), `READERS` (programs and versions that have read its exports), `ORDER` (place
in lists: what most people launch comes first, a guess; data for other programs last), `KIND` (training framework, launcher of
any program, data for other programs, or a framework that is made for islands), `VENDORS` (`planner.target.Vendors`: of how
many vendors the devices of a plan may be), `EXCLUDED_VENDORS` (on whose devices it does not run),
`unsupported_layout(config, workload)`, `unsupported_placement(plan)` and `launch(plan)`. What a target cannot express is said
in two parts, because a search for a target needs the first before there is a plan. The folder is the registry.

A target may also provide `unsupported_pipelines` (`planner.target.PipelineLimits`), which its `unsupported_placement` asks:
what depends on the devices of pipelines alone, so that a search leaves them out; and `PASSES_ON`, true where its stages
without layers, embedding and head are known to pass messages on.

A target that launches plans of islands (`sim.plan.islands`) also provides `ISLANDS_TITLE`, `ISLANDS_READERS` (how the settings
of islands were checked), `unsupported_islands(plan)` and `islands_launch(plan)`. One that launches `holmes-sim run` for plans
that no framework has, of unlike pipelines or with two sets of ranks, provides `RUN_TITLE`, `RUN_READERS` and
`run_launch(plan)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, cast

from holmes_sim.launching import head
from holmes_sim.launching.compressed_messages import compressed
from holmes_sim.launching.folder import Launch
from holmes_sim.launching.unlike_stages import unlike_options
from planner.target import Devices, PipelineLimits, Target, Vendors
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import HolmesError
from sim.formats.suggestions import suggestion
from sim.hardware.cluster import Fleet
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.registry import Registry
from sim.workload.workload import Workload


class Exporter(Protocol):
    """Interface of every module of this folder."""

    TITLE: str
    READERS: str
    ORDER: int
    KIND: str
    VENDORS: Vendors
    EXCLUDED_VENDORS: tuple[str, ...]

    def unsupported_layout(self, config: ParallelConfig, workload: Workload) -> Iterator[str]:
        """Degrees, schedules, numbers of microbatches and models that the target cannot express, each as `property value:
        reason; what the target can express`."""
        ...

    def unsupported_placement(self, plan: Plan) -> Iterator[str]:
        """Stages, devices, groups and names that the target cannot express, in the same form."""
        ...

    def launch(self, plan: Plan) -> Launch:
        """The files of a launch, for a plan without unsupported properties."""
        ...


class IslandsExporter(Exporter, Protocol):
    """Interface of the modules that launch plans of islands."""

    ISLANDS_TITLE: str
    ISLANDS_READERS: str

    def unsupported_islands(self, plan: IslandsPlan) -> Iterator[str]:
        """What the target cannot express of a plan of islands beyond the plan of each island, in the same form."""
        ...

    def islands_launch(self, plan: IslandsPlan) -> Launch:
        """The files of a launch of all islands, for a plan without unsupported properties."""
        ...


class RunExporter(Exporter, Protocol):
    """Interface of the modules that launch `holmes-sim run`."""

    RUN_TITLE: str
    RUN_READERS: str

    def run_launch(self, plan: PipelinesPlan | DisaggregatedPlan) -> Launch:
        """The files of a launch. Raises NotSupported where the plan cannot be launched so."""
        ...


REGISTRY: Registry[Exporter] = Registry(__name__, "target", HolmesError, suggestion)


def every() -> tuple[str, ...]:
    """Names of all targets, by their `ORDER`."""
    return tuple(sorted(REGISTRY.names, key=lambda name: get(name).ORDER))


def names() -> tuple[str, ...]:
    """Names of the targets that are made for one plan, in the same order: all but those of plans of islands alone."""
    return tuple(name for name in every() if get(name).KIND != "islands")


def frameworks() -> tuple[str, ...]:
    """Names of the targets that are training frameworks, in the same order: what limits the plans that they can run."""
    return tuple(name for name in names() if get(name).KIND == "framework")


def unsupported(name: str, plan: Plan) -> Iterator[str]:
    """All properties of a plan that a target cannot express. Raises HolmesError for an unknown name."""
    yield from unsupported_layout(name, plan.config, plan.workload)
    yield from get(name).unsupported_placement(plan)
    if get(name).KIND == "framework" and not getattr(get(name), "PASSES_ON", False):
        yield from head.passing(plan)


def unsupported_layout(name: str, config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What a target cannot express of a layout: what its module says, and what no framework can. Raises HolmesError for an
    unknown name."""
    exporter = get(name)
    yield from exporter.unsupported_layout(config, workload)
    if exporter.KIND == "framework":
        yield from (*compressed(config), *unlike_options(config))


def of_islands() -> tuple[str, ...]:
    """Names of the targets that launch plans of islands, in the same order."""
    return tuple(name for name in every() if islands(name) is not None)


def islands(name: str) -> IslandsExporter | None:
    """The target with this name if it launches plans of islands, else None. Raises HolmesError for an unknown name."""
    exporter = get(name)
    return cast(IslandsExporter, exporter) if hasattr(exporter, "islands_launch") else None


def of_run() -> tuple[str, ...]:
    """Names of the targets that launch `holmes-sim run`, in the same order."""
    return tuple(name for name in every() if runs(name) is not None)


def runs(name: str) -> RunExporter | None:
    """The target with this name if it launches `holmes-sim run`, else None. Raises HolmesError for an unknown name."""
    exporter = get(name)
    return cast(RunExporter, exporter) if hasattr(exporter, "run_launch") else None


def unsupported_islands(name: str, plan: IslandsPlan) -> Iterator[str]:
    """All properties of a plan of islands that a target cannot express, those of the plan of each island first; what several
    islands have in common is named once, for the first of them.

    Raises HolmesError for an unknown name and for a target that launches no islands."""
    exporter = islands(name)
    if exporter is None:
        raise HolmesError(f"{name} launches no plans of islands; {' and '.join(of_islands())} do")
    first: dict[str, int] = {}
    for index, island in enumerate(plan.islands):
        for fault in unsupported(name, island):
            if first.setdefault(fault, index) == index:
                yield f"islands[{index}].{fault}"
    yield from exporter.unsupported_islands(plan)


def able(plan: Plan) -> tuple[str, ...]:
    """The training frameworks that can run a plan, in the order of `names`."""
    return tuple(name for name in frameworks() if next(unsupported(name, plan), None) is None)


def target(name: str) -> Target:
    """A target as the planner takes it (`planner.request.Request`). Raises HolmesError for an unknown name."""
    exporter = get(name)
    pipelines = getattr(exporter, "unsupported_pipelines", None)
    parts = _Layouts(name), exporter.unsupported_placement, pipelines, getattr(exporter, "OVERLAPS_PAIRS", False)
    return Target(name, exporter.VENDORS, exporter.EXCLUDED_VENDORS, *parts)


@dataclass(frozen=True, slots=True)
class _Layouts:
    """What the target of this name cannot express of a layout."""

    name: str

    def __call__(self, config: ParallelConfig, workload: Workload) -> Iterator[str]:
        return unsupported_layout(self.name, config, workload)


AND = " and "
"""Between the names of targets that a plan must all be able to run on."""


def joined(names: tuple[str, ...]) -> Target:
    """One target that can run only what all targets of these names can. Raises HolmesError for an unknown name."""
    return all_of(tuple(map(target, names)))


def all_of(every: tuple[Target, ...]) -> Target:
    """One target that can run only what all of these can."""
    if len(every) == 1:
        return every[0]
    strictest = min((one.vendors for one in every), key=("one", "joined", "any").index)
    excluded = tuple(dict.fromkeys(vendor for one in every for vendor in one.excluded_vendors))
    name, limited = AND.join(one.name for one in every), tuple(filter(None, (one.unsupported_pipelines for one in every)))
    pipelines = _AllPipelines(limited) if limited else None
    pairs = all(one.overlaps_pairs for one in every)
    return Target(name, strictest, excluded, _AllLayouts(every), _AllPlacements(every), pipelines, pairs)


@dataclass(frozen=True, slots=True)
class _AllLayouts:
    """What at least one of several targets cannot express of a layout."""

    targets: tuple[Target, ...]

    def __call__(self, config: ParallelConfig, workload: Workload) -> Iterator[str]:
        for one in self.targets:
            yield from one.unsupported_layout(config, workload)


@dataclass(frozen=True, slots=True)
class _AllPlacements:
    """What at least one of several targets cannot express of a placement."""

    targets: tuple[Target, ...]

    def __call__(self, plan: Plan) -> Iterator[str]:
        for one in self.targets:
            yield from one.unsupported_placement(plan)


@dataclass(frozen=True, slots=True)
class _AllPipelines:
    """What at least one of several targets cannot express of pipelines."""

    limits: tuple[PipelineLimits, ...]

    def __call__(self, fleet: Fleet, pipelines: Iterable[Devices], every: Devices) -> Iterator[str]:
        listed = tuple(pipelines)
        for one in self.limits:
            yield from one(fleet, listed, every)


def get(name: str) -> Exporter:
    """The target with this name. Raises HolmesError for an unknown name."""
    return REGISTRY.get(name)
