"""Constraints of the stage programme (`planner.models.stage_programme`): a pipeline that fits in memory."""

from __future__ import annotations

from collections.abc import Iterable

from planner.models.solver import Variable, total
from planner.models.stage_variables import StageVariables
from sim.plan import schedules


def require_pipeline(stages: StageVariables, pp: tuple[int, int | None]) -> None:
    """Add all constraints except those on the step: layers, capacity, order, borders, chain and memory.

    pp: fewest and most stages, if these are limited."""
    _layers_and_capacity(stages, pp)
    _order(stages)
    _borders(stages)
    _chain(stages)
    _memory(stages)


def keep_stages(stages: StageVariables, kept: Iterable[tuple[int, str]]) -> None:
    """Add that stages, numbered from 0 or from the end with -1, are of the classes of their clusters: no more stages than come
    before, or behind, are of the classes before, or behind, and enough are of these and the class itself.

    Raises ValueError where the order has not one class of a cluster."""
    for number, name in kept:
        (at,), ahead = (i for i, known in enumerate(stages.names) if known == name), number >= 0
        others, most = range(at) if ahead else range(at + 1, len(stages.names)), number if ahead else -number - 1
        before = [(v, 1.0) for group in stages.groups() for (c, _), v in group.items() if c in others]
        here = [(v, 1.0) for group in stages.groups() for (c, _), v in group.items() if c == at]
        if before:
            stages.programme.require(f"not_before[{number}]", total(before) <= most)
        stages.programme.require(f"kept[{number}]", total([*before, *here]) >= most + 1)


def _layers_and_capacity(stages: StageVariables, pp: tuple[int, int | None]) -> None:
    p, every, names = stages.programme, stages.groups(), stages.names
    p.require("one_first", total((v, 1) for v in stages.first.values()) == 1)
    p.require("one_last", total((v, 1) for v in stages.last.values()) == 1)
    layers = stages.order[0].workload.model.layers
    p.require("layers", total((v, k) for group in every for (_, k), v in group.items()) == layers)
    for i, option in enumerate(stages.order):
        used = total((v, 1) for group in every for (c, _), v in group.items() if c == i)
        p.require(f"capacity[{names[i]}]", used <= option.max_stages)
    inner, (fewest, most) = total((v, 1) for group in (stages.middle, stages.border) for v in group.values()), pp
    if fewest > 2:
        p.require("fewest", inner >= fewest - 2)
    if most is not None:
        p.require("most", inner <= most - 2)


def _order(stages: StageVariables) -> None:
    """No stage is in a class before the first stage's class or after the last stage's class."""
    p, names = stages.programme, stages.names
    for i, option in enumerate(stages.order):
        middle = [(v, 1.0) for group in (stages.middle, stages.border) for (c, _), v in group.items() if c == i]
        later_first = [(v, float(option.max_stages)) for (c, _), v in stages.first.items() if c > i]
        earlier_last = [(v, float(option.max_stages)) for (c, _), v in stages.last.items() if c < i]
        if middle and later_first:
            p.require(f"order_first[{names[i]}]", total(middle + later_first) <= option.max_stages)
        if middle and earlier_last:
            p.require(f"order_last[{names[i]}]", total(middle + earlier_last) <= option.max_stages)
        here_last = [(v, 1.0) for (c, _), v in stages.last.items() if c == i]
        behind = [(v, 1.0) for (c, _), v in stages.first.items() if c > i]
        if here_last and behind:
            p.require(f"order_ends[{names[i]}]", total(here_last + behind) <= 1)


def _borders(stages: StageVariables) -> None:
    """The last stage of a class is a border stage if the pipeline continues after it, unless the first stage is its only
    stage."""
    for i, option in enumerate(stages.order):
        here = [(v, 1.0) for (c, _), v in stages.border.items() if c == i]
        if here:
            stages.programme.require(f"border[{stages.names[i]}]", total([*here, *stages.continues(i)]) <= 0)
            middle = [(v, 1.0) for (c, _), v in stages.middle.items() if c == i]
            most = float(option.max_stages)
            needed = [(v, -most * factor) for v, factor in [*here, *stages.continues(i)]]
            stages.programme.require(f"ends_at_border[{stages.names[i]}]", total([*middle, *needed]) <= most)


def _chain(stages: StageVariables) -> None:
    """z[c,k] is 1 exactly where some middle stage of class c has at least k layers."""
    p, names = stages.programme, stages.names
    for (i, k), z in stages.chain.items():
        at_least = [(v, 1.0) for (c, j), v in stages.middle.items() if c == i and j >= k]
        bound = total([*at_least, (z, -float(stages.order[i].max_stages))])
        p.require(f"at_least[{names[i]},{k}]", bound <= 0)
        p.require(f"used[{names[i]},{k}]", total([*at_least, (z, -1.0)]) >= 0)
        if (i, k + 1) in stages.chain:
            p.require(f"chain[{names[i]},{k}]", total([(z, 1), (stages.chain[i, k + 1], -1)]) >= 0)


def _memory(stages: StageVariables) -> None:
    """Activations fit under 1F1B: a stage holds one microbatch for each stage from itself to the end, at most m.

    The constraints are on the largest stages of each class, which are the last of the class. Where all forwards come first
    (GPipe), a stage holds all microbatches, and `stage_sizes` has checked that they fit."""
    p, names, m = stages.programme, stages.names, stages.m
    if schedules.forwards_first(stages.order[0].shape.schedule):
        return
    most = float(sum(option.max_stages for option in stages.order) + 2)
    behind: list[tuple[Variable, float]] = []
    for i in reversed(range(len(stages.order))):
        for k in [k for c, k in stages.border if c == i]:
            held = stages.order[i].memory.held("middle", k)
            if held < m:
                load = total([*behind, (stages.border[i, k], most)], 2.0)
                p.require(f"memory_border[{names[i]},{k}]", load <= held + most)
        behind += [(v, 1.0) for (c, _), v in stages.border.items() if c == i]
        for k in stages.sizes["middle", i]:
            held = stages.order[i].memory.held("middle", k)
            if held < m:
                at_least = [(v, 1.0) for (c, j), v in stages.middle.items() if c == i and j >= k]
                load = total([*behind, *at_least, (stages.chain[i, k], most)], 1.0)
                p.require(f"memory[{names[i]},{k}]", load <= held + most)
        behind += [(v, 1.0) for (c, _), v in stages.middle.items() if c == i]
    for (i, k), v in stages.first.items():
        held = stages.order[i].memory.held("first", k)
        if held < m:
            p.require(f"memory_first[{names[i]},{k}]", total([*behind, (v, most)], 2.0) <= held + most)
