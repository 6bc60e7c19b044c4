"""Rows of numbers of one or two plans."""

from __future__ import annotations

from dataclasses import replace

from holmes_sim import commands
from holmes_sim.serving import numbers
from holmes_sim.serving.controls import edited
from sim.formats import catalog, edits
from sim.units import time_text


def rows(plans, title):
    return {row.name: row for part in numbers.parts(plans) if part.title == title for row in part.rows}


def test_a_plan_has_its_numbers_and_layout(two_plans):
    plan = two_plans[0]
    found = rows([plan], "Numbers")
    assert found["step"].values[0].startswith(f"{time_text(plan.prediction.step_s)}, 80 % range ")
    assert found["tokens/s"].values == (f"{plan.prediction.tokens_per_s:,.0f}",)
    layout = {name: row.values for name, row in rows([plan], "Layout").items()}
    assert layout == {
        "tp": ("1",), "pp": ("2",), "dp": ("2",), "microbatch size": ("1",), "microbatches": ("16",), "schedule": ("1f1b",),
        "ZeRO stage": ("1",), "recompute": ("none",), "layers": ("east 4, west 4",), "devices used": ("4 of 4",),
    }  # fmt: skip
    assert not any(row.differs for row in found.values())


def test_numbers_of_two_plans_that_differ_are_marked(two_plans):
    layout = rows(two_plans, "Layout")
    assert {name for name, row in layout.items() if row.differs} == {"microbatch size", "microbatches"}
    assert rows(two_plans, "Numbers")["step"].differs
    assert rows(two_plans, "Topology and workload") == {}


def test_what_differs_between_the_topologies_is_shown(two_plans):
    plan, other = two_plans
    wider = replace(other, topology=edited(other.topology, {"links[0].bandwidth": "39"}))
    assert rows((plan, wider), "Topology and workload") == {
        "links[0].bandwidth": numbers.Row("links[0].bandwidth", ("2 Gbit/s", "800 Gbit/s"))
    }


def test_the_verdict_compares_tokens_per_second(two_plans):
    plan = two_plans[0]
    assert numbers.verdict(plan, plan) == "Both train as many tokens per second."
    twice = replace(plan.prediction, tokens_per_s=2 * plan.prediction.tokens_per_s, step_s=plan.prediction.step_s / 2)
    faster = plan.annotated(prediction=twice)
    assert numbers.verdict(faster, plan) == "The plan trains 100.0% more tokens per second than the one beside it."
    assert numbers.verdict(plan, faster) == "The plan trains 50.0% fewer tokens per second than the one beside it."
    near = replace(plan.prediction, tokens_per_s=1.001 * plan.prediction.tokens_per_s, step_s=plan.prediction.step_s / 1.001)
    assert numbers.verdict(plan.annotated(prediction=near), plan).startswith(
        "Cannot be told apart: predicted differences below "
    )


def test_the_table_of_stages_has_memory_and_escapes_names(two_plans):
    plan = two_plans[0]
    named = commands.load("lab/lab-slow-trunk").facts()["clusters"]["east"]["node"]["devices"]
    facts = catalog.document("devices", named["type"]).value | {"name": "<b>"}
    other = replace(plan, topology=edits.edited(plan.topology, {"clusters.east.node.devices.type": facts}))
    page = numbers.stages(other, "Plan: stages")
    assert '<td>0-1</td><td class="words">&lt;b&gt;</td></tr>' in page
    assert "<b>" not in page and page.count(" GiB</td>") == 2
