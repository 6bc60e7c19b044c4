"""Which requirements conflict where no plan meets them all, and what each requirement costs.

A requirement is a key of `require` (`holmes_sim.requirements`), a pin, or the launch target. A set of them conflicts if no plan
that fits memory is found with these alone. First requirements are left out as long as the others conflict; then smaller sets
are tried, from the smallest on. The cost of a requirement is its shadow price: the seconds by which the step of the best plan
would be shorter without it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

from holmes_sim import requirements, targets
from planner import api
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from planner.search.fitting import fitting
from planner.strategies import certified
from sim.errors import HolmesError, Infeasible, TooLate
from sim.formats.require_facts import RequireFacts
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.units import Seconds
from sim.workload.workload import Workload

SMALLEST_SHARE = 0.3
"""Fraction of the time limit for the search of a smallest set (a guess)."""
LEAST_S: Seconds = 5.0
"""Least time to plan without one requirement (a guess), or all that is left. Requirements for which less than half of it is
left have no price."""


@dataclass(frozen=True, slots=True)
class Required:
    """All that a person requires of the plan of a topology and a workload: its `require`, pins and a launch target."""

    where: Topology
    workload: Workload
    wishes: Wishes
    target: str = targets.ANY

    def items(self) -> tuple[str, ...]:
        """The requirements as text, such as `tp at most 4`, `nodes without ib/node3`, `--pp 8`, `--for megatron`."""
        return tuple(self._words())

    def request(self, kept: Sequence[str], time_limit: Seconds) -> Request:
        """The planning request with some of the requirements only."""
        words = self._words()
        given = requirements.written(self.where)
        for text, (kind, name) in words.items():
            if kind == "require" and text not in kept:
                given.pop(name)
        pins = {name: None for text, (kind, name) in words.items() if kind == "pin" and text not in kept}
        where = requirements.only(self.where, given)
        return requirements.request(where, self.workload, replace(self.wishes, **pins), time_limit, self.target_of(kept))

    def target_of(self, kept: Sequence[str]) -> str:
        """The launch target, if it is among the requirements that are kept; else any, or none."""
        return self.target if f"--for {self.target}" in kept else self._free()

    def _free(self) -> str:
        """What is planned for where no launch target is required."""
        return targets.NONE if self.target == targets.NONE else targets.ANY

    def _words(self) -> Mapping[str, tuple[str, str]]:
        """Text of each requirement -> (kind, key)."""
        found: dict[str, tuple[str, str]] = {}
        facts = RequireFacts.model_validate(requirements.written(self.where))
        for name in requirements.written(self.where):
            found[requirements.text(facts, name)] = "require", name
        for field in fields(self.wishes):
            value = getattr(self.wishes, field.name)
            if value is not None:
                found[f"--{field.name.replace('_', '-')} {value}"] = "pin", field.name
        if self.target != self._free():
            found[f"--for {self.target}"] = "target", "for"
        return found


@dataclass(frozen=True, slots=True)
class Price:
    """A requirement, and the step of the best plan found without it; None with the reason why it is not known.

    bound_s: no searched plan without it takes less (its certificate)."""

    requirement: str
    step_s: Seconds | None
    reason: str = ""
    bound_s: Seconds | None = None


def smallest(required: Required, seconds: Seconds = math.inf) -> tuple[tuple[str, ...], bool]:
    """(a set of requirements that no plan meets together, whether it is a smallest one).

    Without any one of them the others do not conflict. Empty if some plan meets all, or none exists without any. Smaller sets
    are tried for `seconds`."""
    found, end = required.items(), time.monotonic() + seconds
    if not _verdict(required, ()).possible or _verdict(required, found).possible:
        return (), True
    is_smallest = True
    for item in found:
        others = tuple(one for one in found if one != item)
        if _verdict(required, others).conflict:
            found = others
    for size in range(1, len(found)):
        for some in itertools.combinations(required.items(), size):
            if time.monotonic() > end:
                return found, False
            verdict = _verdict(required, some)
            if verdict.conflict:
                return some, is_smallest
            is_smallest &= verdict.possible
    return found, is_smallest


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Whether a plan that meets some requirements was found, or else the whole search ended without one. Neither, if the time
    limit ended the search first: then it is not known."""

    possible: bool
    conflict: bool


