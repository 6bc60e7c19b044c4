"""Wrong input is one line on stderr and exit code 2; an infeasible request is one line and exit code 3."""

from __future__ import annotations

import json

import pytest

from holmes_sim import commands, schemas
from planner import strategies
from sim.plan import schedules
from tests.holmes_sim.cli.arguments import HYBRID, KINDS

KNOWN_STRATEGIES = ", ".join(strategies.names())
KNOWN_SCHEDULES = ", ".join(schedules.names())
MAKES = "; `holmes-sim plan TOPOLOGY -o plan.json` makes a plan\n"
NO_PLAN = ": this is a topology; a plan is expected (`holmes-sim plan holmes-hybrid-4 -o plan.json` makes one)\n"
WRONG = {
    ("plan", "nope.yaml"): (2, "error: nope.yaml: no such file\n"),
    ("plan", "holmes-hybird-4"): (
        2,
        "error: holmes-hybird-4: no such file, and no shipped topology has this name; did you mean 'holmes-hybrid-4'?\n",
    ),
    ("plan", "metis-129"): (
        2,
        "error: metis-129: no such file, and no shipped topology has this name; `holmes-sim list topologies` shows them\n",
    ),
    ("simulate", "nope.json"): (2, f"error: nope.json: no such file{MAKES}"),
    ("show", "nope.json"): (2, f"error: nope.json: no such file{MAKES}"),
    ("simulate", "holmes-hybrid-4"): (2, f"error: holmes-hybrid-4{NO_PLAN}"),
    ("report", "holmes-hybrid-4", "-o", "report.html"): (2, f"error: holmes-hybrid-4{NO_PLAN}"),
    ("export", "holmes-hybrid-4", "--to", "megatron", "-o", "launch"): (2, f"error: holmes-hybrid-4{NO_PLAN}"),
    ("run", "holmes-hybrid-4", "--local"): (2, f"error: holmes-hybrid-4{NO_PLAN}"),
    ("lab", "holmes-hybrid-4"): (2, f"error: holmes-hybrid-4{NO_PLAN}"),
    ("replan", "holmes-hybrid-4", "--lost", "ib/node0"): (2, f"error: holmes-hybrid-4{NO_PLAN}"),
    ("goodput", "holmes-hybrid-4", "--checkpoint", "60s", "--restart", "10min"): (2, f"error: holmes-hybrid-4{NO_PLAN}"),
    (*HYBRID, "--strategy", "foo"): (2, f"error: strategy 'foo' is unknown; known: {KNOWN_STRATEGIES}\n"),
    (*HYBRID, "--schedule", "foo"): (2, f"error: schedule 'foo' is unknown; known: {KNOWN_SCHEDULES}\n"),
    ("plan", "holmes-hybrid-4", "--recompute", "half"): (
        2,
        "error: recompute 'half' is unknown; known: none, selective, full, block\n",
    ),
    (*HYBRID, "--zero-stage", "4"): (2, "error: zero_stage 4 is unknown; known: 0, 1, 2, 3\n"),
    (*HYBRID, "--vpp", "2", "--schedule", "1f1b"): (
        2,
        "error: schedule 1f1b has one stage per rank; vpp 2 needs schedule interleaved\n",
    ),
    ("compare", "nope.yaml"): (2, "error: nope.yaml: no such file\n"),
    ("compare", "holmes-hybrid-4", "--strategies", "holmes,foo"): (
        2,
        f"error: strategy 'foo' is unknown; known: {KNOWN_STRATEGIES}\n",
    ),
    ("compare", "holmes-hybrid-4", "--strategies", ""): (2, f"error: strategy '' is unknown; known: {KNOWN_STRATEGIES}\n"),
    ("compare", "plan.json", "timeline.json"): (2, f"error: plan.json: no such file{MAKES}"),
    ("compare", "holmes-hybrid-4", "plan.json"): (
        2,
        "error: holmes-hybrid-4: a topology; compare takes one topology, several plans, or a plan and its timelines\n",
    ),
    ("compare", "holmes-hybrid-4", "holmes-hybrid-6"): (
        2,
        "error: compare takes one topology, not 2: holmes-hybrid-4 holmes-hybrid-6\n",
    ),
    ("plan", "holmes-hybrid-4", "--set", "clusters.ib.nodes"): (
        2,
        "error: --set 'clusters.ib.nodes' should be KEY=VALUE, such as clusters.ib.node.nics[0].bandwidth='400 Gbit/s'\n",
    ),
    ("plan", "holmes-hybrid-4", "--set", "clusters.ib.nodes=few"): (
        2,
        "error: holmes-hybrid-4 with edits: clusters.ib.nodes: 'few' is not a whole number\n",
    ),
    ("sweep", "holmes-hybrid-4"): (
        2,
        "error: holmes-hybrid-4: this is a topology; say what varies, such as plan.tp=1,2, or give a study\n",
    ),
    ("sweep", "nosuch"): (
        2,
        "error: nosuch: neither a study file nor a shipped study; known: both-nics, lab-layouts, trunk-and-batch\n",
    ),
    ("list", "foo"): (2, f"error: 'foo' cannot be listed; known: {', '.join(KINDS)}\n"),
    ("schema", "foo"): (2, f"error: schema 'foo' is unknown; known: {', '.join(schemas.names())}\n"),
    ("plan", "holmes-hybrid-4", "--tp", "16"): (
        3,
        "error: no layout fits --tp 16; tp 16 must fit inside a node (8 devices) and divide heads 32, ffn_hidden 12288 and "
        "vocab 51200; remedy: --tp 8 instead of 16\n",
    ),
    ("plan", "holmes-hybrid-4", "--dp", "5", "--zero-stage", "3"): (
        3,
        "error: no layout fits --dp 5 --zero-stage 3; dp 5 must divide global_batch_size 768; remedy: --dp 4 instead of 5\n",
    ),
    ("plan", "holmes-hybrid-4", "--ep", "2"): (
        3,
        "error: ep 2 must divide experts 0 of gpt-3.6b; remedy: leaving --ep to the planner\n",
    ),
    ("plan", "holmes-hybrid-4", "--cp", "3"): (
        3,
        "error: cp 3: seq_len 2048 must be a multiple of 2 x cp; remedy: --cp 2 instead of 3\n",
    ),
    ("plan", "holmes-hybrid-4", "--microbatch-size", "7"): (
        3,
        "error: no layout fits --microbatch-size 7; microbatch size 7 must divide global_batch_size 768; "
        "remedy: --microbatch-size 6 instead of 7\n",
    ),
}


