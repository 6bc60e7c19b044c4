"""What a report tells of a plan: its simulated step, where the seconds go, other strategies, how each target launches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holmes_sim import commands, exporters, exporting
from holmes_sim.commands import Compared, Simulated
from holmes_sim.launching.folder import Launch
from planner import search, strategies
from planner.question import Question
from planner.search import Row
from sim.errors import PlanError
from sim.explain import Explanation
from sim.plan import Plan, Prediction


@dataclass(frozen=True, slots=True)
class Study:
    """A plan and everything that its page shows; `file` is the plan's, as a command line names it.

    `prediction` is what the plan promises, and what was simulated just now where it promises nothing. `compared` has the plan
    itself as its first row; None where it is held against nobody. `launches` has a launch for each target, or the lines that
    say why it refuses.
    """

    file: str
    plan: Plan
    run: Simulated
    prediction: Prediction
    explanation: Explanation
    compared: Compared | None
    launches: tuple[tuple[str, Launch | tuple[str, ...]], ...]


def study(
    plan: Plan,
    names: tuple[str, ...] = commands.BASELINES,
    time_limit: float = 10.0,
    file: str = "plan.json",
    progress: Callable[[str], None] = lambda text: None,
) -> Study:
    """Simulate a plan and hold it against strategies, each with so many seconds to search. Raises PlanError, TopologyError."""
    for name in names:
        strategies.get(name)
    progress("simulating")
    run = commands.simulate(plan)
    promised = plan.prediction or run.prediction
    compared = _compared(plan.saying(prediction=promised), names, time_limit, progress)
    progress("launches")
    launches = tuple((name, _launch(plan, name)) for name in exporters.names())
    return Study(file, plan, run, promised, commands.explain(run), compared, launches)


def _compared(plan: Plan, names: tuple[str, ...], time_limit: float, progress: Callable[[str], None]) -> Compared | None:
    """The plan beside what others answer to its question: its own strategy is not asked again, and nothing is pinned."""
    mine = plan.made_by.strategy
    others = tuple(name for name in dict.fromkeys(names) if name != mine)
    if not others:
        return None
    question = Question(replace(plan.topology, workload=plan.workload), plan.workload, time_limit=time_limit)
    rows = search.compare(question, others, progress)
    return Compared(question, (mine, *others), (Row(mine, plan), *rows))


def _launch(plan: Plan, target: str) -> Launch | tuple[str, ...]:
    """What a target writes, or a line for each property of the plan that it cannot express."""
    try:
        return exporting.export(plan, target)
    except PlanError as error:
        return tuple(str(error).splitlines())
