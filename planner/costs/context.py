"""The planning context: the caches that all shapes and strategies of one request share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.costs.cluster_costs import ClusterCosts
from planner.costs.fleet_views import FleetViews
from planner.costs.gradient_loads import GradientLoads
from planner.costs.message_costs import MessageCosts
from planner.costs.message_loads import MessageLoads
from planner.costs.tied_embedding import TiedEmbeddingCosts
from planner.effort import Effort
from planner.placement.simulation import FastestTimeline
from planner.progress import Progress
from planner.request import Request
from planner.space.shape import Shape
from planner.time_limit import SOON, TimeLimit
from sim.analytic.evaluator import StageRows
from sim.errors import HolmesError, Infeasible
from sim.kernels.memory import Activations
from sim.plan.plan import Plan
from sim.units import Seconds


class PlanningContext:
    """Costs, plans of strategies and progress of one request, shared by its strategies.

    `progress` receives status lines, `watch` the states of the certified search. `start` is a plan of the request's topology
    and workload that meets its pins, or is an answer to the same question, as that of another stand-in. The certified search
    begins with it, so that its result is not slower. A `punctual` search does nothing after the time limit that only improves
    the plan or its bound. `beside`: quick strategies whose plans are wanted as well; the certified search asks them early, so
    that they too are planned within the time limit."""

    def __init__(
        self,
        request: Request,
        progress: Callable[[str], None] = lambda text: None,
        start: Plan | None = None,
        punctual: bool = False,
        watch: Callable[[Progress], None] = lambda state: None,
        beside: tuple[str, ...] = (),
    ):
        self.request, self.progress, self.start, self.punctual = request, progress, start, punctual
        self.watch, self.beside = watch, beside
        self.limit = TimeLimit(request.time_limit)
        self.interrupted = False
        self.simulated: list[Plan] = []  # by the certified strategy, to the end of the step
        self.proves = True  # whether the certified search goes on after its first plan, for a bound and faster plans
        # seconds of the time limit that the proof leaves for searches that follow it, by the first plan
        self.spared: Callable[[Plan], Seconds] = lambda plan: 0.0
        self.every_step = False  # whether slower plans are simulated to the end, too, for objectives other than the step time
        self.restarts = True  # whether the local search over stages begins again (`Budgets.restaged_again`)
        self.timelines = FastestTimeline()
        self.stand_ins: dict[int, PlanningContext] = {}  # of requests with equal layers (`planner.space.stand_in`)
        self.effort = Effort()
        self._answers: dict[str, Plan | HolmesError] = {}
        self.fleets = FleetViews(request.topology.fleet, request.target)
        self.cluster_costs = ClusterCosts(request.workload, self.fleets)
        self.messages = MessageCosts(request, self.fleets)
        self.loads = MessageLoads(request.workload, self.fleets, self.cluster_costs)
        self.gradients = GradientLoads(request.workload, self.fleets)
        self.tied = TiedEmbeddingCosts(request.workload, self.fleets, self.cluster_costs)
        self.options: dict[Shape, list[Any]] = {}  # cache of planner.costs.node_classes: the latest shapes
        self.mixed: Any = None  # cache of planner.costs.mixed_stages: the costs of mixed stages
        self.shared_hosts: Any = None  # cache of planner.placement.shared_hosts: what the target takes on hosts
        self.stage_rows: StageRows = {}  # cache of the evaluator, shared by all orders of the classes of a shape
        # caches of planner.costs.node_classes, shared by shapes: seconds and bytes of stages of 1 and 2 layers, by role
        self.passes: dict[tuple[str, Shape, bool, str], tuple[tuple[float, float], tuple[float, float]]] = {}
        self.bytes: dict[tuple[object, ...], tuple[tuple[float, float], ...]] = {}
        self.held_bytes: dict[tuple[object, ...], tuple[float, ...]] = {}
        self.activations: dict[tuple[object, ...], tuple[Activations, ...]] = {}

    def of(self, request: Request) -> PlanningContext:
        """A context of another request, which knows the costs that are known here, if it has the same topology, workload and
        machines.

        Costs of messages depend on the target, too, and node classes on the pins."""
        other, own = PlanningContext(request), self.request
        if (request.topology, request.workload, request.machines) != (own.topology, own.workload, own.machines):
            return other
        names = ["cluster_costs", "gradients", "tied", "stage_rows", "passes", "bytes", "held_bytes", "activations"]
        if request.target == own.target:
            names += ["fleets", "messages", "loads"]
            if (request.wishes, request.limits) == (own.wishes, own.limits):
                names += ["options", "mixed", "shared_hosts"]
        for name in names:
            setattr(other, name, getattr(self, name))
        return other

    def __copy__(self) -> PlanningContext:
        """A context that shares all costs and the time limit with this one; without it, copies are made by `__reduce__`."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> tuple[type[PlanningContext], tuple[Request]]:
        """What another process is sent that does not have this one's memory: the request alone."""
        return PlanningContext, (self.request,)

    def report(self, state: Progress) -> None:
        """Report the state of the search as a status line and to `watch`."""
        self.progress(str(state))
        self.watch(state)

    def answers(self, strategy: str) -> bool:
        """Whether the plan of a strategy, or the reason why there is none, is known."""
        return strategy in self._answers

    def learn(self, strategy: str, answer: Plan | Infeasible) -> None:
        """Remember the answer of a strategy that another process asked."""
        self._answers[strategy] = answer

    def quick_limit(self) -> TimeLimit:
        """The time limit of a quick strategy: the seconds left, and at least `SOON` unless it is planned beside another."""
        return self.limit.at_least(0.0 if self.beside else SOON)

    def answer(self, strategy: str, compute: Callable[[], Plan]) -> Plan:
        """The plan of a strategy, cached. `compute` computes it; an Infeasible that it raises is cached, too, and raised
        again."""
        if strategy not in self._answers:
            self.progress(f"strategy {strategy}")
            try:
                self._answers[strategy] = compute()
            except Infeasible as error:
                self._answers[strategy] = error
        found = self._answers[strategy]
        if isinstance(found, HolmesError):
            raise found
        return found
