"""Plans of islands from Python and on the command line: planned, printed, drawn, simulated, shown, and refused."""

from __future__ import annotations

import dataclasses
import json

import pytest

import holmes_sim as hs
from holmes_sim import charts
from holmes_sim.islands_targets import launch_fault
from sim.errors import OptionError
from sim.formats import islandsfile
from sim.sync import Sync

PINS = ("--tp", "1", "--pp", "1", "--microbatch-size", "1", "--schedule", "1f1b", "--time-limit", "10")
TRUNK = ("plan", "lab/lab-slow-trunk", *PINS, "--set", "links[0].bandwidth=100 Mbit/s")


@pytest.fixture(scope="module")
def islands(tmp_path_factory):
    """A file of a plan of islands."""
    where = hs.edited(hs.load("lab/lab-slow-trunk"), {"links[0].bandwidth": "100 Mbit/s"})
    found = hs.plan_islands(where, sync="diloco=30,int8", tp=1, pp=1, microbatch_size=1, schedule="1f1b").plan
    path = tmp_path_factory.mktemp("islands") / "islands.json"
    path.write_text(islandsfile.to_json(found))
    return path


def test_plan_prints_the_strategies_and_what_is_given_up(run, tmp_path):
    path = tmp_path / "islands.json"
    done = run(*TRUNK, "--sync", "any", "-o", path)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].endswith("4 of 4 devices in 2 islands")
    assert lines[1].startswith("sync streaming-diloco, every ")
    names = [line[2:].split(",")[0].split()[0] for line in lines if line.startswith(("  ", "> "))]
    assert {"exact", "every-step", "diloco", "streaming-diloco", "local-sgd", "co2", "adaptive-sgd"} <= set(names)
    assert len([line for line in lines if line.startswith("> streaming-diloco")]) == 1
    assert "It gives up: not the result of synchronous training: islands differ for a bounded number of steps" in done.out
    assert "Certificate: with this sync strategy, no searched islands take less than " in done.out
    assert isinstance(hs.read_islands(path), hs.IslandsPlan)


def test_plan_says_who_launches_the_islands(run):
    done = run(*TRUNK, "--sync", "diloco=30")
    assert "Launched by torchrun; not by torchtitan, prime (`export --to NAME` says why)." in done.out


def test_a_target_must_launch_islands(run):
    done = run(*TRUNK, "--sync", "diloco=30", "--for", "megatron")
    assert (done.code, done.out) == (3, "")
    assert "no plan with --sync diloco=30: megatron launches no islands; torchrun, torchtitan, prime do" in done.err
    assert run(*TRUNK, "--sync", "diloco=30", "--for", "torchrun").code == 0


def test_how_many_wrong_islands_are_withstood(run, islands, tmp_path):
    path = tmp_path / "krum.json"
    path.write_text(islands.read_text().replace('"aggregation": "mean"', '"aggregation": "krum"'))
    line = next(line for line in run("simulate", path).out.splitlines() if line.startswith("wrong islands that it withstands"))
    assert line.endswith(" 0 of 2; 5 islands withstand one")
    facts = json.loads(run("simulate", path, "--json").out)
    assert facts["robustness"] == {"withstands": 0, "efficiency": 0.5}
    assert json.loads(run("simulate", islands, "--json").out)["robustness"] is None


def test_plan_with_an_aggregation(run, tmp_path):
    path = tmp_path / "islands.json"
    done = run(*TRUNK, "--sync", "diloco=30,int8,median", "-o", path)
    assert "> diloco 30, int8, median" in done.out
    assert "noise of the result as of the mean of 2 of 2 islands" in " ".join(done.out.split())
    assert "What a token is worth is not published for this strategy" in done.out
    assert hs.read_islands(path).sync == hs.Sync("diloco", 30, compression="int8", aggregation="median")


