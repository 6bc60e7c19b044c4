"""What is printed of a plan of islands."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

import holmes_sim as hs
from holmes_sim import printing
from holmes_sim.islands import PlannedIslands
from holmes_sim.printing.islands import certificate, heading
from planner.islands.allowed_sync import parse
from planner.islands.search import plan_with_sync
from sim.formats.edits import edited
from sim.plan.certificate import Axis, Certificate
from sim.sync import Sync
from sim.workload.adapter import Adapter
from tests.planner.islands.fleets import request, three_clusters
from tests.sim.islands.builders import islands_plan, machines


def text_of(planned: PlannedIslands) -> str:
    """What is printed of planned islands, in one line."""
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(printing.planned_islands(planned))
    return " ".join(console.export_text().split())


def test_the_certificate_names_each_set_of_islands_once():
    tried = ("a | b", "a: batch 4 | b: batch 2", "a: 3 x 1 node: batch 2 each", "a: 3 x 1 node: batch 4, 2, 2")
    proof = Certificate("feasible", 1.0, 0.9, 0.1, "highs", False, space=(Axis("islands", tried),))
    assert "Searched: a | b, or a: 3 x 1 node; 4 divisions of the batch in all" in certificate(proof)


def test_compressed_messages_give_up_exact_messages_and_no_islands():
    """All four devices are used by two stages, between which the messages are compressed."""
    planned = hs.plan_islands(hs.load("lab/lab-slow-trunk"), sync="exact,int8", time_limit=5, pp=4, dp=1)
    text = text_of(planned)
    assert "not the result of synchronous training: messages of the pipeline between clusters send rounded values." in text
    assert "islands differ" not in text


def test_the_heading_tells_adapters():
    plan = islands_plan(machines(), Sync("every-step"))
    tuned = [replace(one, workload=replace(one.workload, adapter=Adapter(4))) for one in plan.islands]
    assert "frozen" not in heading(plan)
    assert "B trained in adapters of rank 4), batch" in heading(replace(plan, islands=tuple(tuned)))


def test_a_cluster_that_is_left_out_is_named_with_what_it_would_give():
    """With the third cluster each exchange takes a hundred times as long."""
    where = edited(three_clusters(), {"links[1].bandwidth": "1 Mbit/s", "links[2].bandwidth": "1 Mbit/s"})
    answer = plan_with_sync(request(where), parse("diloco=30,none"))
    every = {"ib", "roce", "eth"}
    three = max(
        row.speed for row in answer.every if {device.cluster for one in row.plan.islands for device in one.placement} == every
    )
    said = text_of(PlannedIslands(answer, 0.0))
    assert f"eth is idle: the best plan found that uses it, too (diloco 30), gives {three:,.0f} effective tokens/s." in said
