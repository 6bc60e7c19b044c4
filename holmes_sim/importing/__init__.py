"""From the facts in sources to the parts of a topology: facts, catalogue names (`hardware`), clusters (`groups`), nodes.

The readers of the sources are in `holmes_sim.importers`, one file each; `holmes_sim.imported` writes the topology.
"""
