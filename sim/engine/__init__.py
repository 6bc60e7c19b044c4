"""The discrete-event simulation of a step: engine, communication, steady state, symmetry reduction, faults, the timeline."""
