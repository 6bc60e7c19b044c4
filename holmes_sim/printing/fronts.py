"""Table of a Pareto front of step time, cost and energy: one row per plan, the fastest first."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.front import Front, prediction
from holmes_sim.printing.comparisons import heading
from holmes_sim.printing.layouts import degrees, layers_by_cluster
from holmes_sim.printing.tables import grid
from sim.plan.plan import Plan
from sim.plan.prediction import OBJECTIVES
from sim.results import cost_energy
from sim.units import MEGA, time_text

HEADERS = {"cost": "USD per\nM tokens", "energy": "J per\ntoken"}
MISSING_FACT = {"cost": "a price", "energy": "watts"}


def front(found: Front) -> Group:
    """Heading, table, and which objectives are left out because a device lacks a price or power."""
    pinned = str(found.request.wishes)
    parts: list[Text | Table] = [heading(found.request), *([Text(f"pinned: {pinned}")] if pinned else []), Text()]
    parts += [
        _table(found),
        Text(f"{len(found.others)} other plans were simulated; each is worse than one of these in all objectives."),
    ]
    left_out = [objective for objective in HEADERS if objective not in found.objectives]
    return Group(*parts, *(Text(f"No {objective}: not every device has {MISSING_FACT[objective]}.") for objective in left_out))


def _table(found: Front) -> Table:
    shown = [objective for objective in HEADERS if objective in found.objectives]
    table = grid("Plans to choose from", "#", "step", "samples/s", *(HEADERS[name] for name in shown), "devices", "layout")
    for number, plan in enumerate(found.plans, 1):
        predicted = prediction(plan)
        numbers = {name: getattr(predicted, OBJECTIVES[name]) for name in shown}
        spent = (f"{value * (MEGA if name == 'cost' else 1):.4g}" for name, value in numbers.items())
        table.add_row(
            str(number), time_text(predicted.step_s), f"{predicted.samples_per_s:.4g}", *spent, _devices(plan), _layout(plan)
        )
    return table


def _devices(plan: Plan) -> str:
    """Number of ranks, and in brackets the number of devices of their nodes if it is larger."""
    paid = sum(count for _, count in cost_energy.occupied(plan))
    ranks = plan.config.world_size
    return str(ranks) if paid == ranks else f"{ranks} ({paid})"


def _layout(plan: Plan) -> str:
    return f"{degrees(plan)}, {plan.config.schedule}: {layers_by_cluster(plan)}"
