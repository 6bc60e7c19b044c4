"""What can go wrong, by meaning.

HolmesError                 any error that is the user's to mend; printed as its lines, exit code 2
+-- TopologyError           a topology, model or catalogue file is wrong
+-- PlanError               a plan (or a wish about one) is wrong
|   +-- NoRoute             nothing joins devices that must communicate
|   +-- NotModelled         the plan may run, but no model here gives its costs
+-- TimelineError           a timeline is wrong, or is not of the plan it is held against
+-- Infeasible              nothing is wrong, but no plan exists; exit code 3
"""

from __future__ import annotations


class HolmesError(Exception):
    """An error of the input. `str()` of it is one line per fault, fit to be printed as it stands."""

    exit_code = 2


class TopologyError(HolmesError):
    """A topology, model or catalogue file is wrong."""


class PlanError(HolmesError):
    """A plan, or a wish about one, is wrong."""


class NoRoute(PlanError):
    """Nothing joins devices that must communicate: no NIC type that all have is linked between them."""


class NotModelled(PlanError):
    """A plan that may run on real machines, but whose costs no model here gives."""


class TimelineError(HolmesError):
    """A timeline is wrong, or is not of the plan it is held against."""


class Infeasible(HolmesError):
    """No plan meets the demands; the text says which demand fails, by how much, and what would cure it."""

    exit_code = 3
