"""Whether each plan for a target is exported to it: `python -m benchmarks exports [options] [TOPOLOGY ...]`.

Each shipped topology, or each named one, is planned for each training framework, for any of them, and for no target, with a
proof, within `--time-limit` seconds. A plan for a framework is exported to it, one for any framework to each framework that can
run it, and one for no target to each launcher. Traces (chakra) are a target of their own. Prints a line for each refused export
and each target without a plan, and a Markdown table of their numbers. Ends with exit code 1 if an export was refused. Half an
hour without other work.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from holmes_sim import commands, exporters, exporting, requirements, targets
from planner import api
from sim.errors import HolmesError, Infeasible
from sim.formats.documents import parse
from sim.formats.edits import edited
from sim.plan.plan import Plan

NO_EDITS: Mapping[str, object] = MappingProxyType({})
TRACES = "chakra"
"""The target whose files are traces of all ranks."""
TRACED = 32
"""Most ranks of a plan of which traces are written: those of hundreds of ranks take minutes and gigabytes. Of more, only what
the target cannot express is asked."""
HEAD = ("| for | plans | exports | refused | no plan |", "| --- | ---: | ---: | ---: | ---: |")


class Exported(NamedTuple):
    """A topology planned for a target: the targets that took the plan, each refusal with its target, and why there is no plan
    (empty with a plan)."""

    topology: str
    target: str
    taken: tuple[str, ...]
    refused: tuple[str, ...]
    no_plan: str = ""


def asked() -> tuple[str, ...]:
    """What each topology is planned for."""
    return (*exporters.frameworks(), TRACES, targets.ANY, targets.NONE)


def exports_of(plan: Plan, target: str) -> tuple[str, ...]:
    """The targets that a plan for `target` is exported to."""
    if target == targets.NONE:
        return tuple(name for name in exporters.names() if name not in (*exporters.frameworks(), TRACES))
    return exporters.able(plan) if target == targets.ANY else (target,)


def fault_of(plan: Plan, target: str) -> str:
    """Why a target refuses a plan; empty where it exports it."""
    if target == TRACES and len(plan.placement) > TRACED:
        return next(exporters.unsupported(target, plan), "")
    try:
        return "" if exporting.export(plan, target).files else "no files"
    except HolmesError as error:
        return str(error).splitlines()[0]


def exported(name: str, target: str, time_limit: float, edits: Mapping[str, object] = NO_EDITS) -> Exported:
    """A shipped topology, or a file, planned for a target and exported; `edits` replace keys of the topology."""
    where = edited(commands.load(name), edits)
    request = requirements.request(where, commands.workload_of(where), time_limit=time_limit, target=target)
    try:
        plan = api.plan(request)
    except Infeasible as error:
        return Exported(name, target, (), (), str(error).splitlines()[0])
    taken, refused = list[str](), list[str]()
    for one in exports_of(plan, target):
        fault = fault_of(plan, one)
        refused += [f"{one}: {fault}"] if fault else []
        taken += [] if fault else [one]
    if target == targets.ANY and request.target is not None and not taken:
        refused.append("no framework takes a plan for any of them")
    return Exported(name, target, tuple(taken), tuple(refused))


def table(every: Iterable[Exported]) -> Iterator[str]:
    """A line for each refusal and each missing plan, then a Markdown table with a row for each target."""
    plans, taken, refused, missing = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for one in every:
        plans[one.target] += not one.no_plan
        taken[one.target] += len(one.taken)
        refused[one.target] += len(one.refused)
        missing[one.target] += bool(one.no_plan)
        yield from (f"{one.topology} for {one.target}: refused by {text}" for text in one.refused)
        if one.no_plan:
            yield f"{one.topology} for {one.target}: no plan: {one.no_plan}"
    yield from HEAD
    for name in plans:
        yield f"| {name} | {plans[name]} | {taken[name]} | {refused[name]} | {missing[name]} |"


def show(arguments: list[str]) -> None:
    """Print the table, each line when it is known. Raises SystemExit if an export was refused."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks exports", description=str(__doc__).partition("\n")[0])
    parser.add_argument("topologies", nargs="*", metavar="TOPOLOGY", help="default: all shipped topologies")
    parser.add_argument("--time-limit", type=float, default=2.0, metavar="S", help="seconds of each search (default 2)")
    parser.add_argument("--for", dest="targets", default=",".join(asked()), metavar="A,B", help="default: %(default)s")
    parser.add_argument("--set", dest="edits", action="append", default=[], metavar="KEY=VALUE", help="replaces a key of each")
    given = parser.parse_args(arguments)
    edits = {key: parse("--set", value).value for key, value in (text.split("=", 1) for text in given.edits)}
    names = given.topologies or commands.shipped_topologies()
    pairs = itertools.product(names, given.targets.split(","))
    known = list[Exported]()

    def found() -> Iterator[Exported]:
        for name, target in pairs:
            known.append(exported(name, target, given.time_limit, edits))
            yield known[-1]

    for line in table(found()):
        print(line, flush=True)
    if any(one.refused for one in known):
        raise SystemExit(1)
