"""A study: the scenarios of a sweep."""

from __future__ import annotations

from holmes_sim.sweeping.study import StudyFacts

NAME = "study"
FORMAT = "holmes-sim/study/1"
WRITTEN_BY = ()
MODEL = StudyFacts
