"""The stage model: a mixed-integer programme for how many stages run on each node class, and of how many layers.

Nodes of one cluster are identical and form a class; the number of variables depends on classes and layers, never on devices.
One programme is solved for one shape (all degrees but pp) and one order of the classes along the pipeline:

Sets        c in classes, in pipeline order; k = 1 .. K[c] layers
Data        m microbatches; slot[c,k], forward[c,k], backward[c,k], tail[c,k] seconds of a stage; message[c] seconds between
            stages; capacity[c] stages; held[c,k] microbatches whose activations fit beside k layers; tied[a,b] seconds of the
            tied embedding's sum between end stages on a and b
Variables   first[c,k], last[c,k] binary      the end stages (embedding and head make them costlier)
            border[c,k] binary                the stage that sends over the border to the next class
            n[c,k] integer                    other middle stages
            z[c,k] binary, falling in k       some middle stage of c has at least k layers
            step >= 0
Minimise    step
Subject to
  one_first, one_last     sum first = 1, sum last = 1
  layers                  sum k (first + n + border + last) = layers of the model
  capacity[c]             sum_k (first + n + border + last)[c,k] <= capacity[c]
  order_*[c]              no stage is in a class before that of the first stage, or behind that of the last
  border[c], ends_*[c]    a class ends in its border stage where the pipeline goes on, unless the first stage is alone there
  chain[c,k]              z[c,k] >= z[c,k+1];   at_least[c,k]: sum_{j >= k} n[c,j] <= capacity[c] z[c,k]
  memory[c,k]             stages of c with at least k layers, all stages behind c and the last one <= held[c,k], where z[c,k]
                          (1F1B holds one microbatch for each stage from here to the end; larger stages are further back)
  through[c]              step >= m x the messages, both ways, of a node with stages before and behind, if c has enough stages
  step bounds             for the first stage, the largest middle stage of each class and the last stage: forwards of the
                          stages before + m slot + its own tail, and + m slot + backwards of the stages before + first's tail

Where the schedule splits the backward (zero bubble), the stages before wait for B only and every W may run after the last B:
"backwards" are then those of B, and the second form leaves the stage's Ws out. Memory counts activations that wait for B.

Each step bound holds for every 1F1B pipeline, so the optimum is a lower bound on the step time, on an idle network, of all
plans of this shape whose classes are in this order and whose middle stages grow along the pipeline within a class (larger
stages further back need less memory, and wait less for those behind them). Other orders are not searched, so `certified` takes
plans from the model and no bound.

Modules: `stage_variables` (sets, variables, terms), `pipeline_constraints` (what is a pipeline and fits in memory),
`step_constraints` (how long its step is at least), `milp` (the solver).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.models.pipeline_constraints import require_pipeline
from planner.models.stage_variables import StageVariables, stage_sizes
from planner.models.step_constraints import StepConstraints


@dataclass(frozen=True, slots=True)
class Assignment:
    """A solution of the stage programme.

    stages: (cluster, layers) in pipeline order; seconds: the step in the model; bound: what no solution is below; proved: the
    solution is optimal; solver: its name."""

    stages: tuple[tuple[str, int], ...]
    seconds: float
    bound: float
    proved: bool
    solver: str


def solve(
    context: PlanningContext, order: tuple[NodeClass, ...], pp: int | None, cutoff: float, time_limit: float
) -> Assignment | None:
    """The best assignment of layers to a pipeline of two or more stages in this order of classes, below `cutoff` seconds.

    pp: number of stages, if pinned. None where there is none. Raises TimeoutError where `time_limit` seconds found none."""
    sizes = stage_sizes(order, cutoff)
    if not all(any(sizes[role, i] for i in range(len(order))) for role in ("first", "last")):
        return None
    stages = StageVariables(order, sizes, cutoff)
    require_pipeline(stages, pp)
    StepConstraints(context, stages).add()
    solution = stages.programme.solve(time_limit)
    if solution is None:
        return None
    seconds, bound = solution.objective * stages.unit, solution.bound * stages.unit
    return Assignment(stages.solution(), seconds, bound, solution.proved, solution.solver)
