"""Sweeps: one topology, a grid or a list of changes to it, and a plan for each scenario."""
