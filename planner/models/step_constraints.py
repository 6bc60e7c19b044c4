"""Constraints of the stage programme on the step: lower bounds in seconds, linear in the variables (see `stages`)."""

from __future__ import annotations

import functools

from planner.costs.context import PlanningContext
from planner.models.solver import total
from planner.models.stage_variables import Stages, StageVariables, Terms

NEVER = 1e6
"""Seconds that stand for a message between classes that no NIC joins. Larger values harm the solver's numerics (a guess)."""


class StepConstraints:
    """Adds the step bounds of every stage, and of the busiest node's messages, to a programme.

    Every stage but the first has two bounds, as in `planner.bounds.deadline_test`: its own end, and the way back.
    `there` collects the forwards of the stages before, `back` their gradients of inputs, `tail` the first stage's tail."""

    def __init__(self, context: PlanningContext, stages: StageVariables):
        self.context, self.stages, self.order, self.names = context, stages, stages.order, stages.names

    def add(self) -> None:
        """Add all of them."""
        self._ends()
        self._busiest_node()
        self._every_stage()

    def _ends(self) -> None:
        """Define `tied`, the sum of the tied embedding between the end stages, and `crosses`, whether they differ in class."""
        stages, p = self.stages, self.stages.programme
        for a, first in enumerate(self.order):
            for b, last in enumerate(self.order):
                both = [v for (c, _), v in stages.first.items() if c == a] + [v for (c, _), v in stages.last.items() if c == b]
                seconds = self.context.tied.least(first.cluster, last.cluster, first.shape, last.capacity)
                if a <= b and seconds > 0:
                    big = min(seconds, NEVER) / stages.unit
                    p.require(f"tied[{a},{b}]", total([(stages.tied, 1.0), *((v, -big) for v in both)], big) >= 0)
                if a < b:
                    p.require(f"crosses[{a},{b}]", total([(stages.crosses, 1.0), *((v, -1.0) for v in both)], 1) >= 0)

    def _busiest_node(self) -> None:
        """A node with stages before and behind it sends activations one way and gradients the other, out of one NIC."""
        stages, p = self.stages, self.stages.programme
        m, vpp = stages.m, self.order[0].shape.vpp
        for i, option in enumerate(self.order):
            variants, most = len(option.costs), float(option.capacity)
            used = [(v, 1.0) for group in stages.groups() for (c, _), v in group.items() if c == i]
            for name, seconds, fewest, crossing in (
                ("inside", option.through, 2 * variants, []),
                ("beside", option.through_crossing, variants, [(stages.crosses, most)]),
            ):
                if seconds > 0 and most > fewest and used:
                    here = p.binary(f"through_{name}[{self.names[i]}]")
                    load = total([*used, (here, -most), *crossing], 0.0)
                    p.require(f"at_through_{name}[{self.names[i]}]", load <= fewest + (most if crossing else 0.0))
                    stages.bound_step(f"through_{name}[{self.names[i]}]", [(here, m * vpp * seconds)])

    def _every_stage(self) -> None:
        """The step does not end before any stage's own end, nor before the first stage's tail after the way back to it."""
        stages, config = self.stages, self.order[0].config
        tail = [(v, self.order[i].cost("first", k).tail(config)) for (i, k), v in stages.first.items()]
        tail.append((stages.tied, 1.0))
        there = stages.of_first(lambda cost: cost.begin(0.0, config))
        body = stages.of_first(lambda cost: stages.m * cost.slot)
        body += self._detour("first", stages.first) + self._border_behind_first()
        stages.bound_step("first", there + body + tail)
        there += stages.entered(stages.first, "first", 0)
        back = stages.entered(stages.first, "first", 1)
        for i, option in enumerate(self.order):
            if stages.sizes["middle", i]:
                self._largest_middle(i, there, back, tail)
            mine = {(c, k): v for (c, k), v in stages.middle.items() if c == i}
            there, back = there + stages.entered(mine, "middle", 0), back + stages.entered(mine, "middle", 1)
            at_border = {(c, k): v for (c, k), v in stages.border.items() if c == i}
            if at_border:
                self._at_border(i, at_border, there, back, tail)
            over = [(v, self._border(i, True) / option.microbatches) for v in at_border.values()]
            there += stages.entered(at_border, "middle", 0) + over
            back += stages.entered(at_border, "middle", 1) + over
        self._last(there, back, tail)

    def _last(self, there: Terms, back: Terms, tail: Terms) -> None:
        stages, config = self.stages, self.order[0].config
        ending = [(v, stages.m * self.order[i].cost("last", k).slot) for (i, k), v in stages.last.items()]
        ending += self._detour("last", stages.last) + self._border_before_last()
        own = [(v, self.order[i].cost("last", k).tail(config)) for (i, k), v in stages.last.items()]
        stages.bound_step("last", [*there, *ending, *own, (stages.tied, 1.0)])
        stages.bound_step("last_back", there + ending + back + _negative(stages.after_last_b(stages.last, "last")) + tail)

    def _largest_middle(self, i: int, there: Terms, back: Terms, tail: Terms) -> None:
        """Bounds of the largest middle stage of a class, the last of them; its values follow the chain."""
        stages, option = self.stages, self.order[i]
        m, config = option.microbatches, option.config
        cost = functools.partial(option.cost, "middle")
        mine = {(c, k): v for (c, k), v in stages.middle.items() if c == i}
        before, behind = stages.entered(mine, "middle", 0), stages.entered(mine, "middle", 1)
        body = stages.of_largest(i, lambda k: m * cost(k).slot - option.entry("middle", k)[0] - option.message)
        body += self._detour(
            f"middle[{self.names[i]}]", {(i, k): stages.chain[i, k] for k in stages.sizes["middle", i][:1]}, 2.0
        )
        own = stages.of_largest(i, lambda k: cost(k).tail(config))
        stages.bound_step(f"middle[{self.names[i]}]", there + before + body + own)
        message = option.message if option.waits else 0.0
        undo = stages.of_largest(i, lambda k: -option.entry("middle", k)[1] - option.message - message - m * cost(k).weight)
        stages.bound_step(f"middle_back[{self.names[i]}]", there + before + body + back + behind + undo + tail)
        gathered = stages.of_largest(i, lambda k: cost(k).begin(0.0, config) + m * cost(k).slot + cost(k).tail(config))
        stages.bound_step(f"gather[{self.names[i]}]", gathered)

    def _at_border(self, i: int, at_border: Stages, there: Terms, back: Terms, tail: Terms) -> None:
        """Bounds of the stage at the border behind class i, whose messages cross it."""
        stages, option = self.stages, self.order[i]
        m, cost = option.microbatches, functools.partial(option.cost, "middle")
        body = [(v, m * cost(k).slot + self._border(i, True)) for (_, k), v in at_border.items()]
        body += self._detour(f"border[{self.names[i]}]", at_border, 2.0)
        own = [(v, cost(k).tail(option.config)) for (_, k), v in at_border.items()]
        stages.bound_step(f"border[{self.names[i]}]", there + body + own)
        after = _negative(stages.after_last_b(at_border, "middle"))
        stages.bound_step(f"border_back[{self.names[i]}]", there + body + back + after + tail)

    def _detour(self, name: str, at: Stages, messages: float = 1.0) -> Terms:
        """Extra seconds of the messages of the stages `at` in a class because the pipeline crosses clusters.

        A pipeline group uses one NIC type, which a second cluster may force to be a slower one."""
        stages, terms = self.stages, Terms()
        for i, option in enumerate(self.order):
            here = [(v, -1.0) for (c, _), v in at.items() if c == i]
            if here and option.waits and option.detour > 0:
                both = stages.programme.real(f"detour[{name},{self.names[i]}]")
                meet = total([(both, 1.0), (stages.crosses, -1.0), *here], 1)
                stages.programme.require(f"detour_{name}[{self.names[i]}]", meet >= 0)
                terms.append((both, messages * option.microbatches * option.detour))
        return terms

    def _border(self, i: int, ahead: bool) -> float:
        """m times the extra seconds of a message over the border behind (or before) class i, beyond `_detour`."""
        option = self.order[i]
        beyond = self.order[i + 1 :] if ahead else self.order[:i]
        over = min((self.context.messages.least(option.cluster, o.cluster, option.shape) for o in beyond), default=0.0)
        more = over - option.message - option.detour if option.waits else 0.0
        return option.microbatches * min(max(more, 0.0), NEVER)

    def _border_term(self, name: str, price: float, needs: Terms, slack: float) -> Terms:
        """`price` where the needs (with coefficient -1) exceed `slack`: a real variable, pushed up by its constraint."""
        if price <= 0 or not needs:
            return []
        here = self.stages.programme.real(name)
        self.stages.programme.require(f"at_{name}", total([(here, 1.0), *needs], slack) >= 0)
        return [(here, price)]

    def _border_behind_first(self) -> Terms:
        """The first stage sends over the border where the pipeline goes on and its class has no border stage."""
        stages, terms = self.stages, Terms()
        for a in range(len(self.order)):
            here = [(v, -1.0) for (c, _), v in stages.first.items() if c == a]
            others = [(v, 1.0) for (c, _), v in stages.border.items() if c == a]
            if here:
                needs = [*here, *stages.goes_on(a), *others]
                terms += self._border_term(f"border_first[{self.names[a]}]", self._border(a, True), needs, 1.0)
        return terms

    def _border_before_last(self) -> Terms:
        """The last stage sends gradients over the border where its class has no other stage."""
        stages, terms = self.stages, Terms()
        for b in range(len(self.order)):
            here = [(v, -1.0) for (c, _), v in stages.last.items() if c == b]
            others = [(v, 1.0) for group in (stages.first, stages.middle) for (c, _), v in group.items() if c == b]
            if here:
                terms += self._border_term(f"border_last[{self.names[b]}]", self._border(b, False), [*here, *others], 0.0)
        return terms


def _negative(terms: Terms) -> Terms:
    return [(variable, -value) for variable, value in terms]
