"""Closed form of a pipeline's step from the costs of its stages and the times of its messages.

`stage_ends` prices plans (`sim.analytic.plan_costs`) and candidates (`planner.search.rough_estimate`). The evaluator
(`sim.analytic.recurrence`) and the engine never end a step sooner on an idle network, and the bounds of the planner are
relaxations of this form. Each stage, with m microbatches, implies two lower bounds on the step:

    stage end    begin + max(m busy + held, m cycle) + tail                            <= step
    drain end    begin + max(m busy + held - owed - send, m lane) + drain + first tail <= step      (not for the first stage)

fill        arrival of the first microbatch: forwards and messages of the stages before.
begin       `StageCost.begin`: the later of fill and the parameter gathers that the first forward waits for.
busy        seconds of one microbatch on the ranks of the stage; lane: on its message lane (overlapped messages).
held        seconds of all activations that the rank before holds until it has received a gradient: the stage waits for them
            after its gradient has left (`sim.plan.round_trips.held_forwards`). Where messages hold receivers, too
            (`round_trips.holds_receivers`), those of all messages to the stage but the first.
cycle       seconds of one microbatch on the most loaded of ranks, message lane and data-parallel network.
drain       from the end of this stage's last backward to that of the first stage: messages and gradients of inputs.
owed        seconds of the weight gradients (W) that a zero-bubble schedule computes after the last backward (B).
send        seconds for which a rank waits until its last gradient has left, counted in drain instead.
tail        `StageCost.tail`: gradient reduction, optimizer and tied embedding after the last backward.
first tail  tail of the first stage, and its owed.

With virtual stages, fill and drain pass the first virtual stage of each rank only. Waits for later stages, contention between
different kinds of flows and interference are neglected, so the largest of these values is a lower bound on the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.analytic.stage_costs import StageCost
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.round_trips import held_forwards, holds_receivers
from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """A pipeline rank. cost: of all its virtual stages together, sends included.

    Of its first virtual stage, in seconds: `forward` and `inputs` (gradients of inputs) of a microbatch, and the messages
    between it and the rank before, `arrives` (activations) and `returns` (gradients); both are 0 for the first rank."""

    cost: StageCost
    forward: Seconds
    inputs: Seconds
    arrives: Seconds = 0.0
    returns: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class StageEnd:
    """The earliest end of the step that one stage implies: `begin` + `cycles` + `after`.

    `cycles` are m cycles of the stage, with the messages that it waits for in between; `after` is the rest of the step."""

    begin: Seconds
    cycles: Seconds
    after: Seconds

    @property
    def seconds(self) -> Seconds:
        """The earliest end of the step."""
        return self.begin + self.cycles + self.after


def stage_ends(
    stages: Sequence[PipelineStage],
    config: ParallelConfig,
    microbatches: int,
    tied: Seconds,
    owed: Sequence[int],
    head: int = -1,
) -> Iterator[StageEnd]:
    """The earliest end of the step that each stage implies, in pipeline order; the largest is the closed form of the step.

    tied: seconds of the all-reduce of a tied embedding's gradient between the first stage and the one with the `head`. owed:
    the number of weight gradients after the last backward of each stage (`schedules.weights_behind`).
    """
    fill = drain = first_tail = 0.0
    returns = [*(stage.returns for stage in stages[1:]), 0.0]
    for stage, (held, count) in enumerate(zip(stages, owed, strict=True)):
        cost, own = held.cost, config.of_pp_rank(stage) if config.stage_zero else config
        fill, drain = fill + held.arrives, drain + held.returns
        tail = cost.tail(own, tied if stage in (0, head % len(stages)) else 0.0)
        waits = held_forwards(config.schedule, stage, len(stages), microbatches) * held.arrives
        if holds_receivers(config):
            waits = max(waits, (microbatches - 1) * held.arrives) + microbatches * returns[stage]
        begin, cycles = cost.begin(fill, own), max(microbatches * cost.cycle, microbatches * cost.busy + waits)
        after = tail
        if stage:
            after = max(tail, cost.last_backward(microbatches, count, waits) - cycles + drain + first_tail)
        else:
            first_tail = count * cost.weight + tail
        yield StageEnd(begin, cycles, after)
        fill, drain = begin + held.forward, drain + held.inputs


def weights_owed(config: ParallelConfig, pp: int, microbatches: int) -> tuple[int, ...]:
    """`schedules.weights_behind` of each rank of a pipeline of pp ranks."""
    if not schedules.get(config.schedule).SPLITS_BACKWARD:
        return (0,) * pp
    return tuple(schedules.weights_behind(config.schedule, rank, pp, microbatches, config.vpp) for rank in range(pp))
