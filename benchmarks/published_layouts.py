"""Published layouts of mixtures of experts, simulated and ranked, beside the planner's plan of the same devices and batch.

Mixtral 8x22B on 128 and Qwen2-57B-A14B on 64 H100 are of MoE Parallel Folding (arXiv 2504.14960), with measured steps.
`telechat3.yaml` has public settings of TeleChat3's models, each with its source; one step is measured. The tables of its report
(arXiv 2512.24157) were not at hand. No constant is fitted to any of them.

For each layout a plan with its tp, pp, ep, etp and ZeRO stage is found, and one without pins for all layouts of a group. They
may have another microbatch size, schedule, vpp and recomputation than the published layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holmes_sim import cases, targets, validation
from holmes_sim.cases import Case
from holmes_sim.printing.plans import layout
from planner import api
from planner.costs.context import PlanningContext
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from sim.engine.engine import simulate
from sim.errors import Infeasible
from sim.formats import catalog
from sim.formats.edits import edited
from sim.plan.plan import Plan

TIME_LIMIT = 50.0
"""Seconds of search for each plan, as on the command line."""
GROUPS = {
    "Mixtral 8x22B, 128 H100, batch 256": (
        "folding-mixtral-8x22b-fsdp-ep-g128-s4096-gb256", "folding-mixtral-8x22b-mcore-g128-s4096-gb256",
    ),
    "Mixtral 8x22B, 128 H100, batch 1024": (
        "folding-mixtral-8x22b-fsdp-ep-g128-s4096-gb1024", "folding-mixtral-8x22b-mcore-g128-s4096-gb1024",
    ),
    "Qwen2-57B-A14B, 64 H100, batch 256": (
        "folding-qwen2-57b-a14b-fsdp-g64-s4096-gb256", "folding-qwen2-57b-a14b-tp-ep-dp-g64-s4096-gb256",
        "folding-qwen2-57b-a14b-mcore-folding-g64-s4096-gb256",
    ),
    "Qwen2-57B-A14B, 64 H100, batch 1024": (
        "folding-qwen2-57b-a14b-tp-ep-dp-g64-s4096-gb1024", "folding-qwen2-57b-a14b-mcore-folding-g64-s4096-gb1024",
    ),
    "TeleChat3-105B, 48 Ascend 910B": ("105b-48",),
    "TeleChat3-105B, 256 Ascend 910B": ("105b-256",),
    "TeleChat3-105B, 32 A100": ("105b-32",),
    "TeleChat3-36B, 16 Ascend 910B": ("36b-16",),
    "TeleChat3-36B, 2048 Ascend 910B": ("36b-2048",),
}  # fmt: skip
"""Group of layouts of equal devices, model and batch -> their cases."""


@dataclass(frozen=True, slots=True)
class Row:
    """A published layout. step_s: its simulated step in seconds; fits: whether its memory does."""

    case: Case
    plan: Plan
    step_s: float
    fits: bool


@cache
def published() -> dict[str, Case]:
    """Case of each published layout, by its name."""
    files = validation.folder() / "mixtures" / "moe_parallel_folding.yaml", Path(__file__).with_name("telechat3.yaml")
    return {case.id: case for path in files for case in cases.load(path)}


def rows(group: str) -> Iterator[Row]:
    """The layouts of a group, simulated with the facts of their software stack. Raises AssertionError if one has no plan."""
    for name in GROUPS[group]:
        case = published()[name]
        assert case.plan is not None, case.reason
        plan = validation.with_stack(validation.stack_of(case, "default")[1], case.plan)
        yield Row(case, plan, simulate(plan).step_s, fits(plan))


def planned(row: Row, pinned: bool, time_limit: float = TIME_LIMIT) -> Plan | None:
    """The planner's plan for devices, model and batch of a layout, with its degrees if `pinned`; None if no plan fits."""
    config, stack = row.plan.config, row.case.stack
    pins = Wishes(tp=config.tp, pp=config.pp, ep=config.ep, etp=config.etp, zero_stage=config.zero_stage)
    known = catalog.stack_family(stack)
    where = edited(row.plan.topology, {"stack": known}) if known else row.plan.topology
    request = targets.aimed(Request(where, row.plan.workload, pins if pinned else Wishes(), time_limit), (targets.ANY,))
    try:
        return api.plan(request, context=PlanningContext(request))
    except Infeasible:
        return None


def show(names: Iterable[str] = ()) -> None:
    """Print a Markdown table row for each layout when it is known, and the layouts of the plans below it. `names`: parts of
    the groups' names; none for all."""
    wanted = tuple(names)
    print("| group, layout | measured | simulated | planned with its degrees | planned, gap |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for group in (group for group in GROUPS if not wanted or any(name in group for name in wanted)):
        found = list(rows(group))
        free = planned(found[0], False)
        for row in found:
            one = planned(row, True)
            measured = f"{row.case.measured_s:.4g} s" if row.case.measured_s else ""
            gap = f", {free.certificate.gap:.1%}" if free and free.certificate else ""
            shown = f"{group}, {row.case.id}", measured, f"{row.step_s:.4g} s", _step(one), _step(free) + gap
            print(f"| {' | '.join(shown)} |", flush=True)
            print(f"  published: {layout(row.plan)}\n  planned: {layout(one) if one else 'none'}", flush=True)
        print(f"  planned without pins: {layout(free) if free else 'none'}", flush=True)


def _step(plan: Plan | None) -> str:
    return f"{plan.prediction.step_s:.4g} s" if plan and plan.prediction else "none"
