"""Costs of candidate pipelines before they are simulated: node classes, mixed stages, and the planning context they share."""
