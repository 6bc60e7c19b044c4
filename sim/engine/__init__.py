"""The discrete-event simulation of a step: engine, steady state, symmetry reduction, faults, and the timeline it returns."""
