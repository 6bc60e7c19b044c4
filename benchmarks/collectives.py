"""Collectives between and inside nodes, modelled and measured: `python -m benchmarks collectives`, in some seconds.

The measurements are in `collectives.yaml`, by cluster with their sources. The model takes the catalogue's links at the rates
measured in isolation, and the fastest of the collectives and protocols that the library chooses by itself. An error is modelled
time / measured time - 1. A curve is predicted if no constant of the catalogue was fitted to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from sim import collectives
from sim.formats import catalog
from sim.hardware.cluster import Cluster, Device, Fleet, Nic, Node
from sim.network.alpha_beta import AlphaBeta, alpha_beta_cost, protocol_costs
from sim.network.paths import Capacities
from sim.network.protocols import protocols
from sim.network.routes import Member, message_route
from sim.units import GIGA, MEBI, MICRO, Bytes, Seconds, parse

FILE = Path(__file__).with_name("collectives.yaml")
EDGES = (0, MEBI, 8 * MEBI, 64 * MEBI, 512 * MEBI, float("inf"))
"""Payloads between which errors are counted together."""
DISTURBED = ("p5-efa-mean", "tcp-issue")
"""Clusters that their sources call disturbed: means of runs of which some are many times slower, connections that collapse."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes of eight devices: interconnect, NIC type, bytes/s and number of a node's NICs, share of the rate where stated.

    `link_rate`: rate of the interconnect relative to that of the catalogue.
    """

    link: str
    nic: str
    bandwidth: float
    count: int
    efficiency: float
    link_rate: float
    sharp: bool = False

    def fleet(self, nodes: int) -> Fleet:
        """A cluster "c" of these nodes. The device is an H100 in name only: nothing computes."""
        spec = catalog.nic_facts(self.nic).isolated()
        if self.efficiency:
            spec = replace(spec, efficiency=tuple((name, self.efficiency) for name, _ in spec.efficiency), host_limit=0.0)
        nics = (Nic(spec, self.bandwidth, self.count, sharp=self.sharp),)
        inside = catalog.link_facts(self.link).isolated()
        rates = {key: self.link_rate * getattr(inside, key) for key in ("bandwidth", "pair_bandwidth")}
        inside = replace(inside, **rates)
        return Fleet("measured", (Cluster("c", nodes, Node(catalog.device("h100-sxm5-80gb"), 8, inside, nics)),))


@dataclass(frozen=True, slots=True)
class Curve:
    """A measured operation: (bytes, seconds) on `nodes` nodes with `ranks` ranks each. `fitted`: whether constants saw it."""

    cluster: str
    machine: Machine
    operation: str
    nodes: int
    ranks: int
    points: tuple[tuple[Bytes, Seconds], ...]
    fitted: bool

    def errors(self) -> Iterator[tuple[Bytes, float]]:
        """(bytes, modelled / measured time - 1)."""
        costs = list(options(self.machine, self.operation, self.nodes, self.ranks).values())
        return ((nbytes, min(cost.seconds(nbytes) for cost in costs) / seconds - 1) for nbytes, seconds in self.points)


def options(machine: Machine, operation: str, nodes: int, ranks: int) -> dict[tuple[str, str], AlphaBeta]:
    """(collective, protocol) -> cost of an operation over the first `ranks` devices of every node."""
    fleet = machine.fleet(nodes)
    capacities = Capacities(fleet)
    if operation == "send_recv":  # a ring of sends: the last device of a node sends to the first of the next
        source, target = (Device("c", 0, ranks - 1), Device("c", 1, 0)) if nodes > 1 else (Device("c", 0, 0), Device("c", 0, 1))
        route = message_route(fleet, source, target, machine.nic)
        return {("message", ""): alpha_beta_cost((route,), capacities)}
    hosts = tuple(tuple(Device("c", node, index) for index in range(ranks)) for node in range(nodes))
    found = {}
    for name in collectives.names():
        module = collectives.get(name)
        if module.IN_LIBRARY and operation in module.OPERATIONS and (machine.sharp or not module.IN_NETWORK):
            groups = (Member(hosts, machine.nic, name),)
            costs = protocol_costs(fleet, groups, operation, capacities)
            found |= {(name, under): one.cost for under, one in zip(protocols(fleet, groups, operation), costs, strict=True)}
    return found


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return document


def _machine(facts: dict[str, Any]) -> Machine:
    nic = facts["nic"]
    rate = parse(f"{nic['gbit']} Gbit/s", "rate")
    share, sharp = nic.get("efficiency", 0.0), nic.get("sharp", False)
    return Machine(facts["link"], nic["type"], rate, nic["count"], share, facts.get("link_rate", 1.0), sharp)


def measured() -> tuple[Curve, ...]:
    """All measured curves."""
    curves = []
    for name, facts in _document()["clusters"].items():
        for operation, nodes, ranks, points, *fitted in facts["rows"]:
            seconds = tuple((nbytes, us * MICRO) for nbytes, us in points.items())
            curves.append(Curve(name, _machine(facts), operation, nodes, ranks, seconds, bool(fitted)))
    return tuple(curves)


def tuner_errors() -> Iterator[tuple[str, str, int, int, float, float]]:
    """(collective, operation, nodes, ranks, error of the latency, of the rate) against what NCCL expects of itself."""
    facts = _document()["tuner"]
    for name, operation, nodes, ranks, us, gigabytes in facts["rows"]:
        cost = options(_machine(facts), operation, nodes, ranks)[name, facts["protocol"]]
        yield name, operation, nodes, ranks, cost.latency / (us * MICRO) - 1, 1 / cost.per_byte / (gigabytes * GIGA) - 1


def _bins(errors: list[tuple[Bytes, float]], of: Callable[[list[float]], float], sign: str = "") -> str:
    """Cells of a table row: errors by payload."""
    cells = []
    for low, high in pairwise(EDGES):
        here = [error for nbytes, error in errors if low <= nbytes < high]
        cells.append(f"{of(here):{sign}.0%} ({len(here)})" if here else "")
    return " | ".join(cells)


def table() -> Iterator[str]:
    """Lines of Markdown tables: errors by curve; absolute errors of predicted curves by nodes; NCCL's own expectations."""
    columns = " | ".join(f"from {low / MEBI:g} MiB" for low in EDGES[:-1])
    curves = measured()
    yield f"| cluster | operation | nodes x ranks | fitted | {columns} |"
    yield "| --- " * (len(EDGES) + 3) + "|"
    for curve in curves:
        errors = _bins(list(curve.errors()), median, "+")
        fitted = "yes" if curve.fitted else ""
        yield f"| {curve.cluster} | {curve.operation} | {curve.nodes} x {curve.ranks} | {fitted} | {errors} |"
    yield ""
    yield f"| operation | nodes | median absolute error of predicted curves: {columns} |"
    yield "| --- " * (len(EDGES) + 1) + "|"
    predicted = [curve for curve in curves if not curve.fitted and curve.cluster not in DISTURBED]
    for operation in dict.fromkeys(curve.operation for curve in predicted):
        for nodes in sorted({curve.nodes for curve in predicted if curve.operation == operation}):
            here = [curve for curve in predicted if (curve.operation, curve.nodes) == (operation, nodes)]
            absolute = [(nbytes, abs(error)) for curve in here for nbytes, error in curve.errors()]
            yield f"| {operation} | {nodes} | {_bins(absolute, median)} |"
    yield ""
    yield "| NCCL's tuner | operation | ranks of a node | median error of the latency | worst | of the rate | worst |"
    yield "| --- " * 7 + "|"
    rows = list(tuner_errors())
    for name, operation, ranks in dict.fromkeys((row[0], row[1], row[3]) for row in rows):
        late, rate = zip(*(row[4:] for row in rows if (row[0], row[1], row[3]) == (name, operation, ranks)), strict=True)
        cells = " | ".join(f"{median(errors):+.0%} | {max(errors, key=abs):+.0%}" for errors in (late, rate))
        yield f"| {name} | {operation} | {ranks} | {cells} |"


def show() -> None:
    """Print the tables."""
    for line in table():
        print(line, flush=True)
