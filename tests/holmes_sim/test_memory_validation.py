"""Layouts that ran or failed for want of memory, and the memory of the first rank, against what the planner says of them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from holmes_sim import cases, memory_validation, printing, validation
from sim.errors import TopologyError
from sim.kernels import memory

CASE = """\
- id: {name}
  topology:
    format: holmes-sim/topology/1
    name: two
    clusters:
      main:
        nodes: 1
        node: {{devices: {{type: a100-sxm4-80gb, count: 2}}, intra_node: nvlink3, nics: []}}
  workload:
    model: {{layers: 32, hidden: 4096, heads: 32, kv_heads: 32, ffn_hidden: 16384, vocab: 51200, mlp: gelu}}
    seq_len: 2048
    global_batch_size: 8
    precision: bf16
  config: {{pp: 2, microbatch_size: 1, recompute: full}}
  stages: [{stages}]
  stack: mine
  measured: {{{measured}}}
"""
EVEN = "{layers: [0, 16]}, {layers: [16, 32]}"
SKEWED = "{layers: [0, 2]}, {layers: [2, 32]}"


def written(folder: Path, *some: tuple[str, str]) -> Path:
    """A file of cases with these (stages, measurements)."""
    listed = "".join(CASE.format(name=f"case-{i}", stages=stages, measured=m) for i, (stages, m) in enumerate(some))
    path = folder / "mine.yaml"
    path.write_text(f"format: holmes-sim/cases/1\nsource: {{title: written for this test}}\ncases:\n{listed}", encoding="utf-8")
    return path


def test_layouts_are_counted_by_what_the_planner_calls_them(tmp_path: Path) -> None:
    """A GPT of 6.7 B parameters takes 18 bytes each: 60 GB on each of two devices, and 110 GB of one with 30 of 32 layers."""
    outcomes = [(EVEN, "outcome: ran"), (SKEWED, "outcome: ran"), (SKEWED, "outcome: failed"), (SKEWED, "outcome: failed")]
    found = cases.load(written(tmp_path, *outcomes, (EVEN, "outcome: failed"), (EVEN, "step_s: 3.0")))
    assert memory_validation.outcomes(found) == memory_validation.Outcomes(2, 1, 3, 2, 0)
    assert memory_validation.facts(found) == {
        "outcomes": {
            "ran": 2, "ran_feasible": 1, "ran_feasible_share": 0.5,
            "failed": 3, "failed_infeasible": 2, "failed_infeasible_share": 2 / 3, "left_out": 0,
        }
    }  # fmt: skip
    rows = validation.validate(found)
    assert [row.case.id for row in rows] == ["case-5"], "only this case has a step to compare with"


def test_the_shares_are_printed_and_no_empty_table_of_steps(tmp_path: Path) -> None:
    found = cases.load(written(tmp_path, (EVEN, "outcome: ran"), (SKEWED, "outcome: failed")))
    page = io.StringIO()
    Console(file=page, width=120).print(printing.validated(validation.validate(found), found))
    assert page.getvalue().splitlines() == [
        "Layouts that ran: 1 of 1 called feasible (100.0%).",
        "Layouts that ran out of memory: 1 of 1 called infeasible (100.0%).",
    ]


def test_memory_of_the_first_rank_is_compared_with_what_torch_reserves_there(tmp_path: Path) -> None:
    (case,) = cases.load(written(tmp_path, (SKEWED, "outcome: ran, first_rank_memory_gb: 10")))
    assert case.plan is not None
    first, last = memory.torch_bytes(case.plan)
    assert first < last
    ((_, predicted, error),) = memory_validation.memory_errors([case])
    assert (predicted, error) == (first, pytest.approx(first / 10e9 - 1))


def test_cases_keep_what_their_software_keeps(tmp_path: Path) -> None:
    path = written(tmp_path, (EVEN, "outcome: ran"))
    path.write_text(path.read_text().replace("stack: mine", "stack: nanotron-2025"))
    (case,) = memory_validation.with_facts(cases.load(path))
    assert case.plan is not None and "silu" in case.plan.config.memory.keeps


def test_cases_of_unknown_software_and_without_a_plan_stay_as_they_are(tmp_path: Path) -> None:
    found = cases.load(
        written(tmp_path, (EVEN, "outcome: ran"), ("{layers: [0, 31], head: true}, {layers: [31, 32]}", "outcome: ran"))
    )
    assert memory_validation.with_facts(found) == found


def test_a_case_says_which_stage_has_the_head(tmp_path: Path) -> None:
    (case,) = cases.load(written(tmp_path, ("{layers: [0, 32]}, {layers: [32, 32]}", "outcome: ran")))
    assert case.plan is not None and case.plan.head_stage == 1
    (case,) = cases.load(written(tmp_path, ("{layers: [0, 32]}, {layers: [32, 32], head: true}", "outcome: ran")))
    assert case.plan is not None and case.plan.head_stage == 1


def test_a_head_before_layers_is_a_reason_not_a_plan(tmp_path: Path) -> None:
    (case,) = cases.load(written(tmp_path, ("{layers: [0, 31], head: true}, {layers: [31, 32]}", "outcome: ran")))
    assert (case.plan, case.reason) == (None, "stages[0].head: the head follows all 32 layers; this stage ends with layer 31")
    assert memory_validation.outcomes([case]) == memory_validation.Outcomes(0, 0, 0, 0, 1)


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ("peak_memory_gb: 10", "either step_s or outcome (ran or failed)"),
        ("step_s: 3.0, outcome: ran", "either step_s or outcome (ran or failed)"),
        ("outcome: ran, peak_memory_gb: 9, first_rank_memory_gb: 9", "either peak_memory_gb or first_rank_memory_gb"),
        ("outcome: perhaps", "'ran' or 'failed'"),
    ],
)
def test_a_measurement_that_says_nothing_or_two_things_is_one_line(measured: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, (EVEN, measured))
    with pytest.raises(TopologyError) as caught:
        cases.load(path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}:20: cases[0].measured")
    assert words in line
