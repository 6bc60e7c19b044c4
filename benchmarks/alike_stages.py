"""What plans gain that say more than one degree for all stages: `python -m benchmarks alike [TOPOLOGY ...]`.

Each shipped topology is planned for any training framework, once with what a plan could say at first, and once with all that it
can say today. At first, all stages had one tp, dp, cp, ep and etp, and recomputed all their layers or none, nothing was kept on
hosts, the gradient of a tied embedding was summed whole, and replicas were alike. A plan of today that says nothing new counts
for both, if it is the faster one. Half an hour without other work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from holmes_sim import commands, requirements
from planner import api
from planner.placement.simulation import step
from planner.target import Target
from sim.formats.config_facts import BY_STAGE
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Seconds
from sim.workload.workload import Workload

LATER = (*BY_STAGE, "recompute_layers", "recompute_modules", "offload", "tied_shards")
"""Keys of a configuration that plans did not have at first."""
EQUAL = 5e-4
"""Shares of a step below which two plans count as equally fast: the steps of a table have four digits."""
HEAD = (
    "| topology | alike stages | today | saved | keys of the plan that are new | unlike pipelines | saved of alike stages |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


class Compared(NamedTuple):
    """A topology, its plan of alike stages, its plan of today, and the step of the fastest unlike pipelines; None where none
    that are faster were found."""

    name: str
    alike: Plan
    today: Plan
    pipelines_s: Seconds | None

    @property
    def saved(self) -> float:
        """The share of the step that the plan of today saves."""
        return 1 - step(self.today) / step(self.alike)


@dataclass(frozen=True, slots=True)
class _Alike:
    """What a target cannot express of a layout, and the keys that plans did not have at first."""

    target: Target | None

    def __call__(self, config: ParallelConfig, workload: Workload) -> Iterator[str]:
        yield from (f"{name}: not known at first" for name in new_keys(config))
        if self.target is not None:
            yield from self.target.unsupported_layout(config, workload)


def new_keys(config: ParallelConfig) -> tuple[str, ...]:
    """The keys of a configuration that plans did not have at first."""
    return tuple(name for name in LATER if getattr(config, name))


def compared(name: str, time_limit: Seconds = 300.0) -> Compared:
    """Both plans of a shipped topology."""
    where = commands.load(name)
    request = requirements.request(where, commands.workload_of(where), time_limit=time_limit)
    whole = request.target or Target("", "any", (), _Alike(None), lambda plan: iter(()))
    target = replace(whole, name="alike stages", unsupported_layout=_Alike(request.target))
    alike = api.plan(replace(request, target=target))
    today = commands.plan(where, time_limit=time_limit)
    if not new_keys(today.plan.config):
        alike = min(alike, today.plan, key=step)
    pipelines = today.replicas.plan if today.replicas is not None else None
    return Compared(name, alike, today.plan, today.replicas.step if pipelines is not None and today.replicas else None)


def table(every: Iterable[Compared]) -> Iterator[str]:
    """A Markdown table of the topologies whose plan of today is another one, and a line about the others."""
    yield from HEAD
    many, slower = 0, []
    for one in every:
        many += 1
        if one.saved < -EQUAL:
            slower.append(one.name)
        if abs(one.saved) >= EQUAL or one.pipelines_s is not None:
            pipelines = (
                "- | -" if one.pipelines_s is None else f"{one.pipelines_s:.4g} | {1 - one.pipelines_s / step(one.alike):.1%}"
            )
            keys = ", ".join(new_keys(one.today.config)) or "-"
            yield f"| {one.name} | {step(one.alike):.4g} | {step(one.today):.4g} | {one.saved:.1%} | {keys} | {pipelines} |"
    yield f"{many} topologies; slower today: {', '.join(slower) or 'none'}."


def show(names: list[str]) -> None:
    """Print the table, each row when it is known."""
    for line in table(map(compared, names or commands.shipped_topologies())):
        print(line, flush=True)