def _verdict(required: Required, kept: Sequence[str]) -> _Verdict:
    """Whether a plan that meets these requirements is found: one that fits, or else one of the search without a proof, which
    also has mixed stages."""
    request = required.request(kept, LEAST_S)
    context = PlanningContext(request)
    context.proves = request.limits.cost is not None
    try:
        if request.limits.cost is not None:
            found = bool(api.plan(request, api.DEFAULT, context))
        else:
            found = fitting(request) is not None or bool(certified.plan(request, context))
        return _Verdict(found, False)
    except Infeasible:
        return _Verdict(False, not context.limit.reached)


def share_of(left: Seconds, items: int, seconds: Seconds) -> Seconds:
    """The time for the next of so many items where some of `seconds` are left: equal shares, but not less than `LEAST_S`, or
    than all that is left; 0 where that is less than half of it."""
    least = min(LEAST_S, seconds)
    return max(left / items, min(least, left)) if left > least / 2 else 0.0


def prices(
    required: Required,
    items: Sequence[str],
    seconds: Seconds,
    progress: Callable[[str], None] = lambda text: None,
    start: Plan | None = None,
) -> Iterator[Price]:
    """The price of each item, planned without it, all within `seconds`. `start`: the plan that meets all requirements."""
    end = time.monotonic() + seconds
    for number, item in enumerate(items):
        share = share_of(end - time.monotonic(), len(items) - number, seconds)
        if not share:
            yield Price(item, None, "not planned: no time left")
            continue
        progress(f"without {item} ({number + 1} of {len(items)})")
        request = required.request([one for one in required.items() if one != item], share)
        same = start is not None and start.topology == request.topology
        try:
            plan = api.plan(request, api.DEFAULT, PlanningContext(request, start=start if same else None))
            assert plan.prediction is not None
            yield Price(item, plan.prediction.step_s, bound_s=plan.certificate.lower_bound_s if plan.certificate else None)
        except TooLate as error:
            yield Price(item, None, f"still {error.days:.4g} days")
        except Infeasible as error:
            yield Price(item, None, str(error).splitlines()[0])


def explained(required: Required, error: Infeasible, seconds: Seconds, progress: Callable[[str], None]) -> Infeasible:
    """The error with the requirements that conflict and the step without each of them; the error itself without a conflict.

    Where only the days are too few, it has the step without each other requirement with which they suffice."""
    if isinstance(error, TooLate):
        days = requirements.text(RequireFacts.model_validate(requirements.written(required.where)), "days")
        others = [item for item in required.items() if item != days]
        return TooLate("\n".join([str(error), *_without_each(required, others, seconds, progress)]), error.days)
    found, is_smallest = tuple[str, ...](), True
    progress("which requirements conflict")
    begun = time.monotonic()
    with suppress(HolmesError):
        found, is_smallest = smallest(required, SMALLEST_SHARE * seconds)
    if not found:
        return error
    if len(found) == 1:
        lines = [f"no plan of {required.where.name} has {found[0]}"]
    else:
        kind = "the smallest set that conflicts" if is_smallest else "without any one of these the others do not conflict"
        lines = [f"no plan of {required.where.name} has all of: {'; '.join(found)} ({kind})"]
    seconds = max(seconds - (time.monotonic() - begun), 0.0)
    if len(found) == 1:
        lines.append(str(error).split("; remedy")[0])
        facts = RequireFacts.model_validate(requirements.written(required.where))
        if any(requirements.text(facts, name) == found[0] for name in requirements.ranges(facts)):
            lines.append("a range leaves out values that are searched otherwise; a list such as [2, 4] searches others, too")
    return Infeasible("\n".join([*lines, *_without_each(required, found, seconds, progress)]))


def _without_each(required: Required, items: Sequence[str], seconds: Seconds, progress: Callable[[str], None]) -> Iterator[str]:
    """A line for each requirement: the step without it, or why there is no plan without it."""
    for price in prices(required, items, seconds, progress):
        without = f"a step of {price.step_s:.4g} s" if price.step_s is not None else price.reason
        yield f"without {price.requirement}: {without}"
