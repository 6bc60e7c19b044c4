"""holmes-sim score, from a launch to what is printed."""

from __future__ import annotations

import json

import pytest

from holmes_sim import commands

TOPOLOGY = """\
format: holmes-sim/topology/1
name: small
source: written for a test
clusters:
  a:
    nodes: 1
    node:
      devices: {type: a100-sxm4-80gb, count: 4}
      intra_node: nvlink3
"""
LAUNCH = """\
torchrun --nproc-per-node $GPUS pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --bf16 \\
  --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --global-batch-size 8 \\
  --pipeline-model-parallel-size 4 --rampup-batch-size 4 4 100 --lr 1e-4
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "small.yaml").write_text(TOPOLOGY)
    (tmp_path / "train.sh").write_text(LAUNCH)
    return tmp_path / "train.sh", "--topo", tmp_path / "small.yaml"


def test_a_score_says_today_losses_and_the_best_plan(run, files, tmp_path):
    seen = run("score", *files, "--time-limit", "2", "-o", tmp_path / "plan.json")
    assert seen.code == 0, seen.err
    assert "today: tp 1 | pp 4 | dp 1 | 8 microbatches of 1 | 1f1b | ZeRO 0 | recompute none\n" in seen.out
    for text in (
        "Where a rank's",
        "train.sh:3: --rampup-batch-size 4 4 100",
        "Today and the best plan for megatron",
        "faster than",
    ):
        assert text in seen.out
    assert "--lr" not in seen.out
    assert commands.read_plan(tmp_path / "plan.json").workload.global_batch_size == 8
    assert "holmes-sim export plan.json --to megatron -o launch" in " ".join(seen.out.split())


def test_json_has_the_numbers(run, files):
    seen = run("score", *files, "--time-limit", "0", "--json", "--set", "memory_headroom=0")
    found = json.loads(seen.out)
    assert (found["format"], found["target"], found["best"]) == ("holmes-sim/score/1", "megatron", None)
    assert found["today"]["report"]["step_s"] > 0 and found["explanation"]["ranks"]


def test_both_numbers_of_devices_are_named(run, files):
    files[0].write_text(LAUNCH.replace("torchrun", "torchrun --nnodes 1"))
    seen = run("score", *files, "--var", "GPUS=8")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith("error: the launch has 8 devices, and topology small has 4; give a topology of 8 devices")
    assert seen.err.count("\n") == 1


def test_a_job_above_the_memory_is_warned_of(run, files):
    files[0].write_text(LAUNCH.replace("--num-layers 8 --hidden-size 1024", "--num-layers 96 --hidden-size 12288"))
    seen = run("score", *files, "--time-limit", "0")
    assert "Warning: by the memory model today's job needs more than a device has" in seen.out


def test_there_is_no_file_without_a_plan(run, files, tmp_path):
    seen = run("score", *files, "--time-limit", "0", "-o", tmp_path / "plan.json")
    assert (seen.code, seen.err) == (3, f"error: no plan to write to {tmp_path}/plan.json: not searched: the time limit is 0\n")
    assert not (tmp_path / "plan.json").exists()
