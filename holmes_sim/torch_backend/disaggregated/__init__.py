"""Executes plans with attention and experts on two sets of ranks (HeterMoE, Wu et al., arXiv 2504.03871).

Each rank runs the tasks of `sim.disaggregation.tasks` that its set has: compute in one thread, dispatches and combines in two
others, each in the simulator's order and after the tasks that it depends on."""
