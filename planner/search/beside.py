"""Strategies that are planned while the certified search runs: in a second process, where this machine has a core for it.

Their plans are shown beside the search's and do not change it, so the search does not depend on when they are ready."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TypeAlias

from planner.costs.context import PlanningContext
from planner.request import Request
from planner.second_process import SecondProcess, has_free_core
from sim.errors import Infeasible
from sim.plan.plan import Plan

PARALLEL_FROM = 24
"""Least number of devices for which a process is started. Guess: on fewer, planning takes a tenth of a second."""
Ask: TypeAlias = Callable[[str, PlanningContext], Plan]
"""The plan of a strategy by its name; raises Infeasible where there is none. It can be pickled."""
Answer: TypeAlias = Plan | Infeasible


@dataclass(slots=True)
class Beside:
    """The answers of the strategies that a context wants beside the search. It is a context manager, which ends the process."""

    context: PlanningContext
    ask: Ask
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _second: SecondProcess[dict[str, Answer]] | None = field(default=None, init=False)

    def __enter__(self) -> Beside:
        names = self.context.beside
        if names and has_free_core() and self.context.request.topology.fleet.devices >= PARALLEL_FROM:
            call = partial(_answers, self.ask, names, self.context)
            self._second = self._open.enter_context(SecondProcess(call))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def plan(self) -> None:
        """Without a second process: plan in this one, within the time limit."""
        if self._second is None:
            self._plan_here()

    def collect(self) -> None:
        """Give the context the answers of the second process; wait for them until the time limit."""
        if self._second is None:
            return
        activity = f"planning with {' and '.join(self.context.beside)}"
        self.context.progress(activity)
        if not self._second.ends(self.context.limit.seconds_left, lambda: self.context.progress(activity)):
            self.context.limit.is_up()
            return
        answers = self._second.answer()
        if answers is None:  # it could not be started, was killed, or lacked memory
            self._plan_here()
            return
        for name, answer in answers.items():
            self.context.learn(name, _of(self.context.request, answer))

    def _plan_here(self) -> None:
        """Plan with every strategy in this process, within the time limit."""
        for name in self.context.beside:
            if not self.context.limit.is_up():
                self.context.progress(f"planning with strategy {name}")
                with suppress(Infeasible):
                    self.context.answer(name, partial(self.ask, name, self.context))


def _answers(ask: Ask, names: tuple[str, ...], context: PlanningContext) -> dict[str, Answer]:
    """The answers of strategies, which share the costs of a context and nothing else."""
    return {name: _answer(ask, name, context.of(context.request)) for name in names}


def _answer(ask: Ask, name: str, context: PlanningContext) -> Answer:
    """The plan of a strategy, or why it has none."""
    try:
        return ask(name, context)
    except Infeasible as error:
        return error


def _of(request: Request, answer: Answer) -> Answer:
    """An answer of another process, whose plan has a topology and a workload of its own, for the objects of this request."""
    return replace(answer, topology=request.topology, workload=request.workload) if isinstance(answer, Plan) else answer
