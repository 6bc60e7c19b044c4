"""Exception classes.

HolmesError                 any error that the user can correct; printed line by line, exit code 2
+-- TopologyError           a topology, model or catalogue file is wrong
+-- OptionError             an option of a command, or an argument of a function, is wrong
+-- PlanError               a plan is inconsistent, or (its subclasses) consistent and still cannot be used
|   +-- NoRoute             nothing joins devices that must communicate
|   +-- NotDefined          no schedule, stage or collective exists for these numbers
|   +-- NotModelled         the plan may run, but its costs are not modelled
|   +-- NotSupported        a launch target, or the torch backend, cannot run the plan
+-- TimelineError           a timeline is wrong, or belongs to another plan
+-- Infeasible              the input is right, but no plan exists; exit code 3

A planner catches only the types that it expects of a candidate. Any other error must propagate: a candidate that is dropped
because of a fault of the program would raise a certified lower bound.
"""

from __future__ import annotations


class HolmesError(Exception):
    """An error of the input. `str()` gives one line per fault, ready to print."""

    exit_code = 2


class TopologyError(HolmesError):
    """A topology, model or catalogue file is wrong."""


class OptionError(HolmesError):
    """An option or argument is unknown, malformed, or does not fit the topology or the other options."""


class PlanError(HolmesError):
    """A plan or plan file contradicts itself, its workload or its fleet. Each subclass is another reason not to use a plan."""


class NoRoute(PlanError):
    """Nothing joins devices that must communicate: no NIC type that all of them have is linked between them."""


class NotDefined(PlanError):
    """No schedule, virtual stage or collective exists for these numbers of ranks, layers, microbatches or devices per host."""


class NotModelled(PlanError):
    """A plan that may run on real machines, but whose costs are not modelled."""


class NotSupported(PlanError):
    """A launch target, or the torch backend, cannot run a plan as it is written."""


class TimelineError(HolmesError):
    """A timeline is wrong, or belongs to another plan than the one it is compared with."""


class Infeasible(HolmesError):
    """No plan meets the requirements; the text says which one fails, by how much, and what would help."""

    exit_code = 3


class TooLate(Infeasible):
    """A plan exists, but the fastest one that was found takes more `days` than a training run may take."""

    def __init__(self, text: str, days: float = 0.0):
        super().__init__(text)
        self.days = days
