"""Scenarios of a sweep with islands that take the plan of another scenario, since they can have it, too, and it is faster.

Searches end at a time limit, so that one with more links or more allowed strategies may find a slower plan. A scenario can have
the plan of another one that differs in less bandwidth only (the addition is held back to it), and where all else is equal an
exact plan is allowed beside islands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holmes_sim.sweeping.speeds import allows_islands, rank, speed
from holmes_sim.sweeping.study import PLAN, Scenario, Study, Values
from holmes_sim.sweeping.worker import INFEASIBLE, PLANNED, Row
from planner.api import DEFAULT
from planner.islands.allowed_sync import EXACT, parse
from sim import units

SYNC = f"{PLAN}sync"
BANDWIDTH = re.compile(r"(links\[\d+\]|clusters\..+\.nics\[\d+\])\.bandwidth")
"""Keys of which a larger value adds something that may stay unused."""
SAME = 1e-6
"""Relative difference of two speeds that rounding explains. A guess."""
OWN = ("planning_s",)
"""Columns that stay those of the scenario."""


def with_kept_plans(study: Study, results: Sequence[Row | None]) -> list[Row | None]:
    """The results of a study, where each scenario has the fastest plan of those that it can have; the results themselves where
    no scenario allows islands. The row then says of which scenario the plan is (`plan_of`)."""
    if not allows_islands(study):
        return list(results)
    return [_kept(study, results, index) for index in range(len(results))]


def _kept(study: Study, results: Sequence[Row | None], index: int) -> Row | None:
    """The result of a scenario, or with the plan of a faster one that it can have."""
    own, here = results[index], study.scenarios[index]
    if own is None or own["status"] not in (PLANNED, INFEASIBLE):
        return own
    best, of = own, here
    for other, there in zip(results, study.scenarios, strict=True):
        if other is None or other["status"] != PLANNED or not _can_have(here, there):
            continue
        if best["status"] != PLANNED or rank(other) > (rank(best)[0], speed(best) * (1 + SAME)):
            best, of = other, there
    if best is own:
        return own
    gap = None
    if own["status"] == PLANNED and own["gap"] is not None and rank(own)[0] == rank(best)[0]:
        gap = max(1 - speed(best) / speed(own) * (1 - own["gap"]), 0.0)
    changed = [f"{key} {value}" for key, value in of.values.items() if here.values.get(key) != value]
    return best | {name: own.get(name) for name in OWN} | {"gap": gap, "plan_of": ", ".join(changed)}


def _can_have(here: Scenario, there: Scenario) -> bool:
    """Whether a scenario can have the plan of another one: both ask for the fastest plan of the default strategy, with all keys
    equal, or there less of what may stay unused here."""
    options = [one.options.model_dump() for one in (here, there)]
    plain = all((one["strategy"], one["objective"]) == (DEFAULT, "step-time") for one in options)
    free = {"sync", "time_limit"}
    same = all(options[0][name] == options[1][name] for name in options[0] if name not in free)
    if not plain or not same or here.values.keys() != there.values.keys():
        return False
    return _allows(here.options.sync, there.options.sync) and all(
        _holds(key, here.values, there.values) for key in here.values if key != SYNC
    )


def _allows(here: str, there: str) -> bool:
    """Whether plans that one text of --sync allows are all allowed by another one."""
    return here == there or (there == EXACT and parse(here).exact)


def _holds(key: str, here: Values, there: Values) -> bool:
    """Whether a key has the same value, or a larger bandwidth."""
    if here[key] == there[key]:
        return True
    both = units.common_unit((here[key], there[key])) if BANDWIDTH.fullmatch(key) else None
    return both is not None and both[1][0] >= both[1][1]
