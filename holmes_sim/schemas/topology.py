"""A topology: clusters, links between them, and the workload."""

from __future__ import annotations

from sim.formats.topology_facts import TopologyFacts

NAME = "topology"
FORMAT = "holmes-sim/topology/1"
WRITTEN_BY = ("show TOPO --json",)
MODEL = TopologyFacts
