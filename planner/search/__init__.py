"""The search for the fastest plan, and the proof of how far it can be from the best.

Terms. A *shape* fixes all degrees but pp, the microbatch size, recomputation, schedule, vpp and ZeRO stage. A *base* is a shape
that stands for all schedules, vpp and ZeRO stages; a *variant* is one shape with fixed ones. A *pipeline* of a shape gives the
node class and the number of layers of each stage. A *node class* is the equal nodes of one cluster, with costs and memory of
stages. An *order* of classes is the order of their clusters along the pipeline. A *whole* stage is on one cluster; a *mixed*
stage has replicas on several. *Parameter gathers* of ZeRO 1 and 2 run before the forwards of the next step or after the
optimizer; the search tries both (`planner.space.shapes.overlaps`).

1. `first_plan` finds plans. It ranks shapes by a quick estimate, and simulates a draft of the best ones. `generation` lists
   promising pipelines of the best shapes; `evaluation` and `rough_estimate` give their step times on an idle network
   (`candidates`); `local_search` moves single layers, and on fleets of many classes `stage_search` whole stages (`restaging`),
   after which `latency` tries warm-ups that follow the borders between clusters; `pool` orders candidates by the step time
   expected with contention; `incumbent` simulates them. The prediction of a plan is the simulated step time. `mixed` adds plans
   with mixed stages, and `short_chunks` such with a degree of context parallelism that the proof leaves out.
2. `branch_and_bound` proves. It is a best-first branch and bound over families of shapes (`families`). The deadline test
   (`planner.bounds.deadline_test`) proves that no pipeline of a family beats the target, which is slightly below the step of
   the incumbent (the fastest plan so far). `exhaust` evaluates the pipelines that the test does not rule out, `single_stage`
   the pipelines of one stage. `dominance` skips pipelines under ZeRO 2 that fit memory under ZeRO 1. At last
   `simulated_bound` simulates the pipelines that hold the bound.
3. `improvement` searches for faster plans of variants with too many pipelines to evaluate; such variants keep their bounds.
4. `certificate` reports the least bound and the space that it holds for (`searched_space`): pipelines of whole stages, which
   fill one node after the other, on an idle network. A pipeline of one stage may also be spread evenly over its nodes. Plans
   with mixed stages have a separate bound (`planner.bounds.mixed_deadline`); `mixed_trials` and `mixed_exhaust` simulate the
   plans that hold it, and `mixed_proof` does all this beside the proof of whole stages, below the step of the first plan.
   On large fleets, `early_bounds` bounds all plans beside the search for that. Where simulations are to raise a bound,
   `unlike_beside` bounds plans with unlike degrees beside them.

`budgets` limits each step. `fitting` finds some plan that fits memory, for the search and for `planner.diagnosis`.
"""
