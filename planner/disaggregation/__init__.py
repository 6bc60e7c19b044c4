"""The search for a stage with attention and experts on two sets of ranks."""
