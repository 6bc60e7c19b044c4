"""The option --profile: measured layers in plan and simulate, and profiles that cannot be read."""

from __future__ import annotations

import json

import pytest


def test_simulate_reports_what_it_used_of_a_profile(run, plan_file) -> None:
    """The profile has the A100-80, but with other models."""
    seen = run("simulate", plan_file, "--profile", "sailor")
    assert seen.code == 0
    assert "Compute of a100-sxm4-80gb: formula: no model of the shape of gpt-3.6b is profiled." in seen.err
    assert seen.out == run("simulate", plan_file).out


def test_plan_uses_a_profile_and_writes_it_into_the_plan(run, tmp_path) -> None:
    """Four microbatches of 24 x (7.746 + 20.338) + 0.220 + 48.491 ms; Adam: 8.146 ms x 405.268 / 130.3 million parameters."""
    (tmp_path / "topo.yaml").write_text(
        "format: holmes-sim/topology/1\nname: one\n"
        "clusters: {c: {nodes: 1, node: {devices: {type: titan-rtx, count: 1}, intra_node: pcie3}}}\n"
        "workload:\n  model: {layers: 24, hidden: 1024, heads: 16, ffn_hidden: 4096, vocab: 50272, tied_embeddings: false}\n"
        "  global_batch_size: 4\n  seq_len: 2048\n  precision: tf32\n"
    )
    pinned = ("--microbatch-size", "1", "--recompute", "none", "-o", tmp_path / "plan.json", "--json")
    seen = run("plan", tmp_path / "topo.yaml", "--profile", "sailor", *pinned)
    assert seen.code == 0
    step = json.loads(seen.out)["prediction"]["step_s"]
    assert step == pytest.approx(2.916244, rel=1e-6)
    again = run("simulate", tmp_path / "plan.json", "--json")
    assert json.loads(again.out)["report"]["step_s"] == step
    assert json.loads(seen.out)["topology"]["profile"]["precision"] == "tf32"


def test_a_profile_that_is_wrong_or_missing_ends_with_exit_code_2(run, plan_file, tmp_path) -> None:
    (tmp_path / "mine.yaml").write_text("format: holmes-sim/profile/1\nprecision: tf32\nlayer_profiles: []\n")
    seen = run("simulate", plan_file, "--profile", tmp_path / "mine.yaml")
    assert (seen.code, seen.err) == (2, f"error: {tmp_path}/mine.yaml:3: layer_profiles: at least one is needed\n")
    seen = run("validate", "--profile", "nowhere")
    assert (seen.code, seen.err) == (
        2,
        "error: profile 'nowhere' is neither a file nor in the catalogue; known: sailor\n",
    )
