"""Ranks onto devices, leaves and rails, and the simulation of the plan that results."""