def test_islands_of_single_devices_that_stream_their_parameters(run, tmp_path):
    path = tmp_path / "peers.json"
    words = ("plan", "lab/lab-slow-trunk", "--offload", "parameters", "--for", "none", "--time-limit", "5", "-o", path)
    assert run(*words, "--sync", "diloco=30").code == 0
    plan = hs.read_islands(path)
    assert [island.config.offload for island in plan.islands] == [("optimizer", "parameters")] * 2
    assert [(len(island.placement), island.config.schedule) for island in plan.islands] == [(1, "gpipe")] * 2
    assert run("simulate", path).code == 0
    assert run(*words).code == 0
    one = hs.read_plan(path)
    assert one.certificate.lower_bound_s <= one.prediction.step_s == pytest.approx(hs.simulate(one).timeline.step_s)
    refused = run("run", path, "--local")
    assert (refused.code, refused.out) == (2, "")
    assert "offload parameters (optimizer)" in refused.err


def test_an_exact_plan_is_an_ordinary_plan(run, tmp_path):
    path = tmp_path / "plan.json"
    done = run(*TRUNK, "--set", "links[0].bandwidth=1 Tbit/s", "--sync", "every-step", "-o", path, "--json")
    assert json.loads(done.out)["format"] == "holmes-sim/islands/1"
    assert path.read_text() == done.out
    one = run("plan", "holmes-infiniband-4", *PINS[4:], "--tp", "2", "--pp", "2", "--sync", "any", "--json")
    assert json.loads(one.out)["format"] == "holmes-sim/plan/1"


def test_simulate_and_show_say_the_same(run, islands, tmp_path):
    simulated, shown = run("simulate", islands), run("show", islands)
    assert simulated.code == 0
    assert simulated.out == shown.out
    assert "tokens of synchronous training" in simulated.out
    assert json.loads(run("simulate", islands, "--json").out)["price"] == "bounded"
    assert json.loads(run("show", islands, "--json").out) == json.loads(islands.read_text())
    assert run("simulate", islands, "--chart", tmp_path / "outer.png").code == 0
    assert (tmp_path / "outer.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--sync", "dilco"), "--sync 'dilco': dilco is unknown; known: exact, any, local-steps, adaptive-sgd"),
        (("--sync", "any", "--explain"), "--sync uses strategy certified and the step time; leave out --strategy"),
        (
            ("--sync", "any", "--set", "require.last_stage=east"),
            "require.last_stage east: each island has a last stage of its own",
        ),
        (
            ("--sync", "any", "--set", "require.stages=[{stage: 1, cluster: east}]"),
            "require.stages, stage 1 on east: each island has stages of its own; leave it out with --sync",
        ),
    ],
)
def test_wishes_that_are_refused(run, arguments, why):
    done = run(*TRUNK, *arguments)
    assert (done.code, done.out) == (2, "")
    assert why in done.err


def test_an_island_that_leaves_and_comes_back(run, islands):
    once = " ".join(run("simulate", islands, "--leave", "1@2h:30min").out.split())
    assert "Island 1 leaves after 2 h: the others lose " in once
    assert "It is back 30 min later: island 0 sends it 116.4 MiB at the next start of an outer period, the others wait " in once
    elastic = json.loads(run("simulate", islands, "--leave", "node:100h:2h", "--json").out)["elastic"]
    assert elastic["islands"][0]["leaves_every_s"] == 180_000  # two nodes


def test_goodput_with_islands_that_leave(run, islands, tmp_path):
    words = ("goodput", islands, "--checkpoint", "60s", "--restart", "10min")
    done = run(*words, "--leave", "island:100h:2h", "--leave", "node:500h:1h", "--days", 5, "--seeds", 2, "--tokens", "1B")
    assert "Islands that leave and come back (island every 100 h for 2 h, node every 500 h for 1 h)" in done.out
    assert "Simulated, 5 days, 2 seeds: " in done.out
    assert "One synchronous run that stops until all are back: " in " ".join(done.out.split())
    elastic = json.loads(run(*words, "--leave", "island:100h:2h", "--days", 1, "--seeds", 1, "--json").out)["elastic"]
    assert elastic["tokens_per_s"]["useful"] < elastic["tokens_per_s"]["never_leaving"]
    assert "write for example island:100h:2h" in run(*words, "--leave", "island:100h").err


def test_only_islands_leave(run, tmp_path):
    plan = tmp_path / "plan.json"
    run(*TRUNK, "--set", "links[0].bandwidth=1 Tbit/s", "-o", plan)
    for words in (("goodput", plan, "--checkpoint", "60s", "--restart", "10min"), ("simulate", plan)):
        done = run(*words, "--leave", "island:100h:2h")
        assert (done.code, done.out) == (2, "")
        assert "--leave is for plans of islands (holmes-sim plan --sync)" in done.err


