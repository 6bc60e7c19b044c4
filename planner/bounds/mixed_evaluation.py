"""Least step of plans of a placement with mixed stages whose layers are given, by the recurrence of `sim.analytic.recurrence`.

All replicas have equally many microbatches. Of each group of replicas that are placed alike (`planner.bounds.mixed_groups`),
those whose messages take the longest ways are evaluated, each by itself: a step is at least that of its slowest replica. A
lower bound: replicas wait for no other one, messages share links only where they certainly do, and gradients slow compute only
where all replicas keep step. Else a gradient may be summed later than the recurrence takes it to be, and slow nothing any more.

A link that the collectives of several stages load (`planner.costs.mixed_rings`) carries all their reductions after the first of
them begins. It carries all their gathers before the first forward of the last of these stages, q, ends: the gathers that end
last are those of q, behind whose end follow the forward of its last bucket, or those of a stage before q, whose forwards q
waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.mixed_groups import sent
from planner.costs.gradient_loads import busy_until
from planner.costs.mixed_rings import Load
from planner.costs.stage_positions import alike_replicas
from planner.space.device_slots import Run, replica_groups
from planner.space.shape import Shape
from sim.analytic.candidates import PIPELINE_RANK, UNTIED, Floats
from sim.analytic.evaluator import Ints, Table
from sim.analytic.recurrence import steps_and_reductions
from sim.analytic.stage_costs import StageCosts
from sim.units import Seconds

SLOWS = [PIPELINE_RANK.index(name) for name in ("gather_slows", "reduce_slows")]
GATHERED = PIPELINE_RANK.index("gathered")
REPLICAS = 64
"""Replicas of a group whose messages are looked at (a guess): those that are left out are no slower than the bound takes them
to be. More take longer."""


class Messages(NamedTuple):
    """Seconds of the messages of a replica: from each stage to the next, from each to the previous one, and of the sum of a
    tied embedding's gradient."""

    ahead: tuple[Seconds, ...]
    back: tuple[Seconds, ...]
    tied: Seconds

    def covers(self, other: Messages) -> bool:
        """Whether no message takes less than that of another replica."""
        mine, its = ((*one.ahead, *one.back, one.tied) for one in (self, other))
        return all(a >= b for a, b in zip(mine, its, strict=True))


def least_steps(stages: PlacedStages, shape: Shape, splits: Sequence[tuple[int, ...]], below: Seconds = np.inf) -> Floats:
    """Lower bounds in seconds of the steps of a shape with each split of the layers, shape (splits,).

    splits: layers of each stage. Bounds of `below` or more may be lower than they could be. Raises NotModelled where the
    recurrence does not model the shape."""
    layers, links, first = np.array(splits), stages.costs.rings.loads(shape, stages.placed).links, 0
    found, starts, gathered = np.zeros(len(layers)), np.zeros(layers.T.shape), _gathered(links, layers)
    for runs in replica_groups(stages.placed, shape.cp):
        table = _Group(stages, shape, runs, tuple(range(first, first := first + runs[0].count)))
        for messages in table.messages():
            left = np.flatnonzero(found < below)
            if not len(left):
                return found
            ends, reductions = table.evaluated(messages, layers[left], gathered[:, left])
            found[left], starts[:, left] = np.maximum(found[left], ends), np.maximum(starts[:, left], reductions)
    for link in links:
        which = [load.stage for load in link]
        behind = [one.fixed - one.gather_fixed + (one.each - one.gather_each) * layers[:, one.stage] for one in link]
        found = np.maximum(found, busy_until(starts[which], np.array(behind)))
    return found


def _gathered(links: Sequence[tuple[Load, ...]], layers: Ints) -> Floats:
    """For each stage, seconds before the end of whose first forward the links end their gathers, shape (stages, splits)."""
    found = np.zeros(layers.T.shape)
    for link in links:
        together = sum(one.gather_fixed + one.gather_each * layers[:, one.stage] for one in link)
        found[link[-1].stage] = np.maximum(found[link[-1].stage], together)
    return found


class _Group:
    """A group of replicas, those of some rows of a stage's gradient groups."""

    def __init__(self, stages: PlacedStages, shape: Shape, runs: tuple[Run, ...], rows: tuple[int, ...]):
        self.stages, self.shape, self.runs = stages, shape, runs
        self.in_step = alike_replicas(runs, shape.tp)
        self.is_whole = self.in_step == len(rows) == len(stages.placed[0])
        costs, config = stages.costs, stages.costs.config(shape, len(runs))
        self.table = [
            StageCosts(costs.workload, config, costs.collectives(shape, stage).among(rows)) for stage in stages.placed
        ]

    def messages(self) -> list[Messages]:
        """Those of replicas, but for those that others cover."""
        found = list[Messages]()
        for one in self._of_each():
            if not any(other.covers(one) for other in found):
                found = [other for other in found if not one.covers(other)] + [one]
        return found

    def _of_each(self) -> Iterator[Messages]:
        costs, shape, tp = self.stages.costs, self.shape, self.shape.tp
        together = costs.reduce_together(shape, (self.stages.placed[0], self.stages.placed[-1]))
        first = 0
        while first < min(self.runs[0].count, REPLICAS * shape.cp):
            runs = [Run(run.cluster, run.first + first, run.count - first) for run in self.runs]
            many = alike_replicas(runs, tp)
            ahead, back = zip(*sent(costs, shape, tuple(runs), many if self.stages.waits else 1), strict=True)
            tied = costs.peers.tied(shape, runs, costs.peers.nic(runs, tp), together, many if first else None)
            yield Messages(ahead, back, tied if len(runs) > 1 else 0.0)
            first += max(many - many % shape.cp, shape.cp)

    def evaluated(self, messages: Messages, layers: Ints, gathered: Floats) -> tuple[Floats, Floats]:
        """Lower bounds of a replica with such messages: of its steps, and of the starts of its reductions, (stages, splits).

        layers: (splits, stages); gathered: as `_gathered`."""
        pp = len(self.runs)
        border = np.diag(messages.ahead[:-1], 1) + np.diag(messages.back[1:], -1)
        specs = [(run.cluster.node.device,) for run in self.runs]
        every = Table(self.table, border, np.full((pp, pp), messages.tied or UNTIED), specs=specs)
        candidates = every.candidates(np.tile(np.arange(pp), (len(layers), 1)), layers)
        candidates = replace(candidates, pp_ranks=candidates.pp_ranks.copy())
        candidates.pp_ranks[GATHERED] = gathered
        if not self.is_whole:
            candidates.pp_ranks[SLOWS] = 0.0
        return steps_and_reductions(candidates)
