"""How much work the search for unlike pipelines does: counts, so that a request has the same answer on every machine.

The time limit is only a safeguard on top of that, as for `planner.search.budgets.Budgets`. Constants beside the parts of the
search limit each of them; these fields limit the whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.time_limit import TimeLimit


@dataclass(frozen=True, slots=True)
class PipelineBudgets:
    """Limits of one search for unlike pipelines. All values are guesses; with larger ones it is slower and its plan better."""

    columns: int = 24
    """Searches for columns, beside those with cp or ep above 1, after which no more begin; one takes 0.02 to 0.6 s."""
    every_part: bool = True
    """Whether other parts than single nodes and whole clusters are planned, and parts once more with context parallelism."""
    events: int = 1_000_000
    """Events of simulations, after which no more begin: 10 to 15 CPU seconds. `peers/hexiscale-a-40` has found its plan after
    650,000, and `peers/metis-128` after 720,000."""


USUAL = PipelineBudgets()
"""Budgets where devices are idle."""
BRIEF = PipelineBudgets(every_part=False, events=60_000)
"""Budgets where hardly any device is idle, so that unlike pipelines seldom save anything: 1 to 3 CPU seconds. Of the
five shipped topologies of 32 to 64 devices, both find a plan on `holmes-hybrid-4` alone, of 8.09 s; the usual ones take 20."""


@dataclass(slots=True)
class Work:
    """The work of a search that is left. events: of its simulations so far."""

    limit: TimeLimit
    budgets: PipelineBudgets = USUAL
    events: int = field(default=0, init=False)

    def is_over(self) -> bool:
        """Whether nothing more is to be simulated or planned: by the budget of events, or the time is up."""
        return self.events >= self.budgets.events or self.limit.is_up()
