"""What is printed of a plan of islands."""

from __future__ import annotations

from holmes_sim.printing.islands import certificate
from sim.plan.certificate import Axis, Certificate


def test_the_certificate_names_each_set_of_islands_once():
    tried = ("a | b", "a: batch 4 | b: batch 2", "a: 3 x 1 node: batch 2 each", "a: 3 x 1 node: batch 4, 2, 2")
    proof = Certificate("feasible", 1.0, 0.9, 0.1, "highs", False, space=(Axis("islands", tried),))
    assert "Searched: a | b, or a: 3 x 1 node; 4 divisions of the batch in all" in certificate(proof)
