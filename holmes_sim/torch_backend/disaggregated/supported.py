"""Checks whether this backend can execute a plan with two sets of ranks. This module does not need torch."""

from __future__ import annotations

from holmes_sim.torch_backend.supported import unsupported_workload
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import NotSupported


def check(plan: DisaggregatedPlan) -> None:
    """Raise NotSupported with all reasons why the backend cannot execute the plan, if there are any."""
    if faults := list(unsupported_workload(plan.workload)):
        raise NotSupported(f"the torch backend cannot execute this plan: {'; '.join(faults)}")
