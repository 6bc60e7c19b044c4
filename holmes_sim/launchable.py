"""Which training frameworks can run a plan, or a plan of islands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holmes_sim import exporters
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan

MOST = 10_000
"""Largest number of ranks for which the frameworks are asked (a guess): they look at every group and host, for some seconds of
100,000 ranks."""


def frameworks(plan: Plan) -> str:
    """The frameworks that can run a plan and those that cannot, as a sentence; empty for more than `MOST` ranks."""
    if plan.config.world_size > MOST:
        return ""
    every = exporters.frameworks()
    able = exporters.able(plan)
    others = [name for name in every if name not in able]
    asked = plan.certificate.target.split(exporters.AND) if plan.certificate is not None else []
    runs = f"Runs with {', '.join(_with_versions(name) if name in asked else name for name in able)}"
    if not others:
        return f"{runs}."
    other = f"with {', '.join(others)}: `plan --for NAME` finds the best plan for one"
    return f"{runs}; not {other}." if able else f"Does not run {other}. Most often because of {_usual_reason(plan, others)}."


def launches_islands(plan: IslandsPlan) -> str:
    """The targets that can launch a plan of islands and those that cannot, as a sentence; empty for islands of more than `MOST`
    ranks in all."""
    if sum(island.config.world_size for island in plan.islands) > MOST:
        return ""
    faults = {name: next(exporters.unsupported_islands(name, plan), "") for name in exporters.of_islands()}
    able, others = ([name for name, fault in faults.items() if bool(fault) == wanted] for wanted in (False, True))
    if not able:
        first = others[0]
        return f"Launched by no target: {first} cannot express {faults[first]} (`export --to NAME` says why for others)."
    runs = f"Launched by {', '.join(able)}"
    return f"{runs}; not by {', '.join(others)} (`export --to NAME` says why)." if others else f"{runs}."


def _usual_reason(plan: Plan, names: Sequence[str]) -> str:
    """The reason that most of these frameworks give for not running a plan."""
    return Counter(next(exporters.unsupported(name, plan)) for name in names).most_common(1)[0][0]


def _with_versions(name: str) -> str:
    """A framework with the programs and versions that have read its exports."""
    return f"{name} (its exports were read by {exporters.get(name).READERS})"
