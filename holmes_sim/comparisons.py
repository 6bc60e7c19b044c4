"""Comparisons of the plans of several strategies, and of the best plans for several launch targets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

from holmes_sim import exporters, requirements, targets
from holmes_sim.commands import workload_of
from holmes_sim.pins import Pins, pinned
from holmes_sim.results import Compared, reason
from planner import api, strategies
from planner.api import Row
from planner.costs.context import PlanningContext
from planner.request import Wishes
from sim.errors import Infeasible
from sim.hardware.topology import Topology
from sim.workload.workload import Workload


def compare(
    where: Topology,
    workload: Workload | None = None,
    names: tuple[str, ...] = (),
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    **pins: Unpack[Pins],
) -> Compared:
    """Plan a topology with several strategies, each on its own; with all strategies if `names` is empty. `pins` fix dimensions,
    such as tp=2, in every plan.

    Raises OptionError, TopologyError; Infeasible, with a reason per strategy, if no strategy finds a plan; KeyboardInterrupt if
    Ctrl-C was pressed before a plan was found.
    """
    wishes = pinned("compare", wishes, pins)
    request = requirements.request(where, workload or workload_of(where), wishes, time_limit)
    chosen = tuple(dict.fromkeys(names or strategies.names()))
    return _with_a_plan(Compared(request, chosen, api.compare(request, chosen, progress)))


def _with_a_plan(found: Compared) -> Compared:
    """The comparison, if a row has a plan. Raises Infeasible, or KeyboardInterrupt if Ctrl-C was pressed before."""
    if found.ranked:
        return found
    if found.note:
        raise KeyboardInterrupt
    raise Infeasible(_why_none(found.rows))


def compare_targets(
    where: Topology,
    workload: Workload | None = None,
    names: tuple[str, ...] = (),
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    **pins: Unpack[Pins],
) -> Compared:
    """The best plan for each launch target, and for none (`targets.NONE`); for every training framework if `names` is empty.

    Raises as `compare`."""
    workload, wishes = workload or workload_of(where), pinned("compare_targets", wishes, pins)
    chosen = tuple(dict.fromkeys((targets.NONE, *(names or exporters.frameworks()))))
    asked = {name: requirements.request(where, workload, wishes, time_limit, name) for name in chosen}
    rows: list[Row] = []
    for number, (name, one) in enumerate(asked.items(), 1):
        context = PlanningContext(one, functools.partial(_of_target, progress, f"{name} ({number} of {len(asked)})"))
        try:
            rows.append(replace(api.row(one, api.DEFAULT, context), name=name))
        except KeyboardInterrupt:
            break
        if rows[-1].interrupted:
            break
    return _with_a_plan(Compared(asked[targets.NONE], chosen, tuple(rows), "target"))


def _of_target(progress: Callable[[str], None], who: str, text: str) -> None:
    progress(f"{who}: {text}")


def _why_none(rows: tuple[Row, ...]) -> str:
    """The reason that all strategies share, or one line per strategy."""
    reasons = {row.reason for row in rows}
    return reasons.pop() if len(reasons) == 1 else "\n".join(f"{row.name}: {reason(row)}" for row in rows)
