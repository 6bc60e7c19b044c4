"""Rules out plans by quick simulations (`planner.placement.alike_plans`), thousands where the engine simulates dozens.

The engine's step of a plan that is not ruled out is still to be simulated: it may be faster, or not modelled here."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.placement.alike_plans import AlikePlans
from planner.search.evaluation import Stages
from planner.search.incumbent import Incumbent
from planner.space.shape import Shape
from planner.space.shapes import uneven
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan.parallel_config import BLOCK
from sim.plan.plan import Plan
from sim.units import Seconds


class Kind(NamedTuple):
    """Plans that differ only in the layers of their stages: a name of the kind, what makes such a plan, forwards of a replica
    in a step, and whether stages recompute layers as memory requires."""

    name: Hashable
    build: Callable[[tuple[int, ...]], Plan]
    forwards: int
    chooses: bool


@dataclass(slots=True)
class QuickTrials:
    """Quick simulations for an incumbent, up to `Budgets.quick_work` or what `allow` allows. `work` is what they have done of
    it, `plans` the number of those that were simulated."""

    incumbent: Incumbent
    work: int = 0
    plans: int = 0
    _allowed: int = 0
    _fails: bool = False
    _alike: dict[Hashable, AlikePlans] = field(default_factory=dict)

    @property
    def is_useful(self) -> bool:
        """Whether there is work left, and all plans were modelled so far."""
        return self.work < self._most and not self._fails

    @property
    def _most(self) -> int:
        """The work that is allowed."""
        return max(self._allowed, self.incumbent.budgets.quick_work)

    def allow(self, plans: float) -> None:
        """Allow the work of so many more plans, where that is at most `Budgets.closing_work` in all by the work of those so
        far."""
        if self.work + plans * self.work / max(self.plans, 1) <= self.incumbent.budgets.closing_work:
            self._allowed = self.incumbent.budgets.closing_work

    def rules_out(self, shape: Shape, stages: Stages) -> bool:
        """Whether all plans of a pipeline, on nodes that it fills one after the other or evenly, are proved to take longer than
        the best plan. It is then among `Incumbent.seen`."""
        request, built, names = self.incumbent.request, self.incumbent.built.build, tuple(name for name, _ in stages)
        clusters = ((request.topology.fleet.cluster(name), names.count(name)) for name in dict.fromkeys(names))
        several = any(uneven(cluster, shape, count) for cluster, count in clusters)

        def made(evenly: bool) -> Callable[[tuple[int, ...]], Plan]:
            return lambda layers: built(request, shape, tuple(zip(names, layers, strict=True)), evenly)

        layers, chooses = tuple(count for _, count in stages), shape.recompute == BLOCK
        forwards = shape.microbatches(request.workload) * len(stages) * shape.vpp
        kinds = [Kind((shape, names, evenly), made(evenly), forwards, chooses) for evenly in (False, True)[: 1 + several]]
        found = all(self.is_slower(kind, layers, self.incumbent.cutoff) for kind in kinds)
        if found:
            self.incumbent.seen.add((shape, stages))
        return found

    def is_slower(self, kind: Kind, layers: tuple[int, ...], seconds: Seconds) -> bool:
        """Whether the plan of a kind with some layers on each stage is proved to take longer than so many seconds. Long
        ones are left to the engine, which extrapolates a steady state (`Budgets.forwards_of_a_try`)."""
        budgets = self.incumbent.budgets
        if kind.forwards > budgets.forwards_of_a_try:
            self._fails = True
        if self.work >= self._most or kind.forwards > budgets.forwards_of_a_try:
            return False
        alike = self._alike.setdefault(kind.name, AlikePlans(kind.build, kind.chooses))
        before = alike.work
        try:
            return alike.seconds(layers, seconds) > seconds
        except (NoRoute, NotDefined):  # there is no such plan
            return False
        except NotModelled:
            self._fails = True
            return False
        finally:
            self.work += alike.work - before
            self.plans += 1
