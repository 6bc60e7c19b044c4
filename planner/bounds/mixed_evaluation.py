"""Least step of plans of a placement with mixed stages whose layers are given, by the recurrence of `sim.analytic.recurrence`.

All replicas have equally many microbatches. Each group of replicas that are placed alike is evaluated by itself, with the
messages of its first replica (`planner.bounds.mixed_groups`): a step is at least that of its slowest replica. A lower bound:
replicas wait for no other group, messages share links only where they certainly do, and gradients slow compute only where all
replicas keep step. Else a gradient may be summed later than the recurrence takes it to be, and slow nothing any more. A link
that the reductions of several stages load (`planner.costs.mixed_rings`) carries them all after the first of them begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.mixed_groups import sent
from planner.costs.gradient_loads import busy_until
from planner.costs.stage_positions import alike_replicas
from planner.space.device_slots import Run, replica_groups
from planner.space.shape import Shape
from sim.analytic.candidates import PIPELINE_RANK, UNTIED, Floats
from sim.analytic.evaluator import Ints, Table
from sim.analytic.recurrence import steps_and_reductions
from sim.analytic.stage_costs import StageCosts

SLOWS = [PIPELINE_RANK.index(name) for name in ("gather_slows", "reduce_slows")]


def least_steps(stages: PlacedStages, shape: Shape, splits: Sequence[tuple[int, ...]]) -> Floats:
    """Lower bounds in seconds of the steps of a shape with each split of the layers, shape (splits,).

    splits: layers of each stage. Raises NotModelled where the recurrence does not model the shape."""
    layers, first = np.array(splits), 0
    found, starts = np.zeros(len(layers)), np.zeros((len(stages.placed), len(layers)))
    for runs in replica_groups(stages.placed, shape.cp):
        rows = tuple(range(first, first := first + runs[0].count))
        ends, reductions = _of_group(stages, shape, runs, rows, layers)
        found, starts = np.maximum(found, ends), np.maximum(starts, reductions)
    for link in stages.costs.rings.loads(shape, stages.placed).links:
        which = [load.stage for load in link]
        behind = [one.fixed - one.gather_fixed + (one.each - one.gather_each) * layers[:, one.stage] for one in link]
        found = np.maximum(found, busy_until(starts[which], np.array(behind)))
    return found


def _of_group(
    stages: PlacedStages, shape: Shape, runs: tuple[Run, ...], rows: tuple[int, ...], layers: Ints
) -> tuple[Floats, Floats]:
    """Lower bounds of a group of replicas: of their steps, and of the starts of their reductions, (stages, splits).

    rows: their indices among all rows of a stage's gradient groups; layers: (splits, stages)."""
    costs, pp = stages.costs, len(runs)
    config, in_step = costs.config(shape, pp), alike_replicas(runs, shape.tp)
    together = costs.reduce_together(shape, (stages.placed[0], stages.placed[-1]))
    table, messages = list[StageCosts](), np.zeros((pp, pp))
    for stage, (ahead, back) in enumerate(sent(costs, shape, runs, in_step if stages.waits else 1)):
        table.append(StageCosts(costs.workload, config, costs.collectives(shape, stages.placed[stage]).among(rows)))
        if stage + 1 < pp:
            messages[stage, stage + 1] = ahead
        if stage:
            messages[stage, stage - 1] = back
    tied = costs.peers.tied(shape, runs, costs.peers.nic(runs, shape.tp), together) if pp > 1 else 0.0
    specs = [(run.cluster.node.device,) for run in runs]
    every = Table(table, messages, np.full((pp, pp), tied or UNTIED), specs=specs)
    candidates = every.candidates(np.tile(np.arange(pp), (len(layers), 1)), layers)
    if in_step < len(rows) or len(rows) < len(stages.placed[0]):
        candidates = replace(candidates, pp_ranks=candidates.pp_ranks.copy())
        candidates.pp_ranks[SLOWS] = 0.0
    return steps_and_reductions(candidates)
