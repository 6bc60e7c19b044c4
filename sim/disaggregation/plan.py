"""A plan whose attention and experts are on two sets of ranks: the stage, what is predicted of it, and who made it.

Ranks are numbered set by set: attention ranks first, those of each group side by side, then expert ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.disaggregation import memory
from sim.disaggregation.costs import TaskCosts
from sim.disaggregation.rounds import extrapolated
from sim.disaggregation.simulation import simulated_parts
from sim.disaggregation.stage import DisaggregatedStage
from sim.disaggregation.tasks import tasks
from sim.hardware.cluster import Device, Fleet
from sim.hardware.topology import Topology
from sim.plan.plan import MadeBy
from sim.units import Bytes, Seconds
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class DisaggregatedPrediction:
    """Results of a simulated step; pairs are of (an attention rank, an expert rank).

    step_s              seconds of a step
    tokens_per_s        tokens per second
    mfu                 model FLOPs utilisation of all devices of both sets, a fraction
    compute_s           seconds in which a rank computes layers
    exchange_s          seconds of all (dispatches, combines), which share links, one after the other
    closing_s           seconds of the sum of gradients and of the optimizer, after the last layer
    peak_memory_bytes   peak memory in bytes"""

    step_s: Seconds
    tokens_per_s: float
    mfu: float
    compute_s: tuple[Seconds, Seconds]
    exchange_s: tuple[Seconds, Seconds]
    closing_s: tuple[Seconds, Seconds]
    peak_memory_bytes: tuple[Bytes, Bytes]


@dataclass(frozen=True, slots=True)
class DisaggregatedPlan:
    """A stage with two sets of ranks, with or without a prediction. `lower_bound_s`: seconds below which no stage of the search
    that found it takes, if they are known (`planner.disaggregation.lower_bound`)."""

    stage: DisaggregatedStage
    made_by: MadeBy
    prediction: DisaggregatedPrediction | None = None
    lower_bound_s: Seconds | None = None

    @property
    def topology(self) -> Topology:
        """The topology of the whole fleet."""
        return self.stage.topology

    @property
    def fleet(self) -> Fleet:
        """The machines of the topology."""
        return self.stage.topology.fleet

    @property
    def workload(self) -> Workload:
        """What is trained."""
        return self.stage.workload

    @property
    def placement(self) -> tuple[Device, ...]:
        """The device of each rank."""
        return self.stage.attention + self.stage.experts

    def __repr__(self) -> str:
        return f"{self.topology.name}: {self.workload.model.name}, {self.stage}"


def predict(stage: DisaggregatedStage) -> DisaggregatedPrediction:
    """Simulate a step. Raises NoRoute where nothing joins the ranks."""
    costs, workload = TaskCosts(stage), stage.workload
    step, dispatch, combine = extrapolated(stage, lambda one: np.array(simulated_parts(one))).tolist()
    sums = dict.fromkeys(("attention", "experts"), 0.0)
    for task in tasks(stage.kept, 1):
        if task.stream in sums:
            sums[task.stream] += stage.microbatches * stage.rounds * costs.seconds(task)
    peak = sum(stage.topology.fleet.spec(device).peak_of(workload.precision) for device in stage.attention + stage.experts)
    closing = costs.closing()
    return DisaggregatedPrediction(
        step_s=step,
        tokens_per_s=workload.tokens / step,
        mfu=workload.flops / step / peak,
        compute_s=(sums["attention"], sums["experts"]),
        exchange_s=(dispatch, combine),
        closing_s=(closing["attention"], closing["experts"]),
        peak_memory_bytes=(memory.attention_rank_bytes(stage), memory.expert_rank_bytes(stage)),
    )
