"""The benchmark of recomputation by stage on drawn fleets of servers and gaming GPUs."""

from __future__ import annotations

from benchmarks import recompute, unlike
from planner import strategies
from planner.costs.context import PlanningContext
from tests.more import deep


def without_proof(request):
    """The first plan of the search, which is enough for a table."""
    context = PlanningContext(request)
    context.proves = False
    return strategies.get("certified").plan(request, context)


@deep
def test_a_row_for_each_fleet_whose_plan_recomputes_some_layers(monkeypatch):
    monkeypatch.setattr(unlike, "_plan", without_proof)
    found = [recompute.compared(unlike.drawn(seed, recompute.MODELS)) for seed in (12,)]
    assert list(recompute.table(iter(found))) == [
        "| fleet | all layers or none | by stage | saved |",
        "| --- | --- | --- | --- |",
        "| 1 x 8 a100-sxm4-40gb, 3 x 8 rtx-4090; llama-2-7b, 64 x 4096 | 4.367 s (tp 2, pp 4, none) "
        "| 4.108 s (tp 2, pp 4, full of 2, 0, 0, 0) | 5.9% |",
        "1 of 1 plans recompute some layers; 0 are slower than with all layers or none.",
    ]
