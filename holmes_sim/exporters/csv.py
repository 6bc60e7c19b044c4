"""CSV: the rank table, one row per rank, for the user's own scripts."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from holmes_sim.launching import hosts
from holmes_sim.launching.folder import File, Launch
from planner.target import Vendors
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "a script of your own"
READERS = "pandas"
ORDER = 110
KIND = "data"
VENDORS: Vendors = "any"
EXCLUDED_VENDORS: tuple[str, ...] = ()
COLUMNS = ("rank", "host", "local_rank", "device", "node_rank", "pp", "dp", "cp", "tp", "stages", "layers", "microbatches")


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Nothing: a table has any layout."""
    return iter(())


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Nothing: a table expresses every plan."""
    return iter(())


def launch(plan: Plan) -> Launch:
    """ranks.csv and groups.csv."""
    about = "one row per rank: host, device, indices, stages and their layers ([first, past_last), several joined by `;`)"
    groups = "one row per group: its kind, ranks in ring order, NIC and transport"
    return Launch(
        {"ranks.csv": File(_table(COLUMNS, _ranks(plan)), about), "groups.csv": File(_table(_GROUP, _groups(plan)), groups)},
        "This export launches nothing: read `ranks.csv` and `groups.csv` in the script that starts your ranks.",
    )


_GROUP = ("kind", "ranks", "nic", "transport", "collective")


def _table(columns: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _ranks(plan: Plan) -> Iterator[tuple[object, ...]]:
    config = plan.config
    seats = {
        rank: (host.name, local, node) for node, host in enumerate(hosts.of_plan(plan)) for local, rank in enumerate(host.ranks)
    }
    for rank, device in enumerate(plan.placement):
        host, local, node = seats[rank]
        tp, dp_cp, pp = config.coordinates(rank)
        stages = plan.stages_of(pp)
        layers = ";".join(f"{plan.stages[index].first}-{plan.stages[index].past_last}" for index in stages)
        yield (
            rank, host, local, device, node, pp, dp_cp // config.cp, dp_cp % config.cp, tp,
            ";".join(map(str, stages)), layers, config.microbatches_of(dp_cp, pp),
        )  # fmt: skip


def _groups(plan: Plan) -> Iterator[tuple[object, ...]]:
    for group in plan.groups:
        yield group.kind, " ".join(map(str, group.ranks)), group.nic, group.transport, group.collective
