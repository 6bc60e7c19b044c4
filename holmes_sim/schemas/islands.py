"""A plan of islands: the sync strategy between them, and a plan of each."""

from __future__ import annotations

from sim.formats.islandsfile import IslandsFacts

NAME = "islands"
FORMAT = "holmes-sim/islands/1"
WRITTEN_BY = ("plan TOPO --sync any --json (where islands are best)", "show ISLANDS --json")
MODEL = IslandsFacts
