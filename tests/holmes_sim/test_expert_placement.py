"""Placements of a plan's experts: steps that follow, ep groups inside nodes, files of frameworks, the table and the command."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from holmes_sim import commands, expert_files, expert_placement, printing
from holmes_sim.expert_placement import ExpertsPlaced, inside_nodes, place_experts
from sim.errors import OptionError
from sim.formats import expert_counts, planfile
from sim.plan.plan import Plan
from sim.workload.expert_counts import ExpertCounts, LayerCounts
from tests.holmes_sim.conftest import Run
from tests.sim.context_and_experts import described, nodes

SHAPE = {"experts": 16, "experts_per_token": 2, "ffn_hidden": 96}
OWN = {f"c/node{node}": tuple(float(1 + 9 * (expert % 4 == node)) for expert in range(16)) for node in range(4)}
"""Tokens of each node mostly choose the experts whose number has its remainder by 4."""


def plan(**facts: object) -> Plan:
    return described(nodes(**({"dp": 16, "ep": 16, "shape": SHAPE} | facts)))


@pytest.fixture(scope="module")
def found() -> ExpertsPlaced:
    return place_experts(plan(), ExpertCounts("by hand", (LayerCounts(None, OWN),)), replicas=16, time_limit=10.0)


def test_rows_are_the_rules_and_the_programme(found: ExpertsPlaced) -> None:
    """ep 4 is the largest whose groups are inside nodes of four devices."""
    rows = [(row.name, row.plan.config.ep, row.replicas) for row in found.rows]
    assert rows == [
        *((name, 16, 0) for name in ("round-robin", "contiguous", "balanced", "per node", "programme")),
        *((name, 16, 16) for name in ("balanced", "programme")),
        *((name, 4, 0) for name in ("contiguous", "programme")),
    ]
    assert (found.chosen.name, found.chosen.replicas) == ("programme", 16)


def test_the_programme_keeps_experts_where_their_tokens_come_from(found: ExpertsPlaced) -> None:
    """Every expert at home: of each rank's choices 40 / 52 stay on the node; one in 52 goes to each of 12 other experts."""
    contiguous, programme = (next(row for row in found.rows if row.name == name) for name in ("contiguous", "programme"))
    assert {frozenset(e % 4 for held in programme.layers[0].ranks[n : n + 4] for e in held) for n in (0, 4, 8, 12)} == {
        frozenset({n}) for n in range(4)
    }
    assert programme.is_optimal
    sent = 4 * 64 * 96 * 2 * 2  # four ranks, 64 tokens of 96 values of 2 bytes, two copies
    assert programme.out_of_node == pytest.approx(sent * 12 / 52)
    assert contiguous.out_of_node == pytest.approx(sent * 39 / 52)
    assert programme.exchange < contiguous.exchange
    assert programme.step < contiguous.step


def test_the_step_has_the_exchange_of_the_placement() -> None:
    """Without overlap and beside equal compute, steps differ by the seconds of the exchanges of all layers."""
    given = plan(microbatches=2)
    rows = place_experts(given, ExpertCounts("by hand", (LayerCounts(None, OWN),)), time_limit=10.0).rows[:5]
    assert {round(row.busiest, 9) for row in rows} == {1.0}, "one expert a rank, all equally hot"
    first = rows[0]
    for row in rows[1:]:
        exchanges = 2 * given.workload.model.layers * (row.exchange - first.exchange)
        assert row.step - first.step == pytest.approx(exchanges, rel=1e-6, abs=1e-12)


