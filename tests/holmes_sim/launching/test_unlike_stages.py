"""What frameworks do with stages of unlike degrees or numbers of recomputed layers; launchers take them all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.certificates.scarce import squeezed
from holmes_sim import exporters
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.space.runnable import recomputes_blocks
from sim.plan.parallel_config import BLOCK, ParallelConfig
from tests import builders as make
from tests.planner.builders import on_one_cluster, shape

UNLIKE = ParallelConfig(tp=2, pp=2, stage_tp=(2, 1), sequence_parallel=True, num_microbatches=(4,))
SPLIT = ParallelConfig(pp=2, stage_dp=(2, 1), microbatch_size=2, num_microbatches=(4,))
REASONS = {
    "tp": "stage_tp 2, 1: all its stages have one tensor-parallel degree; the same for each (plan with --for)",
    "dp": "stage_dp 2, 1: all its stages have one data-parallel degree; the same for each (plan with --for)",
}
IN_TRACES = "stage_{0} 2, 1: its messages go to one rank each; the same {0} for each stage (--{0})"


@pytest.mark.parametrize(("config", "degree"), [(UNLIKE, "tp"), (SPLIT, "dp")])
@pytest.mark.parametrize("name", exporters.names())
def test_who_refuses_unlike_stages(name, config, degree):
    workload = make.plan(make.fleet(make.cluster())).workload
    reasons = [text for text in exporters.target(name).unsupported_layout(config, workload) if text.startswith("stage_")]
    frameworks = {one: [REASONS[degree]] for one in ("megatron", "holmes", "deepspeed", "torchtitan")}
    assert reasons == (frameworks | {"chakra": [IN_TRACES.format(degree)]}).get(name, [])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            ParallelConfig(pp=2, dp=2, num_microbatches=(4, 4), zero_stage=3, stage_zero=(3, 1)),
            "stage_zero 3, 1: all its stages have one ZeRO stage; zero_stage alone",
        ),
        (
            ParallelConfig(pp=2, num_microbatches=(4,), offload=("optimizer",), stage_offload=("none", "optimizer")),
            "stage_offload none, optimizer: all its stages offload alike; offload alone",
        ),
        (
            ParallelConfig(pp=2, num_microbatches=(4,), stage_cp=(2, 1)),
            "stage_cp 2, 1: all its stages have one context-parallel degree; cp alone",
        ),
        (
            ParallelConfig(pp=2, num_microbatches=(4,), recompute="full", stage_recompute=("full", "none")),
            "stage_recompute full, none: all its stages recompute in the same way; recompute alone",
        ),
        (
            ParallelConfig(pp=2, num_microbatches=(4,), microbatch_size=2, stage_microbatch_size=(1, 2)),
            "stage_microbatch_size 1, 2: all its stages have one microbatch size; microbatch_size alone",
        ),
    ],
)
def test_frameworks_refuse_unlike_options_of_stages(config, reason):
    workload = make.plan(make.fleet(make.cluster())).workload
    every = {name: list(exporters.target(name).unsupported_layout(config, workload)) for name in exporters.names()}
    assert {name for name, reasons in every.items() if reason in reasons} == set(exporters.frameworks())


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"ep": 4, "stage_ep": (4, 2)}, "stage_ep 4, 2: all its stages divide experts alike; ep alone"),
        ({"tp": 2, "etp": 2, "stage_etp": (2, 1)}, "stage_etp 2, 1: all its stages divide experts alike; etp alone"),
    ],
)
def test_frameworks_but_flagscale_divide_experts_alike_on_all_stages(config, reason):
    """FlagScale has an ep and an etp of each mesh of devices; launchers start anything."""
    workload = make.plan(make.fleet(make.cluster())).workload
    unlike = ParallelConfig(pp=2, dp=4, num_microbatches=(4,) * 4, **config)
    every = {name: list(exporters.target(name).unsupported_layout(unlike, workload)) for name in exporters.names()}
    assert {name for name, reasons in every.items() if reason in reasons} == set(exporters.frameworks()) - {"flagscale"}


@pytest.mark.parametrize(
    ("name", "counts"),
    [("megatron", (4,)), ("flagscale", (4, 1, 0, 0)), ("deepspeed", ())],
)
def test_a_plan_for_a_framework_recomputes_as_it_can(name, counts):
    """One number for all stages, one for each, or all layers; the four stages hold 4, 3, 2 and 1 microbatches."""
    free, stages = on_one_cluster(layers=24, batch=16, nodes=4), (("c", 6),) * 4
    one = shape(schedule="1f1b-deepspeed" if name == "deepspeed" else "1f1b")
    tight = replace(squeezed(free, build(free, one, stages, "by hand"), 0.4), target=exporters.target(name))
    assert recomputes_blocks(tight) == (True, bool(counts))
    plan = build(tight, replace(one, recompute=BLOCK), stages, "by hand")
    assert (plan.config.recompute, plan.config.recompute_layers) == ("full", counts)
    assert fits(plan)
