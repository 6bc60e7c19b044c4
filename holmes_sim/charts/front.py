"""Plans that trade step time for cost and energy: a panel for each, points numbered as the printed rows."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holmes_sim.charts.style import BLUE, DPI, GREY, WIDTH, Picture
from holmes_sim.front import Front, prediction
from sim.plan.plan import Plan
from sim.plan.prediction import OBJECTIVES
from sim.units import MEGA

LABELS = {"cost": "USD per million tokens", "energy": "J per token"}
ROOM = 1.5
"""What takes more than so many times what the worst of the front does lies beyond the frame."""


def front(found: Front) -> Figure:
    """The plans of the front as numbered points, the others that were played as pale ones."""
    shown = [objective for objective in LABELS if objective in found.objectives]
    figure = Picture(figsize=(WIDTH, 5.5), dpi=DPI, layout="constrained")
    for place, objective in enumerate(shown, 1):
        _panel(figure.add_subplot(1, len(shown), place), found, objective)
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
    others, best = ([_point(plan, objective) for plan in plans] for plans in (found.others, found.plans))
    ceiling = ROOM * max(spent for _, spent in best)
    shown = [point for point in others if point[1] <= ceiling]
    if others:
        beyond = f" ({len(others) - len(shown)} beyond the frame)" if len(shown) < len(others) else ""
        x, y = ([point[axis] for point in shown] for axis in (0, 1))
        axes.plot(x, y, "o", color=GREY, markersize=7, label=f"other plans that were played{beyond}", gid="others")
    label = f"plans that none beats in {'everything' if len(found.objectives) > 2 else 'both'}"
    x, y = ([point[axis] for point in best] for axis in (0, 1))
    axes.plot(x, y, "o", color=BLUE, markersize=17, label=label, gid="front")
    for number, point in enumerate(best, 1):
        axes.annotate(str(number), point, color="white", fontsize=10, fontweight="bold", ha="center", va="center")
    axes.set(xlabel="step (s, simulated)", ylabel=LABELS[objective])
    axes.margins(0.1)
    axes.spines[["top", "right"]].set_visible(False)


def _point(plan: Plan, objective: str) -> tuple[float, float]:
    """(seconds of a step, the objective's number as its axis has it)."""
    number = getattr(prediction(plan), OBJECTIVES[objective])
    return prediction(plan).step_s, number * (MEGA if objective == "cost" else 1)
