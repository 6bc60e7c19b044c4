"""Measures the device at hand and its links: a catalogue entry, layer seconds that replace formulas, and fits of collectives.

`ceilings` (products, memory, attention), `layers` (the blocks that `holmes-sim run` trains with) and `probe` (collectives) need
torch; `links` (fits, and what nccl-tests wrote) and `entry` (the files) do not.
"""
