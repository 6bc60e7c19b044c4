"""How many tokens chose each expert of a mixture."""

from __future__ import annotations

from sim.formats.expert_counts import ExpertCountsFacts

NAME = "expert-counts"
FORMAT = "holmes-sim/expert-counts/1"
WRITTEN_BY = ()
MODEL = ExpertCountsFacts