def test_tokens_that_stay_at_home_are_exchanged_in_no_time() -> None:
    own = {f"c/node{node}": tuple(float(expert // 4 == node) for expert in range(16)) for node in range(4)}
    given = replace(plan(ep=16), prediction=None)
    row = place_experts(given, ExpertCounts("by hand", (LayerCounts(None, own),)), time_limit=5.0).chosen
    assert row.out_of_node == 0.0
    assert row.plan.config.exchange is not None
    assert 0.0 < row.plan.config.exchange < 0.3, "between ranks of a node alone"


def test_groups_inside_nodes() -> None:
    inner = inside_nodes(plan())
    assert inner is not None
    assert (inner.config.ep, {group.nic for group in inner.groups if group.kind == "ep"}) == (4, {"intra_node"})
    assert inside_nodes(plan(ep=4)) is None, "they are already"


@pytest.mark.parametrize(("times", "is_named"), [(0.5, True), (0.995, False)])
def test_a_smaller_ep_that_is_faster_is_named(times: float, is_named: bool) -> None:
    """Rows of ep 4 with a step of so many times that of the chosen row, which has ep 16."""
    found = place_experts(plan(), ExpertCounts("by hand", (LayerCounts(None, {"": (1.0,) * 16}),)), time_limit=2.0)
    prediction = replace(found.chosen.plan.prediction, step_s=times * found.chosen.step)  # type: ignore[type-var]
    rows = [
        replace(row, plan=replace(row.plan, prediction=prediction)) if row.plan.config.ep == 4 else row for row in found.rows
    ]
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(printing.experts_placed(replace(found, rows=tuple(rows))))
    named = "; plan anew with --ep 4, and place the experts of that plan." in console.export_text()
    assert named == is_named


def test_a_smaller_ep_that_exceeds_memory_is_tried_with_recomputation(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = ExpertCounts("by hand", (LayerCounts(None, {"": (1.0,) * 16}),))
    monkeypatch.setattr(expert_placement, "fits", lambda given: given.config.recompute == "full")
    full = place_experts(plan(), counts, time_limit=2.0)
    assert [row.plan.config.recompute for row in full.rows if row.plan.config.ep == 4] == ["full", "full"]
    assert "needs full recomputation" in full.notes[0]
    monkeypatch.setattr(expert_placement, "fits", lambda given: False)
    none = place_experts(plan(), counts, time_limit=2.0)
    assert {row.plan.config.ep for row in none.rows} == {16}
    assert "does not fit the memory" in none.notes[0]


def test_the_file_of_holmes_sim(found: ExpertsPlaced) -> None:
    data = json.loads(expert_files.text("holmes", found))
    assert (data["format"], data["plan"]) == ("holmes-sim/expert-placement/1", planfile.digest(found.plan))
    layer = data["layers"][0]
    assert [len(held) for held in layer["ranks"]] == [2] * 16
    (block,) = layer["shares"]
    assert block["nodes"] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert block["groups"] == [list(range(16))]
    by_expert: dict[int, list[float]] = {}
    for copy in block["copies"]:
        assert copy["expert"] in layer["ranks"][copy["rank"]]
        by_expert[copy["expert"]] = [
            a + b for a, b in zip(by_expert.get(copy["expert"], [0.0] * 4), copy["shares"], strict=True)
        ]
    assert all(sums == pytest.approx([1.0] * 4, abs=1e-5) for sums in by_expert.values())


def test_the_file_of_sglang(found: ExpertsPlaced) -> None:
    """One list for each layer of the model: the expert of each slot, rank by rank."""
    slots = json.loads(expert_files.text("sglang", found))["physical_to_logical_map"]
    assert len(slots) == found.plan.workload.model.layers
    assert slots[0] == [expert for held in found.chosen.layers[0].ranks for expert in held]
    assert (len(slots[0]), set(slots[0])) == (32, set(range(16)))


def test_the_file_of_vllm_ascend(found: ExpertsPlaced) -> None:
    data = json.loads(expert_files.text("vllm-ascend", found))
    assert data["moe_layer_count"] == len(data["layer_list"]) == 2
    layer = data["layer_list"][1]
    assert (layer["layer_id"], layer["device_count"]) == (1, 16)
    assert layer["device_list"][3] == {"device_id": 3, "device_expert": list(found.chosen.layers[1].ranks[3])}


@pytest.mark.parametrize(("target", "etp", "message"), [
    ("deepspeed", 1, "--to 'deepspeed' is unknown; known: holmes, sglang, vllm-ascend"),
    ("vllm", 1, "--to 'vllm' is unknown; known: holmes, sglang, vllm-ascend; vLLM and Megatron-Core read no placement "
     "(docs/experts.md)"),
    ("sglang", 2, "--to sglang: its ranks hold whole experts, and the plan divides each among 2; use --etp 1"),
])  # fmt: skip
def test_targets_that_cannot_read_it(target: str, etp: int, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        expert_files.check(target, etp)
    assert str(caught.value) == message


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A plan file and a file of counts."""
    here, counts = tmp_path / "plan.json", tmp_path / "counts.yaml"
    here.write_text(planfile.to_json(plan()), encoding="utf-8")
    lists = "\n".join(f"      {name}: {list(map(int, tokens))}" for name, tokens in OWN.items())
    counts.write_text(
        f"format: holmes-sim/expert-counts/1\norigin: drawn by hand\nlayers:\n  - by_node:\n{lists}\n", encoding="utf-8"
    )
    return here, counts


def test_the_command(files: tuple[Path, Path], tmp_path: Path, run: Run) -> None:
    given, counts = files
    placement, placed = tmp_path / "placement.json", tmp_path / "placed.json"
    done = run(
        "place-experts", given, "--counts", counts, "--replicas", 16, "--time-limit", 10, "-o", placement,
        "--plan-output", placed, "--to", "sglang",
    )  # fmt: skip
    assert (done.code, done.err) == (0, f"Written to {placement}. Written to {placed}.\n")
    assert "programme (chosen)" in done.out
    assert "Tokens: drawn by hand." in done.out
    assert "Programme, ep 16: optimal for exchange + experts." in done.out
    assert len(json.loads(placement.read_text())["physical_to_logical_map"][0]) == 32
    told = json.loads(run("place-experts", given, "--counts", counts, "--replicas", 16, "--time-limit", 10, "--json").out)
    assert told["chosen"] == {"placement": "programme", "ep": 16, "replicas": 16}
    simulated = commands.simulate(planfile.load(placed)).prediction.step_s
    assert told["rows"][6]["step_s"] == pytest.approx(simulated)


def test_what_is_wrong_is_said_in_a_line(files: tuple[Path, Path], tmp_path: Path, run: Run) -> None:
    given, counts = files
    assert run("place-experts", given, "--counts", tmp_path / "none.yaml").err == f"error: {tmp_path}/none.yaml: no such file\n"
    done = run("place-experts", given, "--counts", counts, "--replicas", 3)
    assert done.code == 2
    assert done.err.startswith("error: --replicas 3: a multiple of ep 16 up to 240 is needed")
    assert (
        run("place-experts", given, "--counts", counts, "-o", given).err
        == f"error: {given}: given twice; it would be overwritten\n"
    )


def test_counts_are_valid_by_the_printed_schema(files: tuple[Path, Path], run: Run) -> None:
    schema = json.loads(run("schema", "expert-counts").out)
    written = expert_counts.parse("c", files[1].read_text()).value
    jsonschema.Draft202012Validator(schema).validate(written)
    written["layers"][0]["colour"] = 1
    assert not jsonschema.Draft202012Validator(schema).is_valid(written)
