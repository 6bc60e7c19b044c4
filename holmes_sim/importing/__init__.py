"""What sources tell of a fleet (`facts`), which parts of the catalogue that is (`hardware`), the topology of it (`imported`).

The readers of the sources stand in `holmes_sim.importers`, one file each.
"""
