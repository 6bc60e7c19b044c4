"""A plan for the machines that are left after the loss of nodes, that moves as few ranks as possible.

The machines are planned anew, and the plan's nodes then stand where most ranks find their weights. Beside it stands the plan in
which nobody moves, the old stages with fewer replicas; it is taken where it is as fast, or asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from planner import api, strategies
from planner.costs.context import PlanningContext
from planner.placement import simulation
from planner.replan import moves, staying
from planner.replan.moves import Moves
from planner.request import Request, Wishes
from sim.errors import Infeasible
from sim.formats import lost_nodes, planfile
from sim.formats.lost_nodes import Place, Surviving, place_text
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.units import size_text, time_text

FORMAT = "holmes-sim/replan/1"
EQUAL = 1e-3
"""Steps that differ by less than this part are as fast: less than the simulator can know (a guess)."""


@dataclass(frozen=True, slots=True, repr=False)
class Replanned:
    """The old plan and the new one, the nodes that were lost (as the old plan numbers them), and what must move.

    The new plan is one of `searched`, planned anew, and `stayed`, in which nobody moves; a plan that there is not is None."""

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
        """What the new plan promises."""
        assert self.plan.prediction is not None
        return self.plan.prediction

    @property
    def hosts(self) -> dict[str, str]:
        """Node of the new plan -> the host that it is."""
        return {place_text(new): self.before.fleet.cluster(old[0]).host(old[1]) for new, old in self.left.previous.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the new topology cannot say."""
        return tuple(
            f"{place_text(place)} (host {self.hosts[place_text(place)]}) is reckoned under another leaf switch than its own."
            for place in self.left.displaced
        )

    def moved(self, plan: Plan) -> Moves:
        """What must move for one of the plans."""
        return moves.moves(self.before, plan, self.left.previous)

    def _said(self, plan: Plan | None) -> dict[str, Any] | None:
        if plan is None or plan.prediction is None:
            return None
        return {"step_s": plan.prediction.step_s, "ranks": plan.config.world_size, "moving": self.moved(plan).moving}

    def facts(self) -> dict[str, Any]:
        """All of it as plain data (format holmes-sim/replan/1)."""
        old = self.before.prediction
        return {
            "format": FORMAT,
            "lost": [place_text(place) for place in self.lost],
            "renumbered": {place_text(a): place_text(b) for a, b in self.left.renumbered.items()},
            "hosts": self.hosts,
            "ranks": {"all": self.moves.ranks, "staying": self.moves.staying, "moving": self.moves.moving},
            "weight_bytes_to_move": self.moves.nbytes,
            "step_s": {"before": old.step_s if old is not None else None, "after": self.promise.step_s},
            "searched": self._said(self.searched),
            "stayed": self._said(self.stayed),
            "notes": list(self.notes),
            "plan": planfile.facts(self.plan),
        }


def replan(
    plan: Plan,
    lost: str | Iterable[str],
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    stay: bool = False,
) -> Replanned:
    """Plan anew without a node or several (`ib/node3`, or the name of a host), by the strategy and the objective of the plan.

    With `stay` nobody moves, and nothing is searched. Raises PlanError for nodes that do not exist, Infeasible where what is
    left has no plan, with a cure."""
    texts = (lost,) if isinstance(lost, str) else lost
    places = tuple(dict.fromkeys(lost_nodes.parse_node(plan.fleet, text) for text in texts))
    left = lost_nodes.without(plan.topology, places)
    kept = staying.stayed(plan, left.topology, left.previous)
    if stay:
        if kept is None:
            raise Infeasible(
                f"not everybody can stay: what is left of {plan.topology.name} cannot play all stages; cured "
                f"by leaving out --stay"
            )
        return Replanned(plan, kept, places, left, moves.moves(plan, kept, left.previous), None, kept)
    request = Request(left.topology, plan.workload, wishes or Wishes(), time_limit)
    context = PlanningContext(request, progress)
    strategy = plan.made_by.strategy if plan.made_by.strategy in strategies.names() else api.DEFAULT
    objective = plan.certificate.objective if plan.certificate is not None else "step-time"
    found, _ = api.plan_for(objective, request, strategy, context)
    searched = moves.settled(plan, found, left.previous)
    if searched is not found:
        searched = simulation.simulate_plan(searched)
    is_free = request.wishes == Wishes() and objective == "step-time"
    takes_it = kept is not None and is_free and simulation.step(kept) <= (1 + EQUAL) * simulation.step(searched)
    taken = kept if kept is not None and takes_it else searched
    return Replanned(plan, taken, places, left, moves.moves(plan, taken, left.previous), searched, kept, context.interrupted)
