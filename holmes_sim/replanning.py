"""Replan after the loss of nodes, moving as few ranks as possible.

There are two candidates. One is a new plan of the remaining nodes, with nodes assigned so that as many ranks as possible keep
their weights. The other keeps the old stages with fewer replicas, so that no rank moves; it is taken if it is as fast, or if
the user asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Unpack

from holmes_sim import requirements, targets
from holmes_sim.intervals import plan_facts
from holmes_sim.pins import Pins, pinned
from planner import api, strategies
from planner.costs.context import PlanningContext
from planner.placement import simulation
from planner.replan import moves, staying
from planner.replan.moves import Moves
from planner.request import Wishes
from planner.strategies import certified
from sim.errors import Infeasible
from sim.formats import lost_nodes, planfile
from sim.formats.lost_nodes import Place, Surviving, place_text
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.units import size_text, time_text

FORMAT = "holmes-sim/replan/1"
EQUAL = 1e-3
"""Relative difference below which two step times count as equal. Guess: below the accuracy of the simulator."""


@dataclass(frozen=True, slots=True, repr=False)
class Replanned:
    """The old plan (`before`), the new plan, the lost nodes (numbered as in the old plan), and the ranks that must move.

    The new plan is `searched`, the result of a new search, or `stayed`, in which no rank moves; a missing one is None."""

    before: Plan
    plan: Plan
    lost: tuple[Place, ...]
    left: Surviving
    moves: Moves
    searched: Plan | None
    stayed: Plan | None
    interrupted: bool = False

    def __repr__(self) -> str:
        lost = ", ".join(map(place_text, self.lost))
        return (
            f"without {lost}: step {time_text(self.promise.step_s)}, {self.moves.moving} of {self.moves.ranks} ranks move, "
            f"{size_text(self.moves.nbytes)} of weights"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>"

    @property
    def promise(self) -> Prediction:
        """The prediction of the new plan."""
        assert self.plan.prediction is not None
        return self.plan.prediction

    @property
    def hosts(self) -> dict[str, str]:
        """Host of each node of the new plan; of an NVLink domain all hosts, with commas between them."""
        fleet = self.before.fleet
        return {place_text(new): ",".join(fleet.cluster(old[0]).hosts_of(old[1])) for new, old in self.left.previous.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what the new topology does not represent exactly."""
        return tuple(
            f"{place_text(place)} (host {self.hosts[place_text(place)]}) is modelled under another leaf switch than its own."
            for place in self.left.displaced
        )

    def moved(self, plan: Plan) -> Moves:
        """The ranks that must move from the old plan to `plan`."""
        return moves.moves(self.before, plan, self.left.previous)

    def _plan_facts(self, plan: Plan | None) -> dict[str, Any] | None:
        if plan is None or plan.prediction is None:
            return None
        return {"step_s": plan.prediction.step_s, "ranks": plan.config.world_size, "moving": self.moved(plan).moving}

    def facts(self) -> dict[str, Any]:
        """The result as plain data (format holmes-sim/replan/1)."""
        old = self.before.prediction
        return {
            "format": FORMAT,
            "lost": [place_text(place) for place in self.lost],
            "renumbered": {place_text(a): place_text(b) for a, b in self.left.renumbered.items()},
            "hosts": self.hosts,
            "ranks": {"all": self.moves.ranks, "staying": self.moves.staying, "moving": self.moves.moving},
            "weight_bytes_to_move": self.moves.nbytes,
            "step_s": {"before": old.step_s if old is not None else None, "after": self.promise.step_s},
            "searched": self._plan_facts(self.searched),
            "stayed": self._plan_facts(self.stayed),
            "notes": list(self.notes),
            "plan": planfile.facts(self.plan, plan_facts(self.plan)),
        }


def replan(
    plan: Plan,
    lost: str | Iterable[str],
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    stay: bool = False,
    target: str | None = None,
    **pins: Unpack[Pins],
) -> Replanned:
    """Replan without one or more nodes (`ib/node3` or a host name), with the strategy and the objective of the plan.

    With `stay`, no rank moves and there is no search. `target` is a launch target that must be able to run the new plan; that
    for which the plan was made, if None. Raises OptionError for nodes that do not exist; Infeasible, with a
    remedy, if the remaining nodes have no plan."""
    wishes = pinned("replan", wishes, pins)
    texts = (lost,) if isinstance(lost, str) else lost
    places = tuple(dict.fromkeys(lost_nodes.parse_node(plan.fleet, text) for text in texts))
    left = lost_nodes.without(plan.topology, places)
    request = requirements.request(left.topology, plan.workload, wishes, time_limit, target or _planned_for(plan))
    request = replace(request, limits=replace(request.limits, training=None))  # of days, fewer nodes take more
    kept = staying.stayed(plan, left.topology, left.previous)
    refused = request.refuses(kept) if kept is not None else ""
    if refused and stay:
        raise Infeasible(f"--stay: {refused}; remedy: leaving out --stay")
    if refused:
        kept = None
    if stay:
        if kept is None:
            raise Infeasible(
                f"--stay: no plan on the remaining nodes of {plan.topology.name} keeps every stage in place; "
                "remedy: leaving out --stay"
            )
        return Replanned(plan, kept, places, left, moves.moves(plan, kept, left.previous), None, kept)
    strategy = plan.made_by.strategy if plan.made_by.strategy in strategies.names() else api.DEFAULT
    objective = plan.certificate.objective if plan.certificate is not None else "step-time"
    may_stay = wishes == Wishes() and objective == "step-time"
    context = PlanningContext(request, progress, start=kept if may_stay else None, beside=certified.QUICK)
    found, _ = api.plan_for(objective, request, strategy, context)
    searched = moves.settled(plan, found, left.previous)
    if request.refuses(searched):
        searched = found
    if searched is not found:
        searched = simulation.simulate_plan(searched)
    takes_kept = kept is not None and may_stay and simulation.step(kept) <= (1 + EQUAL) * simulation.step(searched)
    taken = kept if kept is not None and takes_kept else searched
    return Replanned(plan, taken, places, left, moves.moves(plan, taken, left.previous), searched, kept, context.interrupted)


def _planned_for(plan: Plan) -> str:
    """The target for which a plan was made."""
    return (plan.certificate.target if plan.certificate is not None else "") or targets.NONE
