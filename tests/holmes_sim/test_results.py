"""What notebooks see: results say in one line what they are, and are tidy frames with units in the names of the columns."""

from __future__ import annotations

import io
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

import holmes_sim as hs
from holmes_sim import printing
from holmes_sim.changes import Change
from holmes_sim.outcomes import Outcome
from holmes_sim.plan_numbers import PlanNumbers
from holmes_sim.results import Compared
from holmes_sim.whatif import WhatIf
from planner.api import Row
from planner.request import Request
from sim.engine.timeline import Span
from sim.plan.certificate import Certificate
from sim.plan.prediction import Prediction

PINS = hs.Wishes(tp=1, pp=2, dp=2, microbatch_size=1, schedule="1f1b", recompute="none")
PROMISED = Prediction(2.0, 16.0, 16_384.0, 1.0, 0.1, (1.0, 1.0), 0.25, 0.1, 0.5)


@pytest.fixture(scope="module")
def answer():
    return hs.plan(hs.load("lab/lab-hybrid-nics"), strategy="megatron", wishes=PINS)


@pytest.fixture(scope="module")
def plan(answer):
    """The plan with numbers written by hand."""
    return replace(answer.plan, prediction=PROMISED, certificate=Certificate("optimal", 2.0, 1.9, 0.05, "HiGHS", False))


def test_each_result_is_one_line(answer, plan):
    assert repr(plan.topology) == (
        "lab-hybrid-nics: ib 2 x 1 a100-sxm4-80gb, roce 2 x 1 a100-sxm4-80gb; lab-gpt, batch 32 x 1024 tokens fp16"
    )
    assert repr(plan) == "lab-hybrid-nics: lab-gpt, tp 1, pp 2, dp 2, mb 1, 1f1b, a step of 2 s"
    assert repr(replace(plan, prediction=None)) == "lab-hybrid-nics: lab-gpt, tp 1, pp 2, dp 2, mb 1, 1f1b"
    assert repr(replace(answer, plan=plan)) == f"{plan!r}, at most 5.0% from the best"
    run = hs.simulate(plan)
    assert repr(replace(run, prediction=PROMISED)) == (
        "lab-hybrid-nics: lab-gpt, a simulated step of 2 s, 16,384 tokens/s, bubble 25.0%"
    )
    spans = (Span(0, "compute", "F0", "F", 0.0, 1.0),)
    made = replace(run.timeline, name="by hand", step_s=2.0, alike=((0, 1), (2, 3)), spans=spans)
    assert repr(made) == "by hand: simulated step of 2 s, 4 ranks in 2 classes, 1 spans"


def test_a_strategy_without_a_plan_stands_last(plan):
    question = Request(plan.topology, plan.workload)
    found = Compared(question, ("a", "b"), (Row("a", None, "a: no memory"), Row("b", plan)))
    assert repr(found) == "lab-hybrid-nics: 1 of 2 strategies have a plan; b is the fastest, with a step of 2 s"
    assert list(found.frame["name"]) == ["b", "a"]
    assert found.frame.loc[0, "step_s"] == 2.0
    assert list(found.frame["reason_if_none"].fillna("")) == ["", "no memory"]
    assert repr(replace(found, rows=found.rows[:1])) == "lab-hybrid-nics: none of 1 strategies has a plan"


def test_the_changes_are_a_frame(plan):
    node = Outcome(Change("a node", (("clusters.ib.nodes", 3),)), PlanNumbers(1.0, 32_768.0, 0.05), 1.0, 4.0, "planned")
    none = Outcome(Change("no memory", ()), None, None, None, "planned", "it does not fit")
    found = WhatIf(plan, (node, none), 1.0)
    assert repr(found) == "lab-hybrid-nics: 16,384 tokens/s, 2 changes; the best: a node, +100.0%"
    assert repr(WhatIf(plan, (none,), 1.0)) == "lab-hybrid-nics: 16,384 tokens/s, 1 changes, none with a plan"
    wanted = {
        "change": ["a node", "no memory"], "step_s": [1.0, None], "tokens_per_s": [32_768.0, None], "gain": [1.0, None],
        "gain_at_most": [2 / 0.95 - 1, None], "gain_known": [True, False], "cost_usd_per_h": [4.0, None],
        "gain_per_usd_per_h": [0.25, None], "how": ["planned", "planned"], "gap": [0.05, None],
        "present_plan_step_s": [None, None], "reason_if_none": [None, "it does not fit"],
    }  # fmt: skip
    pd.testing.assert_frame_equal(found.frame, pd.DataFrame(wanted))


