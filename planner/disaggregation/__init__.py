"""The search for a stage with attention and experts on two sets of ranks, and a lower bound on the steps of all it tries."""
