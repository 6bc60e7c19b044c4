"""Plans that trade speed, money and what sync strategies between islands give up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

from holmes_sim import islands, plan_numbers, targets
from holmes_sim.islands_targets import launch_fault
from holmes_sim.pins import Pins, pinned
from planner.islands.allowed_sync import parse
from planner.islands.fronts import comparable, front
from planner.islands.row_limits import usd_per_token
from planner.islands.search import plan_with_sync
from planner.islands.sync_rows import SyncRow
from planner.request import Request, Wishes
from sim.hardware.topology import Topology
from sim.plan.islands import IslandsPlan
from sim.workload.workload import Workload

FORMAT = "holmes-sim/islands-pareto/1"


@dataclass(frozen=True, slots=True)
class IslandsFront:
    """rows: the plans of the front, the fastest first; others: comparable plans that are no better than one of them in
    anything; unknown: number of plans that are not compared, since the worth of their tokens is unknown."""

    request: Request
    sync: str
    rows: tuple[SyncRow, ...]
    others: tuple[SyncRow, ...]
    unknown: int
    interrupted: bool = False

    def __repr__(self) -> str:
        return (
            f"{self.request.topology.name}: {len(self.rows)} plans to choose from, the fastest with sync {self.rows[0].short}"
        )

    @property
    def has_costs(self) -> bool:
        """Whether the cost of every plan is known, and compared."""
        return all(usd_per_token(row) is not None for row in (*self.rows, *self.others))

    def facts(self) -> dict[str, Any]:
        """The front as plain data (format holmes-sim/islands-pareto/1)."""
        return {
            "format": FORMAT,
            "allowed": self.sync,
            "rows": [_facts(row) for row in self.rows],
            "other_plans": len(self.others),
            "plans_of_unknown_worth": self.unknown,
            "interrupted": self.interrupted,
        }


def devices(row: SyncRow) -> int:
    """Number of devices with a rank."""
    plans = row.plan.islands if isinstance(row.plan, IslandsPlan) else (row.plan,)
    return sum(plan.config.world_size for plan in plans)


def _facts(row: SyncRow) -> dict[str, Any]:
    islands_of = [list(names) for names in row.islands]
    return {
        **plan_numbers.of_row(row).facts(),
        "usd_per_effective_token": usd_per_token(row),
        "devices": devices(row),
        "islands": islands_of,
    }


def pareto_islands(
    where: Topology,
    workload: Workload | None = None,
    sync: str = "any",
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    target: str = targets.ANY,
    **pins: Unpack[Pins],
) -> IslandsFront:
    """Find plans that trade speed, money and what is given up, exact plans and plans of islands, as `plan_islands`.

    Cost is left out if a device has no price. Raises Infeasible, OptionError."""
    wishes = pinned("pareto_islands", wishes, pins)
    request = islands.request_of(where, workload, wishes, time_limit, target)
    answer = plan_with_sync(request, parse(sync), progress, launch_fault(where, target), each_alone=True)
    rows, compared = front(answer.every), comparable(answer.every)
    kept = {id(row) for row in rows}
    others = tuple(row for row in compared if id(row) not in kept)
    return IslandsFront(request, sync, rows, others, len(answer.every) - len(compared), answer.interrupted)
