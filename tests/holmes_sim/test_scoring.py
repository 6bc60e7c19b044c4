"""The plan of a job on a topology, and its score."""

from __future__ import annotations

from dataclasses import replace

import pytest

import holmes_sim as hs
from holmes_sim import scoring
from holmes_sim.launch_reading.job import Job
from sim.errors import HolmesError, PlanError
from tests import features

CONFIG = {"tp": 2, "pp": 2, "cp": 1, "microbatch_size": 1, "zero_stage": 1, "sequence_parallel": True}


@pytest.fixture
def where():
    """Three nodes of four A100 on each of two fabrics."""
    return replace(features.plan_of(features.FEATURES[0]).topology, workload=None)


@pytest.fixture
def job():
    plain = features.plan_of(features.FEATURES[0]).workload
    return Job("megatron", plain.model, 24, plain.seq_len, "bf16", CONFIG)


def test_ranks_fill_clusters_and_nodes_in_their_order(job, where):
    plan = scoring.plan_of(job, where)
    assert (plan.config.dp, plan.config.num_microbatches) == (6, (4,) * 6)
    assert [str(plan.placement[rank]) for rank in (0, 1, 4, 11, 12, 23)] == [
        "a/node0/dev0", "a/node0/dev1", "a/node1/dev0", "a/node2/dev3", "b/node0/dev0", "b/node2/dev3",
    ]  # fmt: skip
    assert [(stage.first, stage.past_last) for stage in plan.stages] == [(0, 12), (12, 24)]
    assert {group.nic for group in plan.groups if group.kind == "pp"} == {"ethernet"}


@pytest.mark.parametrize(
    ("change", "stages"),
    [
        ({"layers": (14, 10)}, [(0, 14), (14, 24)]),
        ({"ends_count": True, "config": CONFIG | {"pp": 3}, "global_batch_size": 16}, [(0, 7), (7, 16), (16, 24)]),
    ],
)
def test_stages_are_those_of_the_launch(job, where, change, stages):
    plan = scoring.plan_of(replace(job, **change), where)
    assert [(stage.first, stage.past_last) for stage in plan.stages] == stages


def test_instances_of_the_optimizer_share_its_state_among_fewer_ranks(job, where):
    assert scoring.plan_of(replace(job, replicated=2), where).config.zero_shard_size == 3


def test_without_a_global_batch_each_replica_has_its_local_one(job, where):
    assert scoring.plan_of(replace(job, global_batch_size=None, local_batch_size=2), where).workload.global_batch_size == 12


@pytest.mark.parametrize(
    ("change", "error", "fault"),
    [
        (
            {"devices": 32},
            HolmesError,
            r"the launch has 32 devices, and topology two-fabrics has 24; give a topology of 32 devices",
        ),
        (
            {"config": CONFIG | {"pp": 5}},
            HolmesError,
            "tp 2 x pp 5 x cp 1 = 10 does not divide the 24 devices of topology two-",
        ),
        (
            {"global_batch_size": 25},
            HolmesError,
            "global batch 25 is not a multiple of dp 6 x microbatch size 1, with 24 devices",
        ),
        ({"sharded": 4}, HolmesError, "data parallel 1 x 4 with tp, pp and cp needs 16 devices; topology two-fabrics has 24"),
        ({"replicated": 4}, HolmesError, "4 instances of the optimizer do not divide 6 ranks of dp x cp"),
        (
            {"config": CONFIG | {"pp": 2, "vpp": 5, "schedule": "interleaved"}},
            PlanError,
            "24 layers are not a multiple of 10 stages",
        ),
    ],
)
def test_a_job_that_does_not_fit_the_devices_is_refused_with_both_numbers(job, where, change, error, fault):
    with pytest.raises(error, match=fault):
        scoring.plan_of(replace(job, **change), where)


def test_a_score_has_the_best_plan_for_the_same_work():
    plain = features.plan_of(features.FEATURES[0])
    where = replace(plain.topology, workload=None)
    slow = Job(
        "megatron", plain.workload.model, 24, 2048, "bf16", CONFIG | {"recompute": "full"}, not_modelled=("x.sh:1: --y",)
    )
    found = scoring.score_job(slow, where, 3.0)
    assert found.best is not None
    best = found.best.plan
    assert best.workload == found.today.plan.workload
    assert best.certificate is not None and ("target", ("megatron",)) in [(a.name, a.values) for a in best.certificate.space]
    assert found.faster == found.today.prediction.step_s / best.prediction.step_s - 1 > 0.2
    facts = found.facts()
    assert facts["not_modelled"] == ["x.sh:1: --y"] and facts["today"]["fits"] is True
    assert facts["best"]["step_s"] == best.prediction.step_s


def test_without_time_no_plan_is_searched(job, where):
    found = scoring.score_job(job, where, 0.0)
    assert (found.best, found.faster, found.reason) == (None, None, "not searched: the time limit is 0")


LAUNCH = """\
torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --bf16 \\
  --seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256 --micro-batch-size 1 --global-batch-size 32 \\
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2
"""


def test_python_scores_a_launch_file(tmp_path):
    """Variables and the model replace those of the script; the facts are the document of `score --json`."""
    (tmp_path / "train.sh").write_text(LAUNCH)
    where, lines = hs.load("holmes-infiniband-4"), list[str]()
    found = hs.score(tmp_path / "train.sh", where, {"TP": "4"}, "llama-3-8b", time_limit=0, progress=lines.append)
    config = found.today.plan.config
    assert (config.tp, config.pp, config.dp, found.job.model.name) == (4, 2, 4, "llama-3-8b")
    assert lines == ["simulating today's job"]
    assert found.facts()["format"] == "holmes-sim/score/1"


def test_python_names_a_missing_variable_and_a_wrong_topology(tmp_path):
    (tmp_path / "train.sh").write_text(LAUNCH)
    with pytest.raises(HolmesError, match=r"train.sh:3: .*TP"):
        hs.score(tmp_path / "train.sh", hs.load("holmes-infiniband-4"))
    with pytest.raises(HolmesError, match="score: where: a topology is expected, not 'somewhere'"):
        hs.score(tmp_path / "train.sh", "somewhere")


@pytest.mark.parametrize(("says", "stack", "own", "overlaps"), [
    (True, False, True, True), (True, True, None, True), (False, True, False, False), (False, False, None, False),
])  # fmt: skip
def test_a_launch_says_whether_tensor_parallelism_overlaps(job, where, says, stack, own, overlaps):
    """The plan says so itself where its stack says otherwise."""
    asked = replace(job, config=job.config | {"tp": 2, "sequence_parallel": True, "own_tp_overlap": says})
    software = replace(where, stack=replace(where.stack, tp_overlap=stack))
    found = scoring.plan_of(asked, software).config
    assert (found.own_tp_overlap, found.tp_overlap) == (own, overlaps)
