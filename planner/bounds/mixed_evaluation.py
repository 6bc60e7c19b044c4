"""Least step of plans of a placement with mixed stages whose layers are given, by the recurrence of `sim.analytic.recurrence`.

Where all replicas have equally many microbatches, of each group of replicas that are placed alike
(`planner.bounds.mixed_groups`), those whose messages take the longest ways are evaluated, each by itself: a step is at least
that of its slowest replica. A lower bound: replicas wait for no other one, messages share links only where they certainly do,
and gradients slow compute only where all replicas keep step. Else a gradient may be summed later than the recurrence takes it
to be, and slow nothing any more.

Where replicas may have numbers of their own, a group is evaluated with each number, with the shortest message of any of its
replicas between each two stages, which share links with no other ones. Within T seconds, its replicas process as many
microbatches as take no longer; all replicas together must process all of them, and each at least one.

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
from planner.bounds.mixed_groups import joint, sent
from planner.costs.gradient_loads import busy_until
from planner.costs.mixed_rings import Load
from planner.costs.stage_positions import alike_replicas
from planner.space.device_slots import Run, replica_groups
from planner.space.shape import Shape
from sim.analytic.candidates import PIPELINE_RANK, STAGE, UNTIED, Floats
from sim.analytic.evaluator import Ints, Table
from sim.analytic.recurrence import steps_and_reductions
from sim.analytic.stage_costs import StageCosts
from sim.plan import schedules
from sim.units import Seconds

SLOWS = [PIPELINE_RANK.index(name) for name in ("gather_slows", "reduce_slows")]
GATHERED, JOINT = PIPELINE_RANK.index("gathered"), STAGE.index("joint")
REPLICAS = 64
"""Replicas of a group whose messages are looked at (a guess): those that are left out are no slower than the bound takes them
to be. More take longer."""


class Messages(NamedTuple):
    """Seconds of the messages of a replica: from each stage to the next, from each to the previous one, and of the sum of a
    tied embedding's gradient; `joint`: as in `sim.analytic.candidates`."""

    ahead: tuple[Seconds, ...]
    back: tuple[Seconds, ...]
    tied: Seconds
    joint: tuple[Seconds, ...]

    def covers(self, other: Messages) -> bool:
        """Whether no message takes less than that of another replica."""
        mine, its = ((*one.ahead, *one.back, one.tied, *one.joint) for one in (self, other))
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


def least_steps_of_own(
    stages: PlacedStages, shape: Shape, splits: Sequence[tuple[int, ...]], most: int, below: Seconds
) -> Floats:  # fmt: skip
    """`least_steps` where replicas may have numbers of microbatches of their own; `below` where a step takes as long or longer.

    most: microbatches of a replica up to which they are told apart."""
    layers, links, first = np.array(splits), stages.costs.rings.loads(shape, stages.placed).links, 0
    gathered, every = _gathered(links, layers), list[tuple[int, list[Floats]]]()
    for runs in replica_groups(stages.placed, shape.cp):
        group = _Group(stages, shape, runs, tuple(range(first, first := first + runs[0].count)))
        every.append((runs[0].count // shape.cp, list(group.of_numbers(layers, gathered, most, below))))
    each = ([(many, [ends[split] for ends in numbers]) for many, numbers in every] for split in range(len(layers)))
    return np.array([_all_processed(groups, stages.total, most, below) for groups in each])


def _all_processed(groups: Sequence[tuple[int, Sequence[Seconds]]], total: int, most: int, below: Seconds) -> Seconds:
    """Least seconds in which the replicas of all groups process all microbatches, or `below`; groups: replicas, and seconds of
    one with one microbatch, with two and so on. One that has time for `most` may have time for all."""
    for seconds in sorted({one for _, ends in groups for one in ends if one < below}):
        numbers = [max((number for number, one in enumerate(ends, 1) if one <= seconds), default=0) for _, ends in groups]
        done = sum(many * (number if number < most else total) for (many, _), number in zip(groups, numbers, strict=True))
        if done >= total and all(numbers):
            return seconds
    return below


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

    def _of_each(self, alone: bool = False) -> Iterator[Messages]:
        """The messages of each replica, of those that keep step once. alone: beside no other messages."""
        costs, shape, tp = self.stages.costs, self.shape, self.shape.tp
        together = costs.reduce_together(shape, (self.stages.placed[0], self.stages.placed[-1]))
        first = 0
        while first < min(self.runs[0].count, REPLICAS * shape.cp):
            runs = [Run(run.cluster, run.first + first, run.count - first) for run in self.runs]
            many = alike_replicas(runs, tp)
            ahead, back = zip(*sent(costs, shape, tuple(runs), many if self.stages.waits and not alone else 1), strict=True)
            loading = 1 if alone else many if first else None
            tied = costs.peers.tied(shape, runs, costs.peers.nic(runs, tp), together, loading)
            receives_first = schedules.get(shape.schedule).RECEIVES_FIRST
            both = joint(costs, shape, tuple(runs), 1 if alone else many) if receives_first else [0.0] * len(runs)
            yield Messages(ahead, back, tied if len(runs) > 1 else 0.0, tuple(both))
            first += max(many - many % shape.cp, shape.cp)

    def of_numbers(self, layers: Ints, gathered: Floats, most: int, below: Seconds) -> Iterator[Floats]:
        """Lower bounds of the step of a replica with one microbatch, with two and so on, up to `most` or to a number with which
        none takes less than `below`."""
        self.is_whole, table = False, self.table
        messages = self._shortest()
        for number in range(1, most + 1):
            numbers = (number,) * self.shape.dp
            self.table = [
                StageCosts(one.workload, replace(one.config, num_microbatches=numbers), one.collectives) for one in table
            ]
            ends, _ = self.evaluated(messages, layers, gathered)
            yield ends
            if np.all(ends >= below):
                return

    def _shortest(self) -> Messages:
        """The shortest messages between each two stages of any replica, each by itself; none where replicas are many."""
        every = list(self._of_each(alone=True)) if self.runs[0].count <= REPLICAS * self.shape.cp else []
        if not every:
            nothing = (0.0,) * len(self.runs)
            return Messages(nothing, nothing, 0.0, nothing)
        ahead, back, both = (
            tuple(map(min, zip(*ways, strict=True)))
            for ways in zip(*((one.ahead, one.back, one.joint) for one in every), strict=True)
        )
        return Messages(ahead, back, min(one.tied for one in every), both)

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
        candidates.stages[JOINT] = np.array(messages.joint)[:, None]
        if not self.is_whole:
            candidates.pp_ranks[SLOWS] = 0.0
        return steps_and_reductions(candidates)
