"""Why the launch target of a request can run its workload in no layout, such as the activation of its model; told before a
search."""

from __future__ import annotations

from dataclasses import replace

from planner.request import Request
from planner.space.runnable import fault
from planner.space.shapes import searched
from planner.space.stand_in import stand_ins
from sim.errors import Infeasible


def fault_of_every_shape(request: Request) -> str:
    """What the target of a request cannot express of all its shapes; empty where it can run one, or where shapes have unlike
    faults.

    A part of the fleet, or a smaller batch, has no other kinds of shapes than the fleet, so that it has the same fault."""
    if request.target is None:
        return ""
    parts = (request,) if request.workload.model.is_uniform else stand_ins(request)
    found = [text for part in parts for text in _faults(part)]
    return found[0] if len(set(found)) == 1 else ""


def _faults(request: Request) -> set[str]:
    """The faults of all shapes of a request; an empty one if the target can run a shape."""
    try:
        next(searched(request), None)
    except Infeasible:
        try:
            return {fault(request, shape) for shape in searched(replace(request, target=None))}
        except Infeasible:  # such as a pin that no device keeps to
            return set()
    return {""}
