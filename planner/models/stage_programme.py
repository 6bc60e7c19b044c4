"""The stage programme: a mixed-integer linear programme for the number of stages on each node class and their layers.

Nodes of one cluster are identical and form a class; the number of variables depends on classes and layers, never on devices.
One programme is solved for one shape (all degrees but pp) and one order of the classes along the pipeline:

Sets        c in classes, in pipeline order; k = 1 .. K[c] layers
Data        m microbatches; cycle[c,k], forward[c,k], backward[c,k], tail[c,k] seconds of a stage; message[c] seconds between
            stages; capacity[c] stages; held[c,k] microbatches whose activations fit beside k layers; tied[a,b] seconds of the
            all-reduce of the tied embedding's gradient between the first stage on a and the last on b
Variables   first[c,k], last[c,k] binary      the end stages (embedding and head make them costlier)
            border[c,k] binary                the middle stage that sends over the border to the next class
            n[c,k] integer                    number of other middle stages
            z[c,k] binary                     1 if one of these other middle stages of c has k layers or more
            step >= 0
Minimise    step
Subject to
  one_first, one_last     sum first = 1, sum last = 1
  layers                  sum k (first + n + border + last) = layers of the model
  capacity[c]             sum_k (first + n + border + last)[c,k] <= capacity[c]
  order_*[c]              no stage is in a class before the first stage's class or after the last stage's class
  border[c], ends_*[c]    if the pipeline continues after class c, the last stage of c is a border stage, unless the first stage
                          is the only one there
  chain[c,k]              z[c,k] >= z[c,k+1];   at_least[c,k]: sum_{j >= k} n[c,j] <= capacity[c] z[c,k]
  memory[c,k]             if z[c,k]: the number of middle stages of c with at least k layers and of all stages behind them
                          <= held[c,k] (1F1B holds one microbatch for each stage from here to the end; larger stages of a class
                          come later); likewise for the border stages and the first stage
  kept[i]                 if a person keeps stage i on class c: at most i stages are of classes before c, at least i + 1 of
                          these and c
  through[c]              if c has so many stages that one of its nodes has stages before and behind it: step >= m x seconds of
                          that node's messages, both ways
  step bounds             for the first stage, the largest middle stage and the border stage of each class and the last stage:
                          step >= forwards of the stages before + m cycle + its own tail, and, except for the first stage,
                          step >= forwards of the stages before + seconds to its last backward (`StageCost.last_backward`)
                          + backwards of the stages before + first's tail

Where the schedule splits the backward (zero bubble), the stages before wait for B only and every W may run after the last B:
"backwards" are then those of B, and the second form leaves the stage's Ws out. Memory counts activations that wait for B.

The optimum is no bound of the search, for two reasons. It holds only for pipelines whose classes are in this order and whose
middle stages grow along the pipeline within a class (larger stages later need less memory, and wait less for those behind
them). And message[c] is an estimate (`NodeClass.message`). So the search takes pipelines from the programme, and no bound.

Modules: `stage_variables` (sets, variables, terms), `pipeline_constraints` (what is a pipeline and fits in memory),
`step_constraints` (lower bounds on its step), `solver` (PuLP).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.models.pipeline_constraints import keep_stages, require_pipeline
from planner.models.stage_variables import StageVariables, stage_sizes
from planner.models.step_constraints import StepConstraints
from planner.time_limit import TimeLimit


@dataclass(frozen=True, slots=True)
class Assignment:
    """A solution of the stage programme.

    stages: (cluster, layers) in pipeline order; seconds: the step in the programme; bound: no solution has fewer seconds;
    proved: the solution is optimal; solver: name of the solver."""

    stages: tuple[tuple[str, int], ...]
    seconds: float
    bound: float
    proved: bool
    solver: str


def solve(
    context: PlanningContext,
    order: tuple[NodeClass, ...],
    pp: tuple[int, int | None],
    cutoff: float,
    nodes: int,
    limit: TimeLimit,
) -> Assignment | None:
    """The best assignment of layers to a pipeline of two or more stages in this order of classes, below `cutoff` seconds.

    pp: fewest and most stages, if limited; `nodes` and `limit` as in `Programme.solve`. None where no assignment exists. Raises
    NothingFound where the solver stopped before it found one."""
    sizes = stage_sizes(order, cutoff)
    if not all(any(sizes[role, i] for i in range(len(order))) for role in ("first", "last")):
        return None
    stages, kept = StageVariables(order, sizes, cutoff), context.request.limits.stages
    if any(stages.names.count(name) != 1 for _, name in kept):
        return None
    require_pipeline(stages, pp)
    keep_stages(stages, kept)
    StepConstraints(context, stages).add()
    solution = stages.programme.solve(nodes, limit)
    if solution is None:
        return None
    seconds, bound = solution.objective * stages.unit, solution.bound * stages.unit
    return Assignment(stages.solution(), seconds, bound, solution.proved, solution.solver)
