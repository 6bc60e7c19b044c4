"""What is printed of a plan of islands."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

import holmes_sim as hs
from holmes_sim import printing
from holmes_sim.printing.islands import certificate, heading
from sim.plan.certificate import Axis, Certificate
from sim.sync import Sync
from sim.workload.adapter import Adapter
from tests.sim.islands.builders import islands_plan, machines


def test_the_certificate_names_each_set_of_islands_once():
    tried = ("a | b", "a: batch 4 | b: batch 2", "a: 3 x 1 node: batch 2 each", "a: 3 x 1 node: batch 4, 2, 2")
    proof = Certificate("feasible", 1.0, 0.9, 0.1, "highs", False, space=(Axis("islands", tried),))
    assert "Searched: a | b, or a: 3 x 1 node; 4 divisions of the batch in all" in certificate(proof)


def test_compressed_messages_give_up_exact_messages_and_no_islands():
    """All four devices are used by two stages, between which the messages are compressed."""
    planned = hs.plan_islands(hs.load("lab/lab-slow-trunk"), sync="exact,int8", time_limit=5, pp=4, dp=1)
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(printing.planned_islands(planned))
    text = " ".join(console.export_text().split())
    assert "not the result of synchronous training: messages of the pipeline between clusters send rounded values." in text
    assert "islands differ" not in text


def test_the_heading_tells_adapters():
    plan = islands_plan(machines(), Sync("every-step"))
    tuned = [replace(one, workload=replace(one.workload, adapter=Adapter(4))) for one in plan.islands]
    assert "frozen" not in heading(plan)
    assert "B trained in adapters of rank 4), batch" in heading(replace(plan, islands=tuple(tuned)))
