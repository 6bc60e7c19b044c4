"""The ground floor: what exists, what is asked, what happens. Knows no planner, no torch, no command line.

Read in this order: units, cluster, model, topology (what there is); plan, program, schedules, collectives, lowering (what is
done); compute, memory, routes, costs (what it takes); network, folding, engine (what happens); timeline, report (what it
means)."""

__version__ = "0.1.0"
