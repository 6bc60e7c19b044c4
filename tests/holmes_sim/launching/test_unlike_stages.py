"""Frameworks with one tensor-parallel degree refuse stages of unlike ones; FlagScale's meshes and launchers take them."""

from __future__ import annotations

import pytest

from holmes_sim import exporters
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make

UNLIKE = ParallelConfig(tp=2, pp=2, stage_tp=(2, 1), sequence_parallel=True, num_microbatches=(4,))
REASON = "stage_tp 2, 1: all its stages have one tensor-parallel degree; the same for each (plan with --for)"
IN_TRACES = "stage_tp 2, 1: its messages go to one rank each; the same tp for each stage (--tp)"


@pytest.mark.parametrize("name", exporters.names())
def test_who_refuses_unlike_stages(name):
    workload = make.plan(make.fleet(make.cluster())).workload
    reasons = [text for text in exporters.target(name).unsupported_layout(UNLIKE, workload) if text.startswith("stage_tp")]
    frameworks = {one: [REASON] for one in ("megatron", "holmes", "deepspeed", "torchtitan")}
    assert reasons == (frameworks | {"chakra": [IN_TRACES]}).get(name, [])
