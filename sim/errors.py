"""Exception classes.

HolmesError                 any error that the user can correct; printed line by line, exit code 2
+-- TopologyError           a topology, model or catalogue file is wrong
+-- PlanError               a plan, or an option about plans, is wrong
|   +-- NoRoute             nothing joins devices that must communicate
|   +-- NotModelled         the plan may run, but its costs are not modelled
+-- TimelineError           a timeline is wrong, or belongs to another plan
+-- Infeasible              the input is right, but no plan exists; exit code 3
"""

from __future__ import annotations


class HolmesError(Exception):
    """An error of the input. `str()` gives one line per fault, ready to print."""

    exit_code = 2


class TopologyError(HolmesError):
    """A topology, model or catalogue file is wrong."""


class PlanError(HolmesError):
    """A plan, or an option about plans, is wrong."""


class NoRoute(PlanError):
    """Nothing joins devices that must communicate: no NIC type that all of them have is linked between them."""


class NotModelled(PlanError):
    """A plan that may run on real machines, but whose costs are not modelled."""


class TimelineError(HolmesError):
    """A timeline is wrong, or belongs to another plan than the one it is compared with."""


class Infeasible(HolmesError):
    """No plan meets the requirements; the text says which one fails, by how much, and what would help."""

    exit_code = 3
