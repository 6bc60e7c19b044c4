"""The planner's face: one plan by one strategy, or a row for each of several."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from planner import strategies
from planner.question import Question
from planner.workshop import Workshop
from sim.errors import Infeasible
from sim.plan import Plan

DEFAULT = "certified"


@dataclass(frozen=True, slots=True)
class Row:
    """What a strategy answered: a plan with its prediction, or why there is none."""

    name: str
    plan: Plan | None
    reason: str = ""


def plan(question: Question, strategy: str = DEFAULT, workshop: Workshop | None = None) -> Plan:
    """The plan of a strategy, simulated. Raises PlanError for an unknown strategy, Infeasible where no plan exists."""
    chosen, shared = strategies.get(strategy), workshop or Workshop(question)
    return shared.answer(strategy, functools.partial(chosen.plan, question, shared))


def compare(question: Question, names: tuple[str, ...], workshop: Workshop | None = None) -> tuple[Row, ...]:
    """One row for each strategy, in the order asked."""
    shared, rows = workshop or Workshop(question), []
    for name in names:
        try:
            rows.append(Row(name, plan(question, name, shared)))
        except Infeasible as error:
            rows.append(Row(name, None, str(error)))
    return tuple(rows)
