"""Constraints of the stage programme on the step: lower bounds in seconds, linear in the variables
(`planner.models.stage_programme`)."""

from __future__ import annotations

import functools

from planner.costs.context import PlanningContext
from planner.models.solver import total
from planner.models.stage_variables import Stages, StageVariables, Terms

NEVER = 1e6
"""Seconds that stand for a message between classes that no NIC joins. Larger values harm the solver's numerics (a guess)."""


class StepConstraints:
    """Adds the step bounds of every stage, and of the busiest node's messages, to a programme.

    Every stage but the first has two bounds, as in `planner.bounds.deadline_test`: the stage end and the drain end. `fill`
    collects the forwards of the stages before, `drain` their gradients of inputs, both with messages; `tail` is the first
    stage's tail. Names with `_back` are drain ends; `over` is a detour (`_detour`)."""

    def __init__(self, context: PlanningContext, stages: StageVariables):
        self.context, self.stages, self.order, self.names = context, stages, stages.order, stages.names

    def add(self) -> None:
        """Add all constraints on the step."""
        self._ends()
        self._busiest_node()
        self._every_stage()

    def _ends(self) -> None:
        """Define `tied`, the all-reduce of a tied embedding's gradient between the first and the last stage (in units), and
        `crosses`, whether these are in different classes."""
        stages, p = self.stages, self.stages.programme
        for a, first in enumerate(self.order):
            for b, last in enumerate(self.order):
                both = [v for (c, _), v in stages.first.items() if c == a] + [v for (c, _), v in stages.last.items() if c == b]
                seconds = self.context.tied.least(first.cluster, last.cluster, first.shape, last.max_stages)
                if a <= b and seconds > 0:
                    big = min(seconds, NEVER) / stages.unit
                    p.require(f"tied[{a},{b}]", total([(stages.tied, 1.0), *((v, -big) for v in both)], big) >= 0)
                if a < b:
                    p.require(f"crosses[{a},{b}]", total([(stages.crosses, 1.0), *((v, -1.0) for v in both)], 1) >= 0)

    def _busiest_node(self) -> None:
        """A node with stages before and after it sends activations forward and gradients back, over the same NICs."""
        stages, p = self.stages, self.stages.programme
        m, vpp = stages.m, self.order[0].shape.vpp
        for i, option in enumerate(self.order):
            positions, most = len(option.costs), float(option.max_stages)
            used = [(v, 1.0) for group in stages.groups() for (c, _), v in group.items() if c == i]
            for name, seconds, fewest, crossing in (
                ("inside", option.node_loads[0], 2 * positions, []),
                ("beside", option.node_loads[1], positions, [(stages.crosses, most)]),
            ):
                if seconds > 0 and most > fewest and used:
                    here = p.binary(f"through_{name}[{self.names[i]}]")
                    load = total([*used, (here, -most), *crossing], 0.0)
                    p.require(f"at_through_{name}[{self.names[i]}]", load <= fewest + (most if crossing else 0.0))
                    stages.bound_step(f"through_{name}[{self.names[i]}]", [(here, m * vpp * seconds)])

    def _every_stage(self) -> None:
        """For each stage: the step ends no earlier than the stage, nor than the first stage's tail after its drain."""
        stages, config = self.stages, self.order[0].config
        tail = [(v, self.order[i].cost("first", k).tail(config)) for (i, k), v in stages.first.items()]
        tail.append((stages.tied, 1.0))
        fill = stages.of_first(lambda cost: cost.begin(0.0, config))
        body = stages.of_first(lambda cost: stages.m * cost.cycle)
        body += self._detour("first", stages.first) + self._border_behind_first()
        stages.bound_step("first", fill + body + tail)
        fill += stages.entered(stages.first, "first", 0)
        drain = stages.entered(stages.first, "first", 1)
        for i, option in enumerate(self.order):
            if stages.sizes["middle", i]:
                self._largest_middle(i, fill, drain, tail)
            mine = {(c, k): v for (c, k), v in stages.middle.items() if c == i}
            fill, drain = fill + stages.entered(mine, "middle", 0), drain + stages.entered(mine, "middle", 1)
            at_border = {(c, k): v for (c, k), v in stages.border.items() if c == i}
            if at_border:
                self._at_border(i, at_border, fill, drain, tail)
            over = [(v, self._border(i, True) / option.microbatches) for v in at_border.values()]
            fill += stages.entered(at_border, "middle", 0) + over
            drain += stages.entered(at_border, "middle", 1) + over
        self._last(fill, drain, tail)

    def _last(self, fill: Terms, drain: Terms, tail: Terms) -> None:
        stages, m, config = self.stages, self.stages.m, self.order[0].config
        costs = [(v, self.order[i].cost("last", k)) for (i, k), v in stages.last.items()]
        over, border = self._detour("last", stages.last), self._border_before_last()
        own = [(v, m * cost.cycle + cost.tail(config)) for v, cost in costs]
        stages.bound_step("last", [*fill, *own, *over, *border, (stages.tied, 1.0)])
        back = [(v, cost.last_backward(m, m)) for v, cost in costs]
        back += [(v, seconds * (m - 1) / m) for v, seconds in border]  # the last gradient crosses the border in `drain`
        stages.bound_step("last_back", fill + back + over + drain + tail)

    def _largest_middle(self, i: int, fill: Terms, drain: Terms, tail: Terms) -> None:
        """Bounds of the largest middle stage of a class, which is the last of them; its costs are sums over the chain
        (`StageVariables.of_largest`)."""
        stages, option = self.stages, self.order[i]
        m, config = option.microbatches, option.config
        cost = functools.partial(option.cost, "middle")
        mine = {(c, k): v for (c, k), v in stages.middle.items() if c == i}
        before, behind = stages.entered(mine, "middle", 0), stages.entered(mine, "middle", 1)
        over = self._detour(
            f"middle[{self.names[i]}]", {(i, k): stages.chain[i, k] for k in stages.sizes["middle", i][:1]}, 2.0
        )

        def passed(k: int, direction: int) -> float:
            """Seconds of the largest stage itself in `before` (0) or `behind` (1), which its own bounds leave out."""
            return option.entry("middle", k)[direction] + option.message

        own = stages.of_largest(i, lambda k: m * cost(k).cycle + cost(k).tail(config) - passed(k, 0))
        stages.bound_step(f"middle[{self.names[i]}]", fill + before + own + over)
        back = stages.of_largest(i, lambda k: cost(k).last_backward(m, m) - passed(k, 0) - passed(k, 1))
        stages.bound_step(f"middle_back[{self.names[i]}]", fill + before + back + over + drain + behind + tail)
        gathered = stages.of_largest(i, lambda k: cost(k).begin(0.0, config) + m * cost(k).cycle + cost(k).tail(config))
        stages.bound_step(f"gather[{self.names[i]}]", gathered)

    def _at_border(self, i: int, at_border: Stages, fill: Terms, drain: Terms, tail: Terms) -> None:
        """Bounds of the stage at the border behind class i, whose messages cross it."""
        stages, option = self.stages, self.order[i]
        m, cost, border = option.microbatches, functools.partial(option.cost, "middle"), self._border(i, True)
        over = self._detour(f"border[{self.names[i]}]", at_border, 2.0)
        own = [(v, m * cost(k).cycle + border + cost(k).tail(option.config)) for (_, k), v in at_border.items()]
        stages.bound_step(f"border[{self.names[i]}]", fill + own + over)
        back = [(v, cost(k).last_backward(m, m) + border) for (_, k), v in at_border.items()]
        stages.bound_step(f"border_back[{self.names[i]}]", fill + back + over + drain + tail)

    def _detour(self, name: str, at: Stages, messages: float = 1.0) -> Terms:
        """Extra seconds of the messages of the stages `at`, if the pipeline crosses clusters.

        A pipeline uses one NIC type. If it crosses to a cluster without the fastest one, all its messages use a slower one."""
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
        """m times the extra seconds of a message over the border behind (`ahead`) or before class i, in addition to
        `_detour`."""
        option = self.order[i]
        beyond = self.order[i + 1 :] if ahead else self.order[:i]
        over = min((self.context.messages.least(option.cluster, o.cluster, option.shape) for o in beyond), default=0.0)
        more = over - option.message - option.detour if option.waits else 0.0
        return option.microbatches * min(max(more, 0.0), NEVER)

    def _border_term(self, name: str, price: float, needs: Terms, slack: float) -> Terms:
        """`price` times a real variable that is at least - `needs` - `slack`; minimising the step sets it to 0 or 1."""
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
                needs = [*here, *stages.continues(a), *others]
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
