"""What a plan must be able to run on: a launch target, several of them, any training framework, or none.

By default a plan must run on at least one training framework, and has a schedule that frameworks commonly run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from holmes_sim import exporters
from planner import api
from planner.request import Request
from planner.search.fitting import fitting
from planner.target import ANY as ANY
from planner.target import Target
from sim.errors import OptionError
from sim.formats.suggestions import suggestion
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

    `ANY` alone: any framework; but no target where another schedule is asked for than those that frameworks commonly run, or
    where no plan that fits is found for a framework. Raises HolmesError for an unknown name."""
    wrong = next((one for one in asked if not isinstance(one, str)), "")
    if wrong != "":
        raise OptionError(f"target: the name of a launch target, 'any' or 'none' is expected, not {wrong!r}")
    given = tuple(dict.fromkeys(name for one in asked for name in one.split(exporters.AND) if name != NONE))
    named = tuple(name for name in given if name != ANY)
    for name in named:
        if name not in exporters.every():
            raise OptionError(f"target {name!r} is unknown{suggestion(name, names())}")
    if named:
        return replace(request, target=exporters.joined(named))
    found = replace(request, target=any_framework() if given else None)
    wanted = [request.wishes.schedule] if request.wishes.schedule else map(str, request.limits.listed("schedule"))
    usual = all(map(schedules.is_production, wanted))
    if not given or (usual and fitting(found) is not None):
        return found
    runnable = usual and request.wishes.offload != PARAMETERS  # which no framework can run, whatever remedy is found
    return replace(found, target=None, unfit_target=found.target if runnable else None)


def named(text: str) -> Target:
    """The target that a certificate names: `ANY`, or targets with `AND` between them. Raises HolmesError for another one."""
    return any_framework() if text == ANY else exporters.joined(tuple(text.split(exporters.AND)))


def any_framework() -> Target:
    """The target that can run what at least one training framework can, with the schedules that frameworks commonly run
    (`sim.plan.schedules.is_production`)."""
    every = tuple(map(exporters.target, exporters.frameworks()))
    loosest = max((one.vendors for one in every), key=("one", "joined", "any").index)
    excluded = set.intersection(*(set(one.excluded_vendors) for one in every))
    return Target(ANY, loosest, tuple(sorted(excluded)), _SomeLayout(every), _SomePlacement(every))


@dataclass(frozen=True, slots=True)
class _SomeLayout:
    """Why none of several targets can express a layout: the reasons of the one that has fewest."""

    targets: tuple[Target, ...]

    def __call__(self, config: ParallelConfig, workload: Workload) -> Iterator[str]:
        if not schedules.is_production(config.schedule):
            yield f"schedule {config.schedule}: few frameworks run it; --schedule {config.schedule}, or --for none"
        yield from _fewest(one.unsupported_layout(config, workload) for one in self.targets)


@dataclass(frozen=True, slots=True)
class _SomePlacement:
    """Why none of several targets can run a plan: the reasons of the one that has fewest."""

    targets: tuple[Target, ...]

    def __call__(self, plan: Plan) -> Iterator[str]:
        yield from _fewest(_all_of(one, plan) for one in self.targets)


def _all_of(target: Target, plan: Plan) -> Iterator[str]:
    """What a target cannot express of the layout and the placement of a plan: one target must be able to express both."""
    yield from target.unsupported_layout(plan.config, plan.workload)
    yield from target.unsupported_placement(plan)


def _fewest(reasons: Iterable[Iterator[str]]) -> list[str]:
    """The shortest list of reasons, the first of several; an empty one ends the search.

    One reason of each is found after the other, because all reasons of a target that has several take long to find."""
    every = [(one, list[str]()) for one in reasons]
    while every:
        for one, found in every:
            reason = next(one, None)
            if reason is None:
                return found
            found.append(reason)
    return []
