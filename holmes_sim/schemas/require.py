"""Requirements that a plan must keep to."""

from __future__ import annotations

from sim.formats.require_facts import RequireFile

NAME = "require"
FORMAT = "holmes-sim/require/1"
WRITTEN_BY = ()
MODEL = RequireFile
