"""How plans are found and how far they can be from the best.

A *shape* is a plan without its pipeline: tp, dp, cp, ep, microbatch size, recomputation, schedule, vpp, ZeRO stage. A
*pipeline* of a shape says on which node class each stage is and how many layers it has; a node class is the nodes of one
cluster, with what their stages cost and hold for the shape. A *base* leaves schedule, vpp and ZeRO stage open, a *variant*
fixes them; both are kept as a shape. The search, in the order of its steps:

1. `first_plan`: shapes are ranked by a quick estimate; `generation` lists promising pipelines of the best ones, `evaluation`
and `rough_estimate` give their step times on an idle network (`candidates`), `local_search` moves single layers, `pool` orders
them by the step time expected with contention, and `incumbent` simulates them: the engine's number is what the plan promises.
`mixed` adds plans in which the replicas of one stage are on several clusters. 2. `branch_and_bound`: best-first branch and
bound over families of shapes (`families`). The deadline test (`planner.bounds.deadline_test`) proves that no pipeline of a
family can beat the target, slightly below the incumbent's step; `exhaust` evaluates the pipelines that it leaves,
`single_stage` pipelines of one stage; `dominance` leaves out ZeRO 2 where ZeRO 1 fits. 3. `improvement`: variants whose
pipelines are too many to evaluate keep their bound, and are searched for faster plans. 4. `certificate`: the least bound,
beside the space that it holds for (`searched_space`): pipelines of whole stages, each on one cluster, on an idle network, that
fill one node after the other. A pipeline of one stage may use its nodes evenly, too. Plans with mixed stages have a bound of
their own (`planner.bounds.mixed_deadline`).

`budgets` limits each step. `fitting` finds some plan that fits memory, and is used by `planner.diagnosis`, too. The
room imports `planner.bounds`, `planner.models`, `planner.costs`, `planner.placement` and `planner.space`; `planner.strategies`
and `planner.diagnosis` use it.
"""
