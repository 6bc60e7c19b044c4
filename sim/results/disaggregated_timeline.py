"""The simulated timeline of a step with attention and experts on two sets of ranks.

A rank of each set stands for all of them: "stage" 0 is the set of attention ranks, 1 that of expert ranks. Dispatches are on
lane `send` of both, combines on lane `return`."""

from __future__ import annotations

from collections.abc import Iterator

from sim.disaggregation.costs import TaskCosts
from sim.disaggregation.plan import DisaggregatedPlan
from sim.disaggregation.rounds import ROUNDS, of_rounds
from sim.disaggregation.simulation import simulate
from sim.disaggregation.stage import DisaggregatedStage
from sim.engine.timeline import Span, Timeline
from sim.formats import disaggregatedfile
from sim.units import Seconds

EXCHANGES = {"dispatch": "send", "combine": "return"}
"""Stream of exchanges -> lane."""
CLOSING = "gradients and optimizer"


def disaggregated_timeline(plan: DisaggregatedPlan) -> Timeline:
    """The timeline of a simulated step; of a step of many rounds, of the first `ROUNDS` of them."""
    stage = of_rounds(plan.stage, min(plan.stage.rounds, ROUNDS))
    ranks = {"attention": 0, "experts": len(stage.attention)}
    spans = list(_spans(stage, ranks))
    step = max(span.end for span in spans)
    for rank in ranks.values():
        spans += _waits([span for span in spans if span.rank == rank and span.lane == "compute"], step)
    return Timeline(
        name=f"{plan.topology.name} {plan.workload.model.name}",
        origin="simulated",
        plan_digest=disaggregatedfile.digest(plan),
        step_s=step,
        tokens=stage.workload.tokens,
        flops=stage.workload.flops,
        alike=(tuple(range(len(stage.attention))), tuple(range(len(stage.attention), len(stage.attention + stage.experts)))),
        spans=tuple(sorted(spans, key=lambda span: (span.start, span.rank))),
    )


def _spans(stage: DisaggregatedStage, ranks: dict[str, int]) -> Iterator[Span]:
    """Spans of all tasks, then of the end of the step of each set."""
    ends = dict.fromkeys(ranks, 0.0)
    for task, begin, end in simulate(stage):
        microbatch = task.round * stage.microbatches + task.microbatch
        for set_number, (own, rank) in enumerate(ranks.items()):
            if task.stream == own:
                kind = "B" if task.backward else "F"
                yield Span(rank, "compute", str(task), kind, begin, end, set_number, microbatch)
                ends[own] = max(ends[own], end)
            elif task.stream in EXCHANGES:
                name = f"{task.stream} {task}"
                yield Span(rank, EXCHANGES[task.stream], name, "send", begin, end, set_number, microbatch, "ep")
    for own, seconds in TaskCosts(stage).closing().items():
        yield Span(ranks[own], "compute", CLOSING, "optimizer", ends[own], ends[own] + seconds, int(own == "experts"))


def _waits(computed: list[Span], step: Seconds) -> Iterator[Span]:
    """Waits between the spans of compute of one rank."""
    last = 0.0
    for span in sorted(computed, key=lambda span: span.start):
        if span.start > last:
            yield Span(span.rank, "wait", f"wait {span.name}", "bubble", last, span.start, span.stage)
        last = max(last, span.end)
    if last < step:
        yield Span(computed[0].rank, "wait", "end of step", "bubble", last, step, computed[0].stage)
