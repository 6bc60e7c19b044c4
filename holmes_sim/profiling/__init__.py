"""Measures this machine's device and its links: a catalogue entry, layer seconds that replace formulas, and fitted collectives.

`ceilings` (matrix products, memory, attention), `layers` (the blocks that `holmes-sim run` trains) and `probe` (collectives)
need torch. `links` (fits, output of nccl-tests) and `entry` (the files) do not.
"""
