"""Simulate a training step: hardware, workload, plan, closed forms, and the discrete-event engine.

Read the rooms in this order: workload and hardware (what exists); plan, its schedules, collectives (what is done); formats
(files); kernels, network, analytic (what it takes on an idle network); engine (what happens); results (what it means). Nothing
here knows the planner, torch or the command line."""

__version__ = "0.1.0"
