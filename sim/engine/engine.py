"""Discrete-event simulation of one training step: `simulate(plan)` returns a `Timeline`.

Each class of ranks that must behave alike (`sim.engine.symmetry`) is one SimPy process, which runs its rank's program
(`sim.kernels.lowering`) action by action, as a Megatron-LM rank runs its schedule:

- Compute takes the seconds of the closed forms (`sim.engine.durations`). While collectives that run beside it (gradients,
  weights, a context-parallel ring) are on the network, it is slowed by the largest interference factor of their links.
- A message leaves in order over its own lane and holds the sender, unless the schedule overlaps sends; a receive waits for its
  arrival (`sim.engine.communication`).
- In unlike pipelines (`sim.plan.pipelines`) every rank runs the program of its own pipeline, and pipelines meet in the
  collectives of gradients and weights, one for each section of layers.
- A collective begins when all its ranks have arrived. Ranks wait for its end, or start it and wait for it later. While keys and
  values travel around a context-parallel ring, its ranks compute attention.

The clock goes from event to event; flows on the network get new rates where one starts or ends. Every event that ends something
carries the index of the span that ended with it, so that each span knows the span that it came after (`Span.after`). When a
pipeline repeats itself, the rest of its steady state is extrapolated and not simulated (`sim.engine.steady_state`)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

import simpy

from sim.engine import copies
from sim.engine.abandonment import Abandoned, Abandonment
from sim.engine.communication import Communication, gradient_lanes
from sim.engine.components import components
from sim.engine.durations import Durations
from sim.engine.faults import NO_FAULTS, DrawnFaults
from sim.engine.rank_plans import RankPlans
from sim.engine.remaining_time import remaining_times
from sim.engine.spans import Label, LastEnd, SpanLog
from sim.engine.state import Component, Rank, Steps, elapse, remaining
from sim.engine.steady_state import SteadyState
from sim.engine.symmetry import Folding, fold
from sim.engine.timeline import Span, Timeline
from sim.kernels import lowering
from sim.plan import schedules
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.program import BESIDE, COMPUTE, Action
from sim.plan.round_trips import holds_receivers
from sim.units import Seconds


def simulate(plan: Plan | PipelinesPlan, folding: Folding | None = None, drawn: DrawnFaults = NO_FAULTS) -> Timeline:
    """Simulate one step of a plan under drawn faults; a `folding` that is given must have been made with the same faults.

    The same plan and the same faults give the same timeline, byte for byte."""
    repeats = not drawn.jitter and not drawn.down
    return _Simulation(plan, folding or fold(plan, drawn), drawn, extrapolates=repeats).timeline()


def step_seconds(plan: Plan | PipelinesPlan, drawn: DrawnFaults = NO_FAULTS) -> Seconds:
    """Seconds of the step that `simulate` simulates. Under jitter and outages, where every microbatch is simulated, no spans
    are kept, which takes less time."""
    if not drawn.jitter and not drawn.down:
        return simulate(plan, drawn=drawn).step_s
    log = LastEnd()
    _Simulation(plan, fold(plan, drawn), drawn, extrapolates=False, log=log).run()
    return log.end


def simulate_up_to(plan: Plan | PipelinesPlan, limit: Seconds) -> Timeline | Abandoned:
    """Simulate one step as `simulate` does, or abandon the simulation when it is proved that the step is above `limit`.

    A step up to the limit is never abandoned. Of a step above it, the timeline is returned where the proof fails."""
    simulation = _Simulation(plan, fold(plan), NO_FAULTS, extrapolates=True, limit=limit)
    return simulation.outcome()


def simulate_at_length(plan: Plan | PipelinesPlan, folding: Folding | None = None, drawn: DrawnFaults = NO_FAULTS) -> Timeline:
    """Simulate one step as `simulate` does, but without extrapolation: every microbatch is simulated."""
    return _Simulation(plan, folding or fold(plan, drawn), drawn, extrapolates=False).timeline()


class _Simulation:
    """One simulation: the clock, the ranks, and the collaborators that share them."""

    def __init__(
        self,
        plan: Plan | PipelinesPlan,
        folding: Folding,
        drawn: DrawnFaults,
        extrapolates: bool,
        limit: Seconds = math.inf,
        log: SpanLog | None = None,
    ):
        self.plan, self.plans, self.folding = plan, RankPlans(plan), folding
        config = self.plans.plans[0].config
        self.overlaps_sends = schedules.get(config.schedule).OVERLAPS_SENDS
        self.holds_receivers = holds_receivers(config)
        self.extrapolates = extrapolates
        self.env = simpy.Environment()
        self.log = log or SpanLog()
        self.durations = Durations(plan, drawn)
        parts = components(folding, config)
        joined = [Component() for _ in parts]
        of_class = {index: component for component, part in zip(joined, parts, strict=True) for index in part}
        self.ranks = list(self._ranks(of_class))
        self.communication = Communication(self.env, plan, folding, self.ranks, self.log)
        self.steady = SteadyState(self.env, self.communication, joined, max(one.config.pp for one in self.plans.plans))
        for rank in self.ranks:
            rank.component.ranks.append(rank)
        between_components = gradient_lanes(folding) if len(parts) > 1 else {}
        for carrier, members in enumerate(self.communication.members):
            if carrier not in between_components:
                members[0].component.carriers.add(carrier)
        compute = functools.partial(remaining_times, self.ranks, self.communication, self.durations, self.overlaps_sends)
        self.abandonment = Abandonment(limit, self.ranks, compute)

    def _ranks(self, of_class: dict[int, Component]) -> Iterator[Rank]:
        """A rank for each class; those of one pipeline rank with as many microbatches share a program."""
        programs: dict[tuple[int, int, int], lowering.Lowered] = {}
        for index, rank in enumerate(self.folding.representatives):
            key = number, pp_rank, microbatches = self.plans.program(rank)
            if key not in programs:
                plan, sections = self.plans.plans[number], self.plans.sections_of(number, pp_rank)
                programs[key] = lowering.Lowered(plan, pp_rank, microbatches, sections)
            yield Rank(index, rank, pp_rank, programs[key], of_class[index])

    def timeline(self) -> Timeline:
        """Run to the end of the step, without a limit."""
        timeline = self.outcome()
        assert isinstance(timeline, Timeline)
        return timeline

    def outcome(self) -> Timeline | Abandoned:
        """The timeline of the step, or that it is proved to take longer than the limit."""
        events = self.run()
        found = self.abandonment.found
        return replace(found, events=events) if found is not None else self._finished(events)

    def run(self) -> int:
        """Run to the end of the step, or until it is proved to take longer than the limit; returns the number of events."""
        env, events, steady = self.env, 0, self.steady
        for link, begin, until in self.folding.closed:
            env.process(self.communication.close(link, begin, until))
        end = env.all_of([env.process(self._run(rank)) for rank in self.ranks])
        while not end.processed:
            env.step()
            events += 1
            if steady.begun and env.peek() > env.now:
                steady.look()
            if self.abandonment.found is not None:
                break
        return events

    def _finished(self, events: int) -> Timeline:
        spans, last = self.log.spans, tuple(copies.latest(self.log.spans))
        step = max(span.end for span in last)
        ends = dict.fromkeys((rank.rank for rank in self.ranks), 0.0)
        for span in last:
            if span.kind != "send" and span.end > ends[span.rank]:
                ends[span.rank] = span.end
        for rank, end in ends.items():
            if end < step:
                spans.append(Span(rank, "wait", "end of step", "bubble", end, step))
        return Timeline(
            name=f"{self.plan.topology.name} {self.plan.workload.model.name}",
            origin="simulated",
            plan_digest=self.plans.digest,
            step_s=step,
            tokens=self.plan.workload.tokens,
            flops=self.plan.workload.flops,
            alike=self.folding.alike,
            spans=copies.frozen(spans),
            events=events,
        )

    def _run(self, rank: Rank) -> Steps:
        """The process of a rank: run its program, action by action."""
        communication = self.communication
        while rank.piece + 1 < len(rank.program):
            rank.piece += 1
            self.abandonment.check(rank, self.env.now)
            for position, action in enumerate(self._piece(rank)):
                rank.position, rank.since = position, self.env.now
                if action.kind in COMPUTE:
                    if self.extrapolates and self._begins_microbatch(rank, action):
                        self.steady.begun[rank.component] = action.microbatch
                    yield from self._compute(rank, action)
                elif action.kind == "send" and self.overlaps_sends:
                    self.env.process(communication.send(rank, action))
                elif action.kind == "send":
                    yield from self._call(rank, action)
                    rank.last = yield from communication.send(rank, action)
                    self.log.add(rank, "wait", "exposed", rank.since, self.env.now, Label(action, "pp"))
                elif action.kind == "recv":
                    travelled = yield from communication.receive(rank, action)
                    if self.holds_receivers:
                        yield from self._wait(rank, action, max(rank.since + travelled - self.env.now, 0.0))
                    yield from self._call(rank, action)
                elif action.kind == "collective" and self.durations.include(rank.rank, action):
                    continue
                elif action.kind == "collective":
                    yield from communication.run(rank, action)
                elif action.kind in BESIDE and not self.durations.include(rank.rank, action):
                    started = communication.start(rank, action)
                    yield from self._compute(rank, action)
                    rank.since = self.env.now
                    yield from communication.wait_for(rank, action, started)
                elif action.kind == "start":
                    started = communication.start(rank, action)
                    rank.started[action.stage, action.group, action.operation, action.part] = started
                elif action.kind == "wait":
                    started = rank.started[action.stage, action.group, action.operation, action.part]
                    yield from communication.wait_for(rank, action, started)
                else:
                    yield from self._compute(rank, action)

    def _call(self, rank: Rank, action: Action) -> Steps:
        """Wait while the host of a rank calls what a message needs, if its software makes such calls (`message_calls`)."""
        if seconds := self.durations.of_message(rank.rank, action):
            yield from self._wait(rank, action, seconds)

    def _wait(self, rank: Rank, action: Action, seconds: Seconds) -> Steps:
        """Wait some seconds for a message of a pipeline."""
        begin = self.env.now
        yield from elapse(self.env, rank, seconds)
        rank.last = self.log.add(rank, "wait", "exposed", begin, self.env.now, Label(action, "pp"), rank.last)
        rank.since = self.env.now

    def _piece(self, rank: Rank) -> tuple[Action, ...]:
        """The piece of its program that a rank is at; microbatches are counted without those that were extrapolated."""
        piece, rate = rank.program.piece(rank.piece), rank.program.rates.of_action
        skipped = rank.component.skipped
        return tuple(action.earlier(skipped * rate(action)) for action in piece) if skipped else piece

    def _begins_microbatch(self, rank: Rank, action: Action) -> bool:
        """Whether a rank is the leader of its component and begins an F, B or W of its first stage."""
        return rank is rank.component.ranks[0] and action.part == 0 and action.stage == rank.pp_rank

    def _compute(self, rank: Rank, action: Action) -> Steps:
        """Compute; while collectives run beside it, at a rate that changes where one goes onto the network or leaves it."""
        left = self.durations.of(rank.rank, action)
        while rank.overlapped and left > 0.0:
            slow = 1.0 + max(rank.slowdowns, default=0.0)
            rank.changed, seconds = self.env.event(), left * slow
            rank.until = self.env.now + seconds
            while seconds > 0.0 and not rank.changed.triggered:
                yield self.env.timeout(seconds) | rank.changed
                seconds = remaining(self.env, rank)
            left = seconds / slow
        rank.changed = None
        yield from elapse(self.env, rank, left)
        kind = action.kind if action.kind not in BESIDE else "F" if action.operation.endswith("F") else "B"
        label = Label(action, has_microbatch=kind in COMPUTE)
        rank.last = self.log.add(rank, "compute", kind, rank.since, self.env.now, label, rank.last)
