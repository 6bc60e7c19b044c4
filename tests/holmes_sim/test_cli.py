"""The command line as its users meet it: what stands on stdout, on stderr and on disk, and the exit code."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from holmes_sim import commands
from holmes_sim.cli import commands as cli_commands
from planner import strategies
from sim.plan import schedules

PINNED = ("--tp", "2", "--pp", "2", "--dp", "8", "--microbatch-size", "4", "--recompute", "none")
"""One shape only, so that planning takes a fraction of a second."""
HYBRID = ("plan", "holmes-hybrid-4", *PINNED, "--schedule", "1f1b")
KINDS = ("devices", "links", "nics", "models", "profiles", "stacks", "topologies", "strategies", "schedules", "collectives")
KINDS = (*KINDS[:7], "studies", *KINDS[7:], "targets")
COMMANDS = tuple(command.NAME for command in cli_commands.in_order())


@pytest.fixture(scope="session")
def plan_file(tmp_path_factory) -> Path:
    """A plan of holmes-hybrid-4, written by the command line."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    done = subprocess.run(
        [sys.executable, "-m", "holmes_sim.cli", *HYBRID, "-o", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return path


# plan


def test_plan_prints_one_document_of_the_schema_and_nothing_else(run):
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


def test_plan_writes_the_bytes_that_it_prints_and_the_same_ones_again(run, plan_file, tmp_path):
    printed = run(*HYBRID, "--json", "-o", tmp_path / "plan.json")
    assert printed.code == 0
    assert (tmp_path / "plan.json").read_text() == printed.out
    assert plan_file.read_text() == printed.out
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"], "no temporary file is left"


def test_plan_tells_an_engineer_what_it_chose(run):
    seen = run(*HYBRID)
    assert seen.code == 0
    assert "holmes-hybrid-4: gpt-3.6b (3.56 B parameters), batch 768 x 2048 tokens fp16, 32 of 32 devices" in seen.out
    assert "tp 2 | pp 2 | dp 8 | 24 microbatches of 4 | 1f1b" in seen.out
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


def test_plan_explains_why_no_other_layout(run):
    """All is pinned but the microbatch size: of those that divide a replica's share of 96, all but one lost."""
    pins = ("--tp", "2", "--pp", "2", "--dp", "8", "--recompute", "none", "--schedule", "1f1b")
    seen = run("plan", "holmes-hybrid-4", *pins, "--explain")
    assert seen.code == 0
    rows = seen.out[seen.out.index("Why no other layout") :].splitlines()
    assert rows[1].split() == ["layout", "about", "why"]
    told = [line for line in rows if line.startswith("tp 2, dp 8, mb ")]
    sizes = {"mb " + line.split("mb ")[1].split()[0].rstrip(",") for line in told}
    assert sizes == {f"mb {size}" for size in range(1, 97) if 96 % size == 0} - mine(seen.out)
    assert all("memory: " in line or ("layers on " in line and " until work comes, " in line) for line in told)
    assert "Critical path of " in seen.out


def mine(text: str) -> set[str]:
    """The microbatch size of the plan that was chosen."""
    return {f"mb {text.splitlines()[1].split(' microbatches of ')[1].split()[0]}"}


def test_an_explanation_is_words(run):
    seen = run(*HYBRID, "--explain", "--json")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith("error: --explain is told in words; leave out --json")


def test_what_lacks_memory_is_told(run):
    """18 billion parameters on 32 devices of 80 GB: some layouts have room for all layers, and some have not."""
    seen = run(
        "plan", "holmes-hybrid-4", "--model", "gpt-18b", "--time-limit", "3", "--explain", "--schedule", "1f1b", "--tp", 2
    )
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


# simulate


def test_simulate_gives_the_numbers_that_the_plan_promised(run, plan_file):
    seen = run("simulate", plan_file, "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert list(document) == ["format", "report", "simulation"]
    assert document["format"] == "holmes-sim/report/1"
    assert document["report"] == json.loads(plan_file.read_text())["prediction"]
    assert set(document["report"]) == {
        "step_s", "samples_per_s", "tokens_per_s", "tflops_per_device", "mfu", "peak_memory_bytes", "bubble_fraction",
        "exposed_communication_s", "upper_bound_fraction", "usd_per_token", "joules_per_token",
    }  # fmt: skip
    assert set(document["simulation"]) == {"seconds", "events", "ranks", "classes"}
    assert document["simulation"]["ranks"] == 32
    assert 2 <= document["simulation"]["classes"] <= 32


def test_simulate_in_words(run, plan_file):
    seen = run("simulate", plan_file)
    assert seen.code == 0
    for words in ("Stages", "step", "MFU", "bubble", "exposed communication"):
        assert words in seen.out, words
    assert seen.err.startswith("Simulated 32 ranks in "), "what differs from run to run stands on stderr"
    assert run("simulate", plan_file).out == seen.out


def test_simulate_explains_where_the_time_goes(run, plan_file):
    seen = run("simulate", plan_file, "--explain", "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert list(document) == ["format", "report", "simulation", "explanation"]
    found, step = document["explanation"], document["report"]["step_s"]
    assert list(found) == ["step_s", "ranks", "mean", "critical_path", "chain", "layers"]
    assert found["step_s"] == step
    assert sum(row["ranks"] for row in found["ranks"]) == 32
    for row in found["ranks"]:
        assert sum(row["seconds"].values()) == pytest.approx(step, rel=1e-12)
    assert sum(sum(row["seconds"].values()) for row in found["critical_path"]) == pytest.approx(step, rel=1e-12)
    assert found["mean"]["bubble"] == pytest.approx(document["report"]["bubble_fraction"] * step, rel=1e-12)
    exposed = sum(found["mean"][kind] for kind in ("tp", "pp", "dp", "embedding"))
    assert exposed == pytest.approx(document["report"]["exposed_communication_s"], rel=1e-12)


def test_simulate_explains_in_words(run, plan_file):
    plain, seen = run("simulate", plan_file), run("simulate", plan_file, "--explain")
    assert seen.code == 0
    assert seen.out.startswith(plain.out)
    words = seen.out.removeprefix(plain.out)
    for heading in ("Where a rank's ", "Critical path of ", "Critical path in order"):
        assert heading in words, heading
    rows = {line.split()[0]: line.split() for line in words.splitlines() if line}
    assert rows["stage"][1:] == ["forward", "backward", "optimizer", "tp", "pp", "dp", "embedding"]
    assert "22 x (backward, forward, send)" in words
    assert "One layer and microbatch on a100-sxm4-80gb" in words
    assert rows["qkv"][3] == "compute"


def test_what_is_read_is_not_written_over(run, plan_file, tmp_path):
    seen = run("simulate", plan_file, "--trace", plan_file)
    assert (seen.code, seen.err) == (2, f"error: {plan_file}: named twice; it would be written over\n")


def test_simulate_writes_a_trace_and_a_chart(run, plan_file, tmp_path):
    trace, chart = tmp_path / "timeline.json", tmp_path / "step.png"
    seen = run("simulate", plan_file, "--trace", trace, "--chart", chart, "--json")
    assert (seen.code, seen.err) == (0, "")
    json.loads(seen.out)
    events = json.loads(trace.read_text())["traceEvents"]
    step = json.loads(plan_file.read_text())["prediction"]["step_s"]
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(step * 1e6, rel=1e-6)
    assert chart.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.png", "timeline.json"]


# compare

QUICK = ("compare", "holmes-hybrid-4", "--strategies", "megatron,holmes", *PINNED)
ROW = [
    "name", "step_s", "samples_per_s", "tokens_per_s_per_device", "upper_bound_fraction", "slower_than_best", "planning_s",
    "reason_if_none",
]  # fmt: skip


def test_compare_prints_a_row_for_each_strategy(run):
    """Megatron's and Holmes' plans are the same here, 15 layers on either cluster: both are the fastest."""
    seen = run(*QUICK)
    assert (seen.code, seen.err) == (0, "")
    lines = [line.rstrip() for line in seen.out.splitlines()]
    assert lines[:4] == [
        "holmes-hybrid-4: gpt-3.6b (3.56 B parameters), batch 768 x 2048 tokens fp16, 32 devices",
        "pinned: --tp 2 --pp 2 --dp 8 --microbatch-size 4 --recompute none",
        "",
        "Strategies, the fastest first",
    ]
    assert lines[4].split() == ["tokens/s", "of", "upper", "slower", "planned"]
    assert lines[5].split() == ["strategy", "step", "samples/s", "per", "device", "bound", "by", "in", "layout"]
    for line, name in zip(lines[6:], ("megatron", "holmes"), strict=True):
        assert line.split()[0] == name and line.split()[6] == "fastest"
        assert line.endswith(" tp 2, pp 2, dp 8, mb 4, 1f1b: ib 15, roce 15")


def test_compare_prints_one_document_in_the_order_asked(run):
    """Thirty layers are not eight equal stages, as megatron has them; holmes takes four of each cluster."""
    pinned = ("--tp", 1, "--pp", 8, "--dp", 4, "--microbatch-size", 4, "--recompute", "none")
    seen = run("compare", "holmes-hybrid-4", "--strategies", "megatron,holmes", *pinned, "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert (list(document), document["interrupted"]) == (["rows", "interrupted"], False)
    assert [row["name"] for row in document["rows"]] == ["megatron", "holmes"]
    assert all(list(row) == ROW and row["planning_s"] > 0 for row in document["rows"])
    lost, won = document["rows"]
    assert {lost[key] for key in ROW[1:6]} == {None}
    assert lost["reason_if_none"].startswith("no layout with equal stages over all devices ")
    assert won["reason_if_none"] is None and won["slower_than_best"] == 0.0
    assert won["samples_per_s"] == pytest.approx(768 / won["step_s"], rel=1e-12)
    assert won["tokens_per_s_per_device"] == pytest.approx(768 * 2048 / won["step_s"] / 32, rel=1e-12)


def test_compare_says_why_a_strategy_has_no_plan(run):
    """Three stages are no layout of holmes; certified takes 24 of the 32 devices."""
    pinned = ("--tp", 2, "--pp", 3, "--dp", 4, "--microbatch-size", 4, "--recompute", "none")
    seen = run("compare", "holmes-hybrid-4", "--strategies", "holmes,certified", *pinned)
    assert seen.code == 0
    lines = [line.rstrip() for line in seen.out.splitlines()]
    assert lines[6].startswith("certified ") and "fastest" in lines[6] and lines[6].endswith(" (24 of 32 devices)")
    assert lines[7].split()[:6] == ["holmes", *"-----"] and lines[7].endswith("no plan, see below")
    assert lines[8:] == [
        "",
        "No plan",
        "holmes: no layout of whole stages per cluster fits the memory and the batch; use strategy certified",
    ]


def test_compare_gives_the_numbers_of_the_plans_that_it_writes_and_draws(run, tmp_path):
    folder, chart = tmp_path / "new" / "plans", tmp_path / "strategies.png"
    seen = run(*QUICK, "--json", "-o", folder, "--chart", chart)
    assert (seen.code, seen.err) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == ["holmes.json", "megatron.json"]
    for row in json.loads(seen.out)["rows"]:
        plan = json.loads((folder / f"{row['name']}.json").read_text())
        assert plan["made_by"]["strategy"] == row["name"]
        for key in ("step_s", "samples_per_s", "upper_bound_fraction"):
            assert row[key] == plan["prediction"][key]
    assert chart.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert run(*QUICK, "-o", folder, "--chart", chart).err == f"Written to {folder}. Written to {chart}.\n"


def test_compare_asks_all_strategies_unless_some_are_named(run):
    pinned = ("--tp", 2, "--pp", 2, "--dp", 2, "--microbatch-size", 1, "--schedule", "1f1b")
    rows = json.loads(run("compare", "peers/galvatron-8", *pinned, "--json").out)["rows"]
    assert [row["name"] for row in rows] == json.loads(run("list", "strategies", "--json").out)["names"]


def test_compare_ends_with_the_rows_done_so_far(run, monkeypatch):
    def stopped(question, context):
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.strategies.holmes.plan", stopped)
    seen = run(*QUICK)
    assert (seen.code, seen.err) == (0, "Interrupted: without an answer: holmes.\n")
    assert [line.split()[0] for line in seen.out.splitlines()[6:]] == ["megatron"]
    document = json.loads(run(*QUICK, "--json").out)
    assert (document["interrupted"], [row["name"] for row in document["rows"]]) == (True, ["megatron"])
    seen = run("compare", "holmes-hybrid-4", "--strategies", "holmes,megatron")
    assert (seen.code, seen.out, seen.err) == (130, "", ""), "nothing was done"


def test_a_search_that_was_stopped_has_its_best_plan_so_far(run, monkeypatch):
    from planner.strategies import megatron

    def stopped(question, context):
        context.interrupted = True
        return megatron.plan(question, context)

    monkeypatch.setattr("planner.strategies.holmes.plan", stopped)
    seen = run("compare", "holmes-hybrid-4", "--strategies", "holmes,certified,megatron", *PINNED)
    assert seen.err == "Interrupted: the plan of holmes is the best so far; without an answer: certified, megatron.\n"


def test_compare_finds_no_plan_at_all(run, tmp_path):
    """Each strategy's reason, or the one that all give; nothing on stdout, nothing written."""
    pinned = ("--tp", 2, "--pp", 3, "--dp", 4)
    seen = run("compare", "holmes-hybrid-4", "--strategies", "megatron,holmes", *pinned, "--json")
    assert (seen.code, seen.out) == (3, "")
    assert seen.err.splitlines() == [
        "error: megatron: no layout with equal stages over all devices divides the layers and the batch and fits the memory; "
        "use strategy certified",
        "error: holmes: no layout of whole stages per cluster fits the memory and the batch; use strategy certified",
    ]
    seen = run(*QUICK[:4], "--dp", "5", "-o", tmp_path, "--chart", tmp_path / "chart.png")
    assert (seen.code, seen.out) == (3, "")
    assert seen.err == (
        "error: no layout fits --dp 5; dp 5 must divide global_batch_size 768; cured, with strategy certified, by --dp 4 "
        "instead of 5\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_compare_tells_what_cannot_be_written_before_the_work(run, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "compare", lambda *_: pytest.fail("work was done"))
    seen = run(*QUICK, "--chart", tmp_path / "chart.txt")
    assert seen.err == f"error: {tmp_path / 'chart.txt'}: a picture ends in one of .png, .svg, .pdf, not in .txt\n"
    (tmp_path / "plans").write_text("a file")
    seen = run(*QUICK, "-o", tmp_path / "plans")
    assert (seen.code, seen.err) == (2, f"error: {tmp_path / 'plans'}: cannot be made: File exists\n")


# objectives


@pytest.fixture
def priced(tmp_path) -> Path:
    """holmes-hybrid-4, of which InfiniBand costs 2 USD/h and RoCE as much: without the slow border it is cheaper."""
    text = (commands.topologies_folder() / "holmes-hybrid-4.yaml").read_text()
    path = tmp_path / "priced.yaml"
    path.write_text(text.replace("count: 8}", "count: 8, price: 2.00 USD/h}"))
    return path


LITTLE = ("--tp", "2", "--dp", "8", "--microbatch-size", "4", "--recompute", "none", "--schedule", "1f1b")


def test_a_plan_tells_its_energy_and_where_there_are_prices_its_cost(run, plan_file, priced):
    promised = json.loads(plan_file.read_text())["prediction"]
    assert promised["usd_per_token"] is None
    seen = run("simulate", plan_file)
    assert f"{promised['joules_per_token']:.4g} J per token" in seen.out
    assert "USD" not in seen.out
    document = json.loads(run("plan", priced, *HYBRID[2:], "--json").out)
    tokens = 768 * 2048
    assert document["prediction"]["usd_per_token"] == pytest.approx(32 * 2 / 3600 * promised["step_s"] / tokens, rel=1e-9)
    assert "USD per million tokens" in run("plan", priced, *HYBRID[2:]).out


def test_the_cheapest_plan_is_held_against_the_fastest(run, priced, tmp_path):
    seen = run("plan", priced, *LITTLE, "--objective", "cost", "-o", tmp_path / "plan.json")
    assert seen.code == 0, seen.err
    for words in ("the fastest", "more by", "from the least cost; no plan takes less than", "USD per million tokens"):
        assert words in seen.out, words
    document = json.loads((tmp_path / "plan.json").read_text())
    jsonschema.validate(document, json.loads(run("schema", "plan").out))
    assert len({device.split("/")[0] for device in document["placement"]}) == 1
    told = document["certificate"]
    assert (told["objective"], told["objective_s"]) == ("cost", document["prediction"]["step_s"])
    assert told["gap"] == 1 - told["lower_bound_per_token"] / document["prediction"]["usd_per_token"]
    assert run("simulate", tmp_path / "plan.json").code == 0


def test_a_front_is_printed_drawn_and_written(run, priced, tmp_path):
    seen = run("plan", priced, *LITTLE, "--pareto", "-o", tmp_path / "plans", "--chart", tmp_path / "front.svg", "--json")
    assert seen.code == 0, seen.err
    document = json.loads(seen.out)
    assert document["objectives"] == ["step-time", "cost", "energy"]
    rows = document["rows"]
    assert len(rows) >= 2
    assert [row["step_s"] for row in rows] == sorted(row["step_s"] for row in rows)
    assert sorted(path.name for path in (tmp_path / "plans").iterdir()) == [f"{n}.json" for n in range(1, len(rows) + 1)]
    for number, row in enumerate(rows, 1):
        plan = json.loads((tmp_path / "plans" / f"{number}.json").read_text())
        for key in ("step_s", "samples_per_s", "usd_per_token", "joules_per_token"):
            assert row[key] == plan["prediction"][key]
        assert sum(row["devices"].values()) >= len(plan["placement"])
        assert row["config"] == plan["config"]
    assert (tmp_path / "front.svg").read_bytes()[:5] == b"<?xml"
    told = run("plan", "holmes-hybrid-4", *LITTLE, "--pareto")
    for words in ("Plans to choose from", "J per", "No cost: not every device has a price."):
        assert words in told.out, words


def test_a_missing_price_is_one_line_and_exit_code_2(run):
    seen = run("plan", "holmes-hybrid-4", "--objective", "cost")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == (
        "error: objective cost: no price known of a100-sxm4-80gb of cluster ib, a100-sxm4-80gb of cluster roce; "
        "give it in the topology, clusters.ib.node.devices.price: 2.50 USD/h\n"
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--objective", "speed"), "objective 'speed' is unknown; known: step-time, cost, energy"),
        (
            ("--objective", "energy", "--strategy", "holmes"),
            "strategy holmes plans for the step time only; leave it out, or the objective energy",
        ),
        (
            ("--pareto", "--objective", "energy"),
            "--pareto asks certified for all objectives; leave out --strategy, --objective and --explain",
        ),
        (
            ("--chart", "front.png"),
            "--chart draws what --pareto finds; `holmes-sim simulate PLAN --chart` draws a plan",
        ),
        (("--pareto", "--chart", "front.txt"), "front.txt: a picture ends in one of .png, .svg, .pdf, not in .txt"),
    ],
)
def test_what_no_objective_is_for_is_refused(run, options, line):
    seen = run("plan", "holmes-hybrid-4", *options)
    assert (seen.code, seen.out, seen.err) == (2, "", f"error: {line}\n")


# show, list, schema


def test_show_a_topology_by_name_and_by_file(run):
    named = run("show", "holmes-hybrid-4")
    by_file = run("show", commands.topologies_folder() / "holmes-hybrid-4.yaml")
    assert named.code == by_file.code == 0
    assert named.out == by_file.out
    for words in ("holmes-hybrid-4: 32 devices", "ib", "roce", "a100-sxm4-80gb", "gpt-3.6b", "Links between clusters"):
        assert words in named.out, words


def test_show_a_topology_as_json_prints_its_file(run):
    document = json.loads(run("show", "holmes-hybrid-4", "--json").out)
    assert document == yaml.safe_load((commands.topologies_folder() / "holmes-hybrid-4.yaml").read_text())


def test_show_a_plan(run, plan_file):
    seen = run("show", plan_file)
    assert seen.code == 0
    for words in ("tp 2 | pp 2 | dp 8", "Stages", "Groups", "infiniband", "roce"):
        assert words in seen.out, words
    assert json.loads(run("show", plan_file, "--json").out) == json.loads(plan_file.read_text())


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_show_draws(run, plan_file, tmp_path, ending):
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    for what in ("holmes-hybrid-4", plan_file):
        picture = tmp_path / f"picture.{ending}"
        assert run("show", what, "-o", picture).code == 0
        assert picture.read_bytes().startswith(magic)
        picture.unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_every_entry(run, kind):
    document = json.loads(run("list", kind, "--json").out)
    assert document["kind"] == kind
    assert document["names"] == sorted(document["names"]) and document["names"]
    words = run("list", kind)
    assert words.code == 0
    assert all(name in words.out for name in document["names"])


def test_list_knows_what_ships(run):
    def names(kind: str) -> set[str]:
        return set(json.loads(run("list", kind, "--json").out)["names"])

    assert {"certified", "holmes", "megatron"} <= names("strategies")
    assert {"1f1b", "gpipe", "interleaved"} <= names("schedules")
    assert {"ring", "tree", "hierarchical"} <= names("collectives")
    assert {"csv", "torchrun"} <= names("targets")
    assert {"infiniband", "roce", "ethernet"} <= names("nics")
    assert {"holmes-hybrid-4", "hethub-768"} <= names("topologies")


@functools.cache
def validator(printed: str) -> jsonschema.Draft202012Validator:
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", commands.shipped_topologies())
def test_every_shipped_topology_is_valid_by_the_printed_schema(run, name):
    printed = run("schema", "topology").out
    validator(printed).validate(yaml.safe_load((commands.topologies_folder() / f"{name}.yaml").read_text()))


def test_the_schema_forbids_unknown_keys(run):
    schema = json.loads(run("schema", "topology").out)
    data = yaml.safe_load((commands.topologies_folder() / "holmes-hybrid-4.yaml").read_text()) | {"clustres": {}}
    with pytest.raises(jsonschema.ValidationError, match="clustres"):
        jsonschema.validate(data, schema)


# wrong input: one line, exit code 2; nothing feasible: exit code 3

KNOWN_STRATEGIES = ", ".join(strategies.names())
KNOWN_SCHEDULES = ", ".join(schedules.names())
WRONG = {
    ("plan", "nope.yaml"): (2, "error: nope.yaml: no such file\n"),
    ("simulate", "nope.json"): (2, "error: nope.json: no such file\n"),
    ("show", "nope.json"): (2, "error: nope.json: no such file\n"),
    (*HYBRID, "--strategy", "foo"): (2, f"error: strategy 'foo' is unknown; known: {KNOWN_STRATEGIES}\n"),
    (*HYBRID, "--schedule", "foo"): (2, f"error: schedule 'foo' is unknown; known: {KNOWN_SCHEDULES}\n"),
    ("plan", "holmes-hybrid-4", "--recompute", "half"): (
        2,
        "error: recompute 'half' is unknown; known: none, selective, full\n",
    ),
    (*HYBRID, "--zero-stage", "4"): (2, "error: zero_stage 4 is unknown; known: 0, 1, 2, 3\n"),
    (*HYBRID, "--vpp", "2", "--schedule", "1f1b"): (
        2,
        "error: schedule 1f1b holds one stage a rank; vpp 2 needs interleaved\n",
    ),
    ("compare", "nope.yaml"): (2, "error: nope.yaml: no such file\n"),
    ("compare", "holmes-hybrid-4", "--strategies", "holmes,foo"): (
        2,
        f"error: strategy 'foo' is unknown; known: {KNOWN_STRATEGIES}\n",
    ),
    ("compare", "holmes-hybrid-4", "--strategies", ""): (2, f"error: strategy '' is unknown; known: {KNOWN_STRATEGIES}\n"),
    ("compare", "plan.json", "timeline.json"): (2, "error: plan.json: no such file\n"),
    ("compare", "holmes-hybrid-4", "plan.json"): (
        2,
        "error: holmes-hybrid-4: a topology; compare takes one topology alone, or one plan and timelines of it\n",
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
        "error: holmes-hybrid-4:1: clusters.ib.nodes: 'few' is not a whole number\n",
    ),
    ("list", "foo"): (2, f"error: 'foo' cannot be listed; known: {', '.join(KINDS)}\n"),
    ("schema", "foo"): (2, "error: there is no schema of 'foo'; known: topology, plan, study\n"),
    ("plan", "holmes-hybrid-4", "--tp", "16"): (
        3,
        "error: no layout fits --tp 16; tp 16 must fit inside a node (8 devices) and divide heads 32, ffn_hidden 12288 and "
        "vocab 51200; cured by --tp 8 instead of 16\n",
    ),
    ("plan", "holmes-hybrid-4", "--dp", "5"): (
        3,
        "error: no layout fits --dp 5; dp 5 must divide global_batch_size 768; cured by --dp 4 instead of 5\n",
    ),
    ("plan", "holmes-hybrid-4", "--ep", "2"): (
        3,
        "error: ep 2 must divide experts 0 of gpt-3.6b; cured by leaving --ep to the planner\n",
    ),
    ("plan", "holmes-hybrid-4", "--cp", "3"): (
        3,
        "error: cp 3: seq_len 2048 must be a multiple of 2 x cp; cured by --cp 2 instead of 3\n",
    ),
    ("plan", "holmes-hybrid-4", "--microbatch-size", "7"): (
        3,
        "error: no layout fits --microbatch-size 7; microbatch size 7 must divide global_batch_size 768; "
        "cured by --microbatch-size 6 instead of 7\n",
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
    ("--foo",): "no such option: --foo; holmes-sim --help names what there is",
    ("lst", "devices"): "no such command 'lst'; did you mean 'list'?",
    ("wrong",): "no such command 'wrong'; holmes-sim --help names what there is",
    ("plan", "holmes-hybrid-4", "--tp", "two"): "invalid value for '--tp': ",
    ("plan", "holmes-hybrid-4", "--tp", "0"): "invalid value for '--tp': ",
    ("plan", "holmes-hybrid-4", "--time-limit", "soon"): "invalid value for '--time-limit': ",
    ("plan", "holmes-hybrid-4", "--tp"): "option '--tp' requires an argument",
}
"""How the line begins; what typer or pydantic say themselves may change with their versions."""


@pytest.mark.parametrize("arguments", UNREADABLE, ids=lambda arguments: " ".join(arguments))
def test_a_command_line_that_cannot_be_read_gets_one_line(run, arguments):
    seen = run(*arguments)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(f"error: {UNREADABLE[arguments]}")
    assert seen.err.endswith("\n") and seen.err.count("\n") == 1


def test_nothing_asked_is_answered_by_the_help(run):
    seen = run()
    assert seen.code in (0, 2), "versions of typer differ"
    assert "holmes-sim" in seen.out and "simulate" in seen.out and seen.err == ""


def test_a_topology_is_not_a_plan(run):
    path = commands.topologies_folder() / "holmes-hybrid-4.yaml"
    seen = run("simulate", path)
    assert (seen.code, seen.out) == (2, "")
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if text.startswith("format:"))
    assert seen.err == f"error: {path}:{line}: format: this is a topology; a plan is expected (holmes-sim plan makes one)\n"


def test_a_plan_is_not_a_topology(run, plan_file):
    seen = run("plan", plan_file)
    assert (seen.code, seen.out) == (2, "")
    assert len(seen.err.splitlines()) == 1, "one line says it: this is a plan; a topology is expected"
    assert "this is a plan" in seen.err


def test_a_model_that_is_too_large_says_what_is_missing_and_what_would_cure_it(run):
    seen = run("plan", "holmes-hybrid-4", "--model", "gpt-1t", "--tp", 8)
    assert (seen.code, seen.out) == (3, "")
    assert seen.err.startswith("error: memory: gpt-1t does not fit holmes-hybrid-4: 397.1 GiB too much on stage 0 of the ")
    assert seen.err.endswith("; cured by 22 more nodes in cluster ib\n")
    assert len(seen.err.splitlines()) == 1


def test_a_pipeline_longer_than_the_model_is_not_a_matter_of_memory(run):
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


# files: complete or absent


def test_nothing_is_written_where_planning_fails(run, tmp_path):
    assert run("plan", "holmes-hybrid-4", "--dp", "5", "-o", tmp_path / "plan.json").code == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["-o", "--trace", "--chart"])
def test_a_place_that_cannot_be_written_is_one_line(run, plan_file, tmp_path, option):
    target = tmp_path / "absent" / "file.png"
    seen = run(*(HYBRID if option == "-o" else ("simulate", plan_file)), option, target)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == f"error: {target}: cannot be written: No such file or directory\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file_to_write(run, tmp_path):
    """The temporary file beside it can be written, but not put in its place: it goes away again."""
    (tmp_path / "plan.json").mkdir()
    seen = run(*HYBRID, "-o", tmp_path / "plan.json")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == f"error: {tmp_path / 'plan.json'}: cannot be written: Is a directory\n"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_an_interrupted_write_leaves_the_old_file(monkeypatch, tmp_path):
    from holmes_sim import files

    target = tmp_path / "plan.json"
    files.write(target, "old\n")

    def no(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", no)
    with pytest.raises(KeyboardInterrupt):
        files.write(target, "new\n")
    assert target.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_picture_of_an_unknown_ending_is_refused(run, plan_file, tmp_path):
    seen = run("simulate", plan_file, "--chart", tmp_path / "step.txt")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == f"error: {tmp_path / 'step.txt'}: a picture ends in one of .png, .svg, .pdf, not in .txt\n"


# help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(run, command):
    for flag in ("--help", "-h"):
        seen = run(command, flag)
        assert seen.code == 0
        assert f"Example: holmes-sim {command} " in " ".join(seen.out.split())


def test_help_names_every_command(run):
    seen = run("--help")
    assert seen.code == 0
    assert all(command in seen.out for command in COMMANDS)


def test_version(run):
    from sim import __version__

    seen = run("--version")
    assert (seen.code, seen.out, seen.err) == (0, f"holmes-sim {__version__}\n", "")


# as a process of its own


def test_a_process_prints_the_same_and_keeps_its_streams_apart(plan_file):
    done = subprocess.run(
        [sys.executable, "-m", "holmes_sim.cli", "show", str(plan_file), "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(plan_file.read_text())


def test_a_process_fails_with_its_code_and_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "holmes_sim.cli", "plan", "nope.yaml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "error: nope.yaml: no such file\n")


def test_simulate_says_what_of_a_profile_it_used(run, plan_file) -> None:
    """The A100-80 is profiled, with other models."""
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
        "error: profile 'nowhere' is neither in the catalogue, which has sailor, nor a file\n",
    )


def test_plan_of_a_topology_with_a_value_set(run):
    asked = ("plan", "holmes-hybrid-4", "--strategy", "megatron", "--tp", "8", "--microbatch-size", "4", "--json")
    plain, changed = (json.loads(run(*asked, *more).out) for more in ((), ("--set", "workload.global_batch_size=384")))
    assert (plain["workload"]["global_batch_size"], changed["workload"]["global_batch_size"]) == (768, 384)
    wider = json.loads(run(*asked, "--set", "clusters.ib.node.nics[0].bandwidth=400 Gbit/s").out)
    assert wider["topology"]["clusters"]["ib"]["node"]["nics"][0]["bandwidth"] == "400 Gbit/s"