def test_simulate_refuses_options_of_plans(run, islands):
    assert "a plan of islands takes no --trace" in run("simulate", islands, "--explain").err


def test_from_python(islands):
    plan = hs.read_islands(islands)
    found = hs.simulate_islands(plan)
    assert repr(found).startswith("lab-slow-trunk: sync diloco, every 30 steps, int8, ")
    assert found.worth is not None
    assert charts.outer_periods(found).axes[0].get_xlabel() == "seconds"
    legend = charts.outer_periods(found).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()][-1] == "end of an outer period"
    with pytest.raises(OptionError, match="simulate_islands: inner: 1 given, one for each of 2 islands is needed"):
        hs.simulate_islands(plan, (1.0,))


def test_the_frame_has_a_row_for_each_strategy():
    answer = hs.plan_islands(hs.load("lab/lab-slow-trunk"), sync="local-steps<=8", tp=1, pp=1, microbatch_size=1)
    assert list(answer.frame.columns) == [
        "sync", "islands", "tokens_per_s", "token_worth", "effective_tokens_per_s", "price",
    ]  # fmt: skip
    assert repr(answer).startswith("lab-slow-trunk: sync ")
    assert len(answer.frame) == len(answer.rows())


def test_sync_strategies_are_listed(run):
    assert "diloco" in run("list", "sync").out
    assert "powersgd" in run("list", "compressions").out
    assert "krum" in run("list", "aggregations").out


def test_the_command_trunk(run, tmp_path):
    picture = tmp_path / "t.svg"
    words = ("--bandwidths", "1 Mbit/s, 100 Gbit/s", "--sync", "diloco=30,int8", "--time-limit", "2", "--chart", picture)
    done = run("trunk", "lab/lab-slow-trunk", "--global-batch-size", "1024", *words)
    assert done.code == 0
    assert "diloco 30, int8 gives more tokens/s than exact training above " in done.out
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--bandwidths", "1 Gbit/s, 3"), "--bandwidths: '3' is not a rate: write a number and a unit, such as 200 Gbit/s"),
        (("--sync", "diloco<=4"), "--sync 'diloco<=4' allows 6 settings; write one, such as diloco=30,int8"),
        (("--bandwidths", "1 Gbit/s"), "at least two bandwidths are needed"),
    ],
)
def test_wrong_words_for_trunk(run, words, why):
    done = run("trunk", "lab/lab-slow-trunk", "--global-batch-size", "1024", *words)
    assert (done.code, done.out) == (2, "")
    assert why.split(":")[0] in done.err


def test_what_is_assumed_of_the_links_is_said(run):
    edited = ("links[0].bandwidth=2 Gbit/s", "links[0].latency=12 ms")  # untuned, a connection carries 1.4 Gbit/s
    words = (*TRUNK, "--sync", "diloco=30", *(word for edit in edited for word in ("--set", edit)))
    assert "Warning: TCP between east and west is assumed to fill the link; untuned, one connection" in run(*words).out
    limited = run(*words, "--set", "links[0].loss=0.0001").out
    assert "Warning: TCP between east and west: at most " in limited
    trunk = (
        "trunk",
        "lab/lab-slow-trunk",
        "--sync",
        "diloco=30,none",
        "--time-limit",
        "2",
        "--bandwidths",
        "1 Gbit/s, 9 Gbit/s",
    )
    edits = ("--set", "links[0].latency=12 ms", "--set", "links[0].loss=0.0001")
    assert "TCP between east and west carries at most " in run(*trunk, *edits).out


def test_a_target_refuses_islands_with_all_its_reasons(islands):
    """torchft has no adaptive SGD and no compression but int8; of several plans, the one with the fewest reasons is told."""
    plan = hs.read_islands(islands)
    fault = launch_fault(plan.topology, "torchtitan")
    wrong = dataclasses.replace(plan, sync=Sync("adaptive-sgd", 4, compression="bf16"))
    assert fault(wrong).startswith("torchtitan cannot express islands[0].mlp gelu: ")
    assert "; nor strategy adaptive-sgd: " in fault(wrong)
    assert "; nor compression bf16: " in fault(wrong)
    assert len(fault(plan)) < len(fault(wrong))
