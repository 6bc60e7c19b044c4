"""Plans of every shipped topology by every strategy, kept as files: what the exporters and their readers are tried on.

tests/plans/TOPOLOGY.json holds what a plan adds to its topology: degrees, stages and placement (runs of devices); its groups
follow (`sim.plan.groups.groups_of`). `python -m tests.corpus [TOPOLOGY ...]` plans anew what is named, or all that is missing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import groupby, pairwise
from pathlib import Path

from holmes_sim import commands
from planner import api, strategies
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim import __version__
from sim.hardware.cluster import Device
from sim.hardware.topology import Topology
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage

FOLDER = Path(__file__).parent / "plans"
TIME_LIMIT = 10.0
"""Seconds that a strategy searches: a plan need not be the best one, to be exported."""
RUN = re.compile(r"(.+)/node(\d+)/dev(\d+)-(\d+)")


def file_of(topology: str) -> Path:
    """Where the plans of a topology stand."""
    return FOLDER / f"{topology.replace('/', '--')}.json"


def plans(topology: str) -> Iterator[tuple[str, Plan]]:
    """(strategy, plan) of a shipped topology, of the strategies that found one."""
    where = commands.load(topology)
    for name, facts in json.loads(file_of(topology).read_text(encoding="utf-8")).items():
        if isinstance(facts, dict):
            yield name, _plan(where, name, facts)


def _plan(where: Topology, strategy: str, facts: dict[str, object]) -> Plan:
    config = ParallelConfig(**facts["config"] | {"num_microbatches": tuple(facts["config"]["num_microbatches"])})
    placement = tuple(device for run in facts["placement"] for device in _devices(run))
    bounds = [0, *facts["past_last"]]
    stages = tuple(Stage(first, last) for first, last in pairwise(bounds))
    groups = groups_of(where.fleet, config, placement)
    return Plan(where, where.workload, config, stages, placement, groups, MadeBy(strategy, __version__))


def _devices(run: str) -> Iterator[Device]:
    cluster, node, first, last = RUN.fullmatch(run).groups()
    yield from (Device(cluster, int(node), index) for index in range(int(first), int(last) + 1))


def _facts(plan: Plan) -> dict[str, object]:
    usual = asdict(ParallelConfig())
    config = {key: value for key, value in asdict(plan.config).items() if value != usual[key]}
    config["num_microbatches"] = list(plan.config.num_microbatches)
    return {"config": config, "past_last": [stage.past_last for stage in plan.stages], "placement": _runs(plan.placement)}


def _runs(placement: tuple[Device, ...]) -> list[str]:
    found = []
    for (cluster, node, _), group in groupby(
        enumerate(placement), lambda item: (item[1].cluster, item[1].node, item[1].index - item[0])
    ):
        indices = [device.index for _, device in group]
        found.append(f"{cluster}/node{node}/dev{indices[0]}-{indices[-1]}")
    return found


def make(topology: str) -> None:
    """Plan a topology by every strategy; one that finds nothing leaves its reason."""
    where = commands.load(topology)
    found: dict[str, object] = {}
    for name in strategies.names():
        question = Request(where, commands.workload_of(where), Wishes(), TIME_LIMIT)
        row = api.row(question, name, PlanningContext(question))
        found[name] = row.reason if row.plan is None else _facts(replace(row.plan, prediction=None, certificate=None))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in found.items())
    FOLDER.mkdir(exist_ok=True)
    file_of(topology).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or [name for name in commands.shipped_topologies() if not file_of(name).exists()]:
        print(name, flush=True)
        make(name)