@pytest.mark.parametrize("arguments", WRONG, ids=lambda arguments: " ".join(arguments))
def test_wrong_input_gets_one_line_and_an_exit_code(run, arguments):
    seen = run(*arguments)
    assert (seen.code, seen.out, seen.err) == (WRONG[arguments][0], "", WRONG[arguments][1])


MONTH = "holmes-sim goodput plan.json --fail device:50000h --checkpoint 60s --restart 10min"
UNREADABLE = {
    ("goodput", "plan.json"): f"missing option '--checkpoint'; for example: {MONTH}",
    ("goodput", "plan.json", "--checkpoint", "60s"): f"missing option '--restart'; for example: {MONTH}",
    ("export", "plan.json"): "missing option '--to'; for example: holmes-sim export plan.json --to megatron -o launch",
    ("list",): "missing argument 'KIND'; for example: holmes-sim list devices",
    ("list", "--jsn"): "no such option: --jsn; did you mean --json?",
    ("list", "devices", "--foo"): "no such option: --foo",
    ("list", "devices", "links"): "got unexpected extra argument",
    ("plan", "holmes-hybrid-4", "--precision", "fp8"): "no such option: --precision; --set workload.precision=VALUE sets it",
    ("simulate", "plan.json", "--precision", "fp8"): "no such option: --precision",
    ("--foo",): "no such option: --foo; holmes-sim --help lists all commands",
    ("lst", "devices"): "no such command 'lst'; did you mean 'list'?",
    ("wrong",): "no such command 'wrong'; holmes-sim --help lists all commands",
    ("plan", "holmes-hybrid-4", "--tp", "two"): "invalid value for '--tp': ",
    ("plan", "holmes-hybrid-4", "--tp", "0"): "invalid value for '--tp': ",
    ("plan", "holmes-hybrid-4", "--time-limit", "soon"): "invalid value for '--time-limit': ",
    ("plan", "holmes-hybrid-4", "--tp"): "option '--tp' requires an argument",
}
"""How each line begins; the rest of a message of typer or pydantic may change with their versions."""


