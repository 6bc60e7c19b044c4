"""A plan with attention and experts on two sets of ranks, with its prediction."""

from __future__ import annotations

from sim.formats.disaggregatedfile import DisaggregatedFacts

NAME = "disaggregated"
FORMAT = "holmes-sim/disaggregated/1"
WRITTEN_BY = ("show DISAGGREGATED --json",)
MODEL = DisaggregatedFacts
