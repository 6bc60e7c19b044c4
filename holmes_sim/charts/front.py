"""Chart of the Pareto front: step time against cost and energy, one panel each, points numbered like the printed rows."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holmes_sim.charts.style import BLUE, DPI, GREY, WIDTH, Picture
from holmes_sim.front import Front, prediction
from sim.plan.plan import Plan
from sim.plan.prediction import OBJECTIVES
from sim.units import MEGA

LABELS = {"cost": "USD per million tokens", "energy": "J per token"}
"""Objective -> label of its axis."""
MARGIN = 1.5
"""Plans that cost more than this multiple of the worst plan of the front are not drawn."""


def front(found: Front) -> Figure:
    """The plans of the front as numbered points, other simulated plans as pale points."""
    shown = [objective for objective in LABELS if objective in found.objectives]
    figure = Picture(figsize=(WIDTH, 5.5), dpi=DPI, layout="constrained")
    for index, objective in enumerate(shown, 1):
        _panel(figure.add_subplot(1, len(shown), index), found, objective)
    topology, workload = found.request.topology, found.request.workload
    figure.suptitle(
        f"{topology.name} · {workload.model.name}, batch {workload.global_batch_size:,} × {workload.seq_len:,} tokens · "
        f"{topology.fleet.devices:,} devices",
        fontsize=11,
    )
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        markerscale=0.6,
        loc="outside lower center",
        ncol=2,
        frameon=False,
        fontsize=9,
    )
    return figure


def _panel(axes: Axes, found: Front, objective: str) -> None:
    """A panel for one objective."""
    others, best = ([_point(plan, objective) for plan in plans] for plans in (found.others, found.plans))
    ceiling = MARGIN * max(spent for _, spent in best)
    shown = [point for point in others if point[1] <= ceiling]
    if others:
        beyond = f" ({len(others) - len(shown)} outside the axes)" if len(shown) < len(others) else ""
        x, y = ([point[axis] for point in shown] for axis in (0, 1))
        axes.plot(x, y, "o", color=GREY, markersize=7, label=f"other simulated plans{beyond}", gid="others")
    label = "Pareto front: no simulated plan is better in all objectives"
    x, y = ([point[axis] for point in best] for axis in (0, 1))
    axes.plot(x, y, "o", color=BLUE, markersize=17, label=label, gid="front")
    for number, point in enumerate(best, 1):
        axes.annotate(str(number), point, color="white", fontsize=10, fontweight="bold", ha="center", va="center")
    axes.set(xlabel="step (s, simulated)", ylabel=LABELS[objective])
    axes.margins(0.1)
    axes.spines[["top", "right"]].set_visible(False)


def _point(plan: Plan, objective: str) -> tuple[float, float]:
    """(step time in seconds, value of the objective in the unit of its axis)."""
    number = getattr(prediction(plan), OBJECTIVES[objective])
    return prediction(plan).step_s, number * (MEGA if objective == "cost" else 1)
