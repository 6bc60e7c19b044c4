"""What a plan must be able to run on: a launch target, several of them, any training framework, a number of them, or none.

By default a plan must run on at least one training framework, and has a schedule that frameworks commonly run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from holmes_sim import exporters
from planner import api
from planner.request import Request
from planner.search.fitting import fitting
from planner.target import ANY as ANY
from planner.target import AT_LEAST, Devices, PipelineLimits, Target
from sim.errors import OptionError
from sim.formats.suggestions import suggestion
from sim.hardware.cluster import Fleet
from sim.plan import schedules
from sim.plan.offloading import PARAMETERS
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

NONE = "none"
"""No target: a plan may have schedules and layouts that no framework runs."""


def names() -> tuple[str, ...]:
    """What may be asked for: `ANY`, `NONE`, and the names of all targets."""
    return (ANY, NONE, *exporters.every())


def of_strategy(strategy: str, target: str) -> str:
    """The target of a strategy where `target` is asked for: published strategies do not know frameworks, so that `ANY` does not
    limit them."""
    return NONE if target == ANY and strategy != api.DEFAULT else target


def aimed(request: Request, asked: Sequence[str]) -> Request:
    """The request with the target of these names, which a plan must all be able to run on.

    A name may be that of `at_least`, too. `ANY` alone: any framework; but no target where another schedule is asked for than
    those that frameworks commonly run, or where no plan that fits is found for a framework. Raises HolmesError for an unknown
    name."""
    wrong = next((one for one in asked if not isinstance(one, str)), "")
    if wrong != "":
        raise OptionError(f"target: the name of a launch target, 'any' or 'none' is expected, not {wrong!r}")
    given = tuple(dict.fromkeys(name for one in asked for name in one.split(exporters.AND) if name != NONE))
    named = tuple(name for name in given if name != ANY)
    for name in named:
        if name not in exporters.every() and not name.startswith(AT_LEAST):
            raise OptionError(f"target {name!r} is unknown{suggestion(name, names())}")
    if named:
        return replace(request, target=_all(named))
    found = replace(request, target=any_framework() if given else None)
    wanted = [request.wishes.schedule] if request.wishes.schedule else map(str, request.limits.listed("schedule"))
    usual = all(map(schedules.is_production, wanted))
    if not given or (usual and fitting(found) is not None):
        return found
    runnable = usual and request.wishes.offload != PARAMETERS  # which no framework can run, whatever remedy is found
    return replace(found, target=None, unfit_target=found.target if runnable else None)


def named(text: str) -> Target:
    """The target that a certificate names: `ANY`, or targets with `AND` between them. Raises HolmesError for another one."""
    return any_framework() if text == ANY else _all(tuple(text.split(exporters.AND)))


def at_least(least: int) -> str:
    """The name of the target that is any `least` training frameworks. Raises OptionError where fewer are known."""
    if least > len(exporters.frameworks()):
        raise OptionError(f"targets: min {least} is more than the training frameworks {', '.join(exporters.frameworks())}")
    return f"{AT_LEAST}{least} frameworks"


def _all(names: tuple[str, ...]) -> Target:
    """One target that can run only what all of these can."""
    return exporters.all_of(tuple(map(_named, names)))


def _named(name: str) -> Target:
    """One target by its name, which may be that of `at_least`."""
    return _least(int(name.removeprefix(AT_LEAST).split()[0])) if name.startswith(AT_LEAST) else exporters.target(name)


def any_framework() -> Target:
    """The target that can run what at least one training framework can, with the schedules that frameworks commonly run
    (`sim.plan.schedules.is_production`)."""
    return replace(_least(1), name=ANY)


def _least(least: int) -> Target:
    """The target that can run what at least `least` training frameworks can, with the schedules that they commonly run."""
    every = tuple(map(exporters.target, exporters.frameworks()))
    loose = sorted(every, key=lambda one: ("any", "joined", "one").index(one.vendors))
    vendors = {vendor: sum(vendor in one.excluded_vendors for one in every) for one in every for vendor in one.excluded_vendors}
    excluded = tuple(sorted(vendor for vendor, many in vendors.items() if len(every) - many < least))
    limits = tuple(filter(None, (one.unsupported_pipelines for one in every)))
    free = len(every) - len(limits)
    pipelines = _SomePipelines(limits, least - free) if least > free else None
    some = _SomeLayout(every, least), _SomePlacement(every, least)
    return Target(at_least(least), loose[least - 1].vendors, excluded, *some, pipelines)


@dataclass(frozen=True, slots=True)
class _SomeLayout:
    """Why fewer than `least` of several targets can express a layout: the reasons of the one that has fewest, or of several."""

    targets: tuple[Target, ...]
    least: int

    def __call__(self, config: ParallelConfig, workload: Workload) -> Iterator[str]:
        if not schedules.is_production(config.schedule):
            yield f"schedule {config.schedule}: few frameworks run it; --schedule {config.schedule}, or --for none"
        yield from _fewest((one.unsupported_layout(config, workload) for one in self.targets), self.least)


@dataclass(frozen=True, slots=True)
class _SomePlacement:
    """Why fewer than `least` of several targets can run a plan: the reasons of the one that has fewest, or of several."""

    targets: tuple[Target, ...]
    least: int

    def __call__(self, plan: Plan) -> Iterator[str]:
        yield from _fewest((_all_of(one, plan) for one in self.targets), self.least)


@dataclass(frozen=True, slots=True)
class _SomePipelines:
    """Why fewer than `least` of several targets can express the devices of pipelines: as `_SomeLayout`."""

    limits: tuple[PipelineLimits, ...]
    least: int

    def __call__(self, fleet: Fleet, pipelines: Iterable[Devices], every: Devices) -> Iterator[str]:
        listed = tuple(pipelines)
        yield from _fewest((one(fleet, listed, every) for one in self.limits), self.least)


def _all_of(target: Target, plan: Plan) -> Iterator[str]:
    """What a target cannot express of the layout and the placement of a plan: one target must be able to express both."""
    yield from target.unsupported_layout(plan.config, plan.workload)
    yield from target.unsupported_placement(plan)


def _fewest(reasons: Iterable[Iterator[str]], least: int) -> list[str]:
    """The shortest list of reasons but for `least` - 1 shorter ones, the first of several.

    One reason of each is found after the other, because all reasons of a target that has several take long to find."""
    every = [(one, list[str]()) for one in reasons]
    while every:
        for pair in every.copy():
            one, found = pair
            reason = next(one, None)
            if reason is not None:
                found.append(reason)
            elif least == 1:
                return found
            else:
                every.remove(pair)
                least -= 1
    return []
