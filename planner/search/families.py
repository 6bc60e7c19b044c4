"""Families of shapes that the proof branches on, from a base to its variants.

A base is a shape that stands for all schedules, vpp and ZeRO stages. It branches into shapes with a schedule and vpp, each of
which stands for all ZeRO stages; these branch into variants. At each branching, one deadline test for a group of children
prunes all of them or some orders of classes: `AnySchedule` for those without virtual stages, `AnyChunks` for those of one
schedule with several vpp, `AnyZeroStage` for all variants.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from planner.bounds.orders import Orders, orders_within
from planner.bounds.shape_families import AnyChunks, AnySchedule, AnyZeroStage
from planner.costs.node_classes import leanest, node_classes
from planner.effort import Level
from planner.search.incumbent import Incumbent
from planner.search.single_stage import may_beat_cutoff
from planner.space import runnable
from planner.space.shape import Shape, split_backward
from planner.space.shapes import variants, zero_stages
from sim.field_changes import changed


@dataclass(frozen=True, slots=True)
class Family:
    """An open node of the proof: a `base`, a `schedule` of it, or a `variant`.

    It stands for its pipelines of one stage, and for longer ones in `orders`: the orders of classes that are not ruled out."""

    kind: Level
    orders: Orders = None


@dataclass(frozen=True, slots=True)
class Branching:
    """Branches families and prunes those that cannot beat the target; the bounds of pruned ones are appended to `settled`."""

    incumbent: Incumbent
    settled: list[float]

    def schedules(self, base: Shape) -> Iterator[tuple[Shape, Orders]]:
        """(shape, orders of classes that are left): a base under each schedule and vpp that is not pruned.

        Its first ZeRO stage stands for all ZeRO stages."""
        every = tuple(variants(self.incumbent.request, base))
        first = [variant for variant in every if variant.zero_stage == every[0].zero_stage]
        unchunked = [variant for variant in first if variant.vpp == 1]
        chunked = [variant for variant in first if variant.vpp > 1]
        if len(unchunked) > 1:
            test = functools.partial(AnySchedule, names=tuple(variant.schedule for variant in unchunked))
            yield from self._members("schedule", unchunked, split_backward(base), every, test)
        else:
            yield from ((shape, None) for shape in unchunked)
        for name in dict.fromkeys(variant.schedule for variant in chunked):
            members = sorted((variant for variant in chunked if variant.schedule == name), key=lambda one: one.vpp)
            if len(members) > 1:
                yield from self._chunked(members, every)
            else:
                yield from ((shape, None) for shape in members)

    def _chunked(self, members: Sequence[Shape], every: Sequence[Shape]) -> list[tuple[Shape, Orders]]:
        """`_members` of shapes that differ only in vpp, the least vpp first.

        A test for some vpp holds for all larger ones, and is the tighter the larger it is: the least vpp from which on all are
        ruled out is sought by bisection."""
        found = list(self._members("schedule", members, members[0], every, AnyChunks))
        left, pruned = 0, len(found)  # the first is not ruled out together with all behind it; those from `pruned` on are
        while pruned - left > 1:
            middle = (left + pruned) // 2
            some = members[middle:pruned]
            if any(True for _ in self._members("schedule", some, some[0], every, AnyChunks)):
                left = middle
            else:
                pruned = middle
        return found[:pruned]

    def zero_stages(self, shape: Shape, among: Orders) -> Iterator[tuple[Shape, Orders]]:
        """A shape under a schedule with each ZeRO stage, unless all are pruned; `among` are the orders that are left."""
        request = self.incumbent.request
        found = (changed(shape, zero_stage=stage) for stage in zero_stages(request, shape))
        every = tuple(variant for variant in found if not runnable.fault(request, variant))
        if len(every) > 1:
            yield from self._members("variant", every, shape, every, AnyZeroStage, among)
        else:
            yield from ((variant, among) for variant in every)

    def _members(
        self,
        level: Level,
        members: Sequence[Shape],
        shape: Shape,
        every: Sequence[Shape],
        test: Callable[..., AnyZeroStage],
        among: Orders = None,
    ) -> Iterator[tuple[Shape, Orders]]:
        """The members of a family, each with the orders of classes that `test` leaves; nothing where it prunes the family.

        The test is made for `shape`, with the least memory under any ZeRO stage in `every`."""
        incumbent = self.incumbent
        classes = node_classes(incumbent.context, shape)
        holders = leanest(incumbent.context, shape, [variant.zero_stage for variant in every])
        orders = orders_within(test, incumbent.context, classes, holders, incumbent.target, among)
        if orders == frozenset() and not may_beat_cutoff(incumbent, shape):
            self.settled.append(incumbent.target)
            incumbent.context.effort.layouts[level, "deadline test"] += len(members)
        else:
            yield from ((member, orders) for member in members)
