"""A plan: what runs where, with its prediction and its certificate."""

from __future__ import annotations

from sim.formats.planfile import PlanFacts

NAME = "plan"
FORMAT = "holmes-sim/plan/1"
WRITTEN_BY = ("plan TOPO --json", "plan TOPO --json-lines (last line)", "show PLAN --json")
MODEL = PlanFacts
