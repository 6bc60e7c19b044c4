"""What `holmes-sim init` writes: the description of a fleet from hosts that are asked (`host_probe`, `host_list`), from sources
(`holmes_sim.imported`) or from answers of a person (`questionnaire`), with guesses for the rest (`defaults`) and a comment for
each key (`commented`).
"""