def test_a_simulated_step_is_two_frames(plan):
    run = hs.simulate(plan)
    assert list(run.frame.columns) == [
        "pp_rank", "clusters", "layers", "compute_s", "exposed_communication_s", "bubble_s", "peak_memory_bytes",
        "memory_limit_bytes",
    ]  # fmt: skip
    assert list(run.frame["layers"]) == [4, 4]
    assert list(run.frame["clusters"]) == ["ib", "roce"]
    whole = run.frame["compute_s"] + run.frame["exposed_communication_s"] + run.frame["bubble_s"]
    assert list(whole) == pytest.approx([run.timeline.step_s] * 2)
    assert len(run.spans) == len(run.timeline.spans)
    assert list(run.spans.columns) == [
        "rank",
        "ranks",
        "lane",
        "name",
        "kind",
        "start_s",
        "end_s",
        "stage",
        "microbatch",
        "group",
    ]
    work = run.spans[run.spans["kind"] == "F"]
    assert set(work["microbatch"]) == set(range(16))
    assert (work["ranks"]).sum() == 4 * 16, "four ranks, sixteen microbatches each"
    assert run.spans.loc[run.spans["kind"] == "collective", "microbatch"].isna().all()


def test_a_notebook_shows_the_line_and_the_table(answer, plan):
    for one in (answer, hs.simulate(plan)):
        html = one._repr_html_()
        assert html.startswith(f"<p>{one!r}</p><table")
        assert "<th>compute_s</th>" in html
    html = WhatIf(plan, (Outcome(Change("a <node>", ()), PlanNumbers(1.0, 2.0), 1.0, None, "planned"),), 1.0)._repr_html_()
    assert "a &lt;node&gt;" in html
    assert "cost_usd_per_h" not in html, "a column that is empty is left out"


def test_charts_are_at_hand():
    drawn = hs.charts.topology(hs.load("lab/lab-hybrid-nics"))
    assert drawn._repr_png_().startswith(b"\x89PNG"), "Jupyter shows it, pyplot imported or not"
    assert hs.validation.folder().is_dir()


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda plan: hs.plan("lab"), "plan: where: a topology is expected, not 'lab'; hs.load(name or file) gives one"),
        (lambda plan: hs.what_if("lab"), "what_if: where: a topology is expected, not 'lab'; hs.load(name or file) gives one"),
        (lambda plan: hs.simulate("plan"), "simulate: given: a plan is expected, not 'plan'; hs.plan(topology).plan is one"),
        (
            lambda plan: hs.what_if(plan.topology, menu=()),
            "menu: at least one change is needed; leave out the menu to use the default one",
        ),
        (lambda plan: hs.trouble(plan, jitter="1%", seeds=[]), "seeds: at least one seed is needed"),
    ],
)
def test_what_is_no_topology_or_plan_is_one_line(plan, call, line):
    with pytest.raises(hs.HolmesError) as refused:
        call(plan)
    assert str(refused.value) == line


@pytest.mark.parametrize(("step", "marked"), [(2.05, True), (2.0, False), (2.5, False)])
def test_a_plan_marks_plans_that_cannot_be_told_apart_from_it(answer, plan, monkeypatch, step, marked):
    """The plan's step is 2 s; layouts are told apart from a difference of 10 % on."""
    monkeypatch.setattr("holmes_sim.resolution.resolution", lambda fitted, several: 1.1)
    other = replace(plan, prediction=replace(PROMISED, step_s=step))
    shown = Console(width=120, record=True, file=io.StringIO())
    shown.print(printing.planned(replace(answer, plan=plan, baselines=(Row("other", other),))))
    text = shown.export_text()
    assert (f"~ {step / 2 - 1:.1%}" in text) is marked
    assert ("~ cannot be told apart: predicted differences below 10% are ordered wrongly in more than one of five" in text) is (
        marked
    )
