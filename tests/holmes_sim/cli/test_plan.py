"""The command holmes-sim plan: its document, its file, its tables, and options that change the workload or the strategy."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from holmes_sim import commands
from holmes_sim.cli.options import edited, values_of
from sim.errors import HolmesError
from tests.holmes_sim.cli.arguments import HYBRID, PINNED
from tests.more import more


def test_a_target_needs_a_shortlist(run):
    seen = run(*HYBRID, "--to", "flagscale")
    assert (seen.code, seen.err) == (
        2, "error: --to needs --shortlist; `holmes-sim export PLAN --to TARGET` writes the launch of one plan\n"
    )  # fmt: skip


def test_plan_prints_one_document_of_the_schema(run):
    seen = run(*HYBRID, "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    jsonschema.validate(document, json.loads(run("schema", "plan").out))
    assert document["format"] == "holmes-sim/plan/1"
    assert {key: document["config"][key] for key in ("tp", "pp", "dp")} == {"tp": 2, "pp": 2, "dp": 8}
    assert document["config"]["num_microbatches"] == [24] * 8
    assert document["made_by"]["strategy"] == "certified"
    assert 0 < document["certificate"]["lower_bound_s"] <= document["certificate"]["objective_s"]
    assert document["certificate"]["objective_s"] == document["prediction"]["step_s"]
    least, most = document["step_range_s"]
    assert least < document["prediction"]["step_s"] < most and document["guessed_rates"] == []


def test_plan_writes_the_bytes_that_it_prints(run, plan_file, tmp_path):
    printed = run(*HYBRID, "--json", "-o", tmp_path / "plan.json")
    assert printed.code == 0
    assert (tmp_path / "plan.json").read_text() == printed.out
    assert plan_file.read_text() == printed.out
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"], "no temporary file is left"


def test_plan_prints_the_layout_and_its_certificate(run):
    seen = run(*HYBRID)
    assert seen.code == 0
    assert "holmes-hybrid-4: gpt-3.6b (3.56 B parameters), batch 768 x 2048 tokens fp16, 32 of 32 devices" in seen.out
    assert "tp 2 | pp 2 | dp 8 | 24 microbatches of 4 | 1f1b" in seen.out
    assert re.search(r"step +[\d.]+ s, 80 % range \d+\.\d+ to \d+\.\d+ s\n", seen.out)
    for word in (
        "Stages",
        "Groups",
        "NIC",
        "infiniband",
        "roce",
        "ethernet",
        "step",
        "MFU",
        "megatron",
        "holmes",
        "Certificate: ",
        "Searched: tp 2, pp 2, dp 8, microbatch size ",
    ):
        assert word in seen.out, word
    assert seen.err.startswith("Planned in ")


def test_plan_explains_why_other_layouts_lost(run):
    """Only the microbatch size is free: of the sizes that divide a replica's 96 samples, all but the chosen one are explained.
    Sizes of 32 and more lack memory: they have one row."""
    pins = ("--tp", "2", "--pp", "2", "--dp", "8", "--recompute", "none", "--schedule", "1f1b")
    seen = run("plan", "holmes-hybrid-4", *pins, "--explain")
    assert seen.code == 0
    rows = seen.out[seen.out.index("Why other layouts are slower or do not fit") :].splitlines()
    assert rows[1].split() == ["layout", "estimate", "why"]
    lost = [line for line in rows if line.startswith("tp 2, dp 8, mb ")]
    sizes = {"mb " + line.split("mb ")[1].split()[0].rstrip(",") for line in lost}
    assert sizes == {f"mb {size}" for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)} - chosen_size(seen.out)
    assert sum("mb 32 and more" in line for line in lost) == 1
    assert all("memory: " in line or ("layers on " in line and ": begins at " in line) for line in lost)
    assert "Critical path of " in seen.out


def chosen_size(text: str) -> set[str]:
    """The microbatch size of the chosen plan."""
    return {f"mb {text.splitlines()[1].split(' microbatches of ')[1].split()[0]}"}


def test_an_explained_plan_is_one_document(run, tmp_path):
    """The plan inside is the one that --json prints alone and -o writes; its explanation is that of `simulate`."""
    seen = run(*HYBRID, "--explain", "--json", "-o", tmp_path / "plan.json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert list(document) == ["format", "plan", "explanation", "verdicts", "requirements"]
    assert document["plan"] == json.loads((tmp_path / "plan.json").read_text())
    again = json.loads(run("simulate", tmp_path / "plan.json", "--explain", "--json").out)
    assert document["explanation"] == again["explanation"]
    (verdict,) = document["verdicts"]
    assert (verdict["tp"], verdict["dp"], verdict["schedule"], document["requirements"]) == (2, 8, "1f1b", [])


@more
def test_missing_memory_is_reported(run):
    """18 billion parameters on 32 devices of 80 GB: some layouts fit the memory and some do not."""
    pins = ("--schedule", "1f1b", "--tp", 2, "--recompute", "none")
    seen = run("plan", "holmes-hybrid-4", "--model", "gpt-18b", "--time-limit", "3", "--explain", *pins)
    assert seen.code == 0
    assert "memory: " in seen.out and " layouts lack memory. " in seen.out


def test_flags_override_the_workload_of_the_file(run):
    seen = run(
        "plan", "holmes-hybrid-4", "--model", "gpt-1.7b", "--global-batch-size", 64, "--seq-len", 1024, *PINNED, "--json"
    )
    workload = json.loads(seen.out)["workload"]
    assert (workload["global_batch_size"], workload["seq_len"]) == (64, 1024)
    assert workload["model"]["name"] == "gpt-1.7b"


@pytest.mark.parametrize("strategy", ["megatron", "holmes"])
def test_plan_by_another_strategy(run, strategy):
    document = json.loads(run(*HYBRID, "--strategy", strategy, "--json").out)
    assert document["made_by"]["strategy"] == strategy
    assert "certificate" not in document


def test_set_changes_a_value_of_the_topology(run):
    command = ("plan", "holmes-hybrid-4", "--strategy", "megatron", "--tp", "8", "--microbatch-size", "4", "--json")
    unchanged, changed = (json.loads(run(*command, *more).out) for more in ((), ("--set", "workload.global_batch_size=384")))
    assert (unchanged["workload"]["global_batch_size"], changed["workload"]["global_batch_size"]) == (768, 384)
    wider = json.loads(run(*command, "--set", "clusters.ib.node.nics[0].bandwidth=400 Gbit/s").out)
    assert wider["topology"]["clusters"]["ib"]["node"]["nics"][0]["bandwidth"] == "400 Gbit/s"


def test_plan_with_a_stack_says_so_and_keeps_it(run, tmp_path):
    """The stack of Megatron-LM in 2021 is slower than the default; simulate predicts the same step from the plan file."""
    pins = ("--tp", "1", "--pp", "1", "--microbatch-size", "8", "--recompute", "none")
    usual = json.loads(run("plan", "holmes-infiniband-4", *pins, "--json").out)
    seen = run("plan", "holmes-infiniband-4", *pins, "--stack", "megatron-2021", "-o", tmp_path / "plan.json")
    assert seen.code == 0
    assert "Software stack megatron-2021, not the default one." in seen.err
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["topology"]["stack"]["name"] == "megatron-2021"
    assert document["prediction"]["step_s"] > usual["prediction"]["step_s"]
    again = json.loads(run("simulate", tmp_path / "plan.json", "--json").out)
    assert again["report"]["step_s"] == document["prediction"]["step_s"]


def test_a_plan_says_that_it_rests_on_guessed_rates(run, tmp_path):
    """The curve of matrix products of T4 is a guess, that of V100 agrees with measured layers: `list devices` marks them."""
    pinned = ("--strategy", "megatron", "--tp", 1, "--pp", 1, "--microbatch-size", 1, "--recompute", "none")
    seen = run("plan", "peers/amp-16", *pinned, "-o", tmp_path / "plan.json")
    assert "This prediction rests on guessed rates of t4.\n" in seen.out
    guessed = ["t4"]
    assert json.loads((tmp_path / "plan.json").read_text())["guessed_rates"] == guessed
    assert json.loads(run("simulate", tmp_path / "plan.json", "--json").out)["guessed_rates"] == guessed
    run("report", tmp_path / "plan.json", "-o", tmp_path / "report.html", "--strategies", "none")
    assert "<dd>rests on guessed rates of t4</dd>" in (tmp_path / "report.html").read_text()


def test_explain_prints_the_work_of_the_search(run):
    """The pins leave one layout of degrees."""
    seen = run(*HYBRID, "--explain")
    assert seen.code == 0
    assert re.search(r"layout +all +opened +no memory +quick bound +deadline test +dominated +evaluated +left open\n", seen.out)
    assert re.search(r"degrees and recomputation +1 ", seen.out)
    assert re.search(r"plans simulated +\d+ +\d+\.\d\d\n", seen.out)


def test_a_strategy_without_a_proof_prints_no_work(run):
    seen = run(*HYBRID, "--strategy", "megatron", "--explain")
    assert seen.code == 0 and "Work of the search" not in seen.out


def test_settings_are_mappings_as_files_write_them():
    """Of JSON and of YAML, whose keys need no quotes; what is neither is told."""
    topology = commands.load("holmes-hybrid-4")
    written = [edited(topology, [f"workload.adapter={text}"]).workload for text in ('{"r": 16}', "{r: 16}")]
    assert [workload.adapter.r for workload in written] == [16, 16]
    with pytest.raises(HolmesError, match=r"^--set:1: "):
        edited(topology, ["workload.adapter={r: [16}"])
    assert values_of(["links[0].bandwidth=[1 Gbit/s, 10 Gbit/s]"]) == {"links[0].bandwidth": ["1 Gbit/s", "10 Gbit/s"]}


def test_settings_need_only_be_right_together():
    """A cluster and the links that name it are left out in any order; of settings of one key the last one counts."""
    topology = commands.load("holmes-hybrid-4")
    for settings in (["clusters.roce=null", "links=[]"], ["links=[]", "clusters.roce=null"]):
        assert [cluster.name for cluster in edited(topology, settings).fleet.clusters] == ["ib"]
    assert edited(topology, ["clusters.ib.nodes=5", "clusters.ib.nodes=3"]).fleet.cluster("ib").nodes == 3