@pytest.mark.parametrize("arguments", UNREADABLE, ids=lambda arguments: " ".join(arguments))
def test_a_command_line_that_cannot_be_read_gets_one_line(run, arguments):
    seen = run(*arguments)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(f"error: {UNREADABLE[arguments]}")
    assert seen.err.endswith("\n") and seen.err.count("\n") == 1


def test_a_topology_in_place_of_a_plan_is_refused(run):
    path = commands.topologies_folder() / "holmes-hybrid-4.yaml"
    seen = run("simulate", path)
    assert (seen.code, seen.out) == (2, "")
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if text.startswith("format:"))
    made = f"`holmes-sim plan {path} -o plan.json` makes one"
    assert seen.err == f"error: {path}:{line}: format: this is a topology; a plan is expected ({made})\n"


def test_a_plan_in_place_of_a_topology_is_refused(run, plan_file):
    seen = run("plan", plan_file)
    assert (seen.code, seen.out) == (2, "")
    assert len(seen.err.splitlines()) == 1, "one line: this is a plan; a topology is expected"
    assert "this is a plan" in seen.err


def test_a_model_that_is_too_large_is_refused_with_a_remedy(run):
    seen = run("plan", "holmes-hybrid-4", "--model", "gpt-1t", "--tp", 8)
    assert (seen.code, seen.out) == (3, "")
    assert seen.err.startswith("error: memory: gpt-1t does not fit holmes-hybrid-4: stage 0 of the nearest layout ")
    assert "(79.2 GiB less a head-room of 0.08) of device a100-sxm4-80gb by 403.6 GiB; " in seen.err
    assert seen.err.endswith(
        "; remedy: 28 more nodes in cluster ib (--set clusters.ib.nodes=30), or --set workload.adapter.r=16, "
        "for fine-tuning only: it trains adapters (LoRA), not the weights of the model\n"
    )
    assert len(seen.err.splitlines()) == 1


def test_more_stages_than_layers_are_refused_without_mention_of_memory(run):
    """30 layers in 100 stages: the line names pp, the layers and the devices."""
    seen = run("plan", "holmes-hybrid-4", "--pp", "100", "--tp", 1, "--recompute", "none")
    assert (seen.code, seen.out) == (3, "")
    assert "memory" not in seen.err
    assert "pp 100" in seen.err


def test_a_degree_of_zero_is_refused(run):
    seen = run("plan", "holmes-hybrid-4", "--tp", "0")
    assert (seen.code, seen.out) == (2, "")
    assert "--tp" in seen.err


def test_a_broken_plan_file_names_line_and_key(run, plan_file, tmp_path):
    data = json.loads(plan_file.read_text())
    data["config"]["tq"] = 2
    broken = tmp_path / "plan.json"
    broken.write_text(json.dumps(data, indent=1))
    line = next(n for n, text in enumerate(broken.read_text().splitlines(), 1) if '"tq"' in text)
    seen = run("simulate", broken)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(f"error: {broken}:{line}: config.tq: unknown key; known: ")
    assert len(seen.err.splitlines()) == 1
