"""INTELLECT-1 (arXiv 2412.01152, table 2): outer exchanges and MFU, by the rate of the slowest link between nodes.

Published: 100 inner steps of a 10B model take 38 minutes on each node of 8 H100 at an MFU of 43.3 %; the all-reduce of int8
outer gradients takes 103 s in the USA, 382 s with Europe and 469 s with all nodes, at an MFU of 41.4, 37.1 and 36.0 %. Links
had 0.5 to 4 Gbit/s. Not published: the number of nodes of each row, their links and latencies. Guessed here: 8, 12 and 14
nodes, and the latencies of a ring by distance (`RINGS`). So the rate of the slowest link that reproduces the exchange is
computed, and what MFU follows from it; it is no prediction of the exchange, but says whether the published link rates explain
it.

So does the live checkpoint of a node that joins: published are 30 to 60 minutes (section 2.4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from planner import api
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim.formats import topology
from sim.formats.edits import edited
from sim.hardware.cluster import Cluster, Device, Fleet, Trunk
from sim.islands.exchange import ExchangeCost, exchange_cost
from sim.islands.mesh import ElasticMesh, checkpoint_bytes
from sim.network.paths import Capacities
from sim.plan.islands import IslandsPlan
from sim.plan.plan import MadeBy, Plan
from sim.sync import Sync
from sim.units import GIGA

NEWEST = "megatron-core-2025"
"""A software stack with the newest kernels; which the run had is not published."""
INNER_S = 38 * 60 / 100
"""Published seconds of an inner step."""
SYNC = Sync("diloco", 100, compression="int8")
LAYOUT = Wishes(tp=1, pp=1, dp=8, microbatch_size=1, zero_stage=3, recompute="full", schedule="1f1b")
"""FSDP over a node, one sequence a microbatch, all layers recomputed (CloudEngineHub/prime de5b9317, configs/10B/H100.toml)."""
NEAR, OCEAN, FAR = 15e-3, 45e-3, 90e-3
"""Guessed latencies in seconds, one way: between sites of a continent, across the Atlantic, to Asia."""
RINGS = {
    "USA": ((NEAR,) * 8, 103.0, 0.414),
    "USA, Europe": ((*(NEAR,) * 10, OCEAN, OCEAN), 382.0, 0.371),
    "all": ((*(NEAR,) * 11, OCEAN, FAR, FAR), 469.0, 0.360),
}
"""Row -> (latency of each link of the ring, published seconds of the all-reduce, published MFU)."""
BASE_MFU = 0.433
"""Published MFU without exchanges; of 6 FLOPs for each token and parameter but the input embedding, and full attention."""
RANGE = (0.5 * GIGA / 8, 4 * GIGA / 8)
"""Published range of link rates, in bytes per second."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. rate: bytes per second of the links that give the published exchange; exchange_s: at that rate, or
    at the nearest one of the published range; mfu: what follows; both as predicted and as published."""

    name: str
    nodes: int
    rate: float
    exchange_s: float
    published_s: float
    mfu: float
    published_mfu: float


@cache
def node(stack: str | None = None) -> Plan:
    """The plan of one node with its batch of 128 sequences, as INTELLECT-1 ran it."""
    where = topology.load(Path(__file__).with_name("intellect-1.yaml"))
    where = edited(where, {"stack": stack}) if stack else where
    assert where.workload is not None
    workload = replace(where.workload, global_batch_size=128)
    request = Request(where, workload, LAYOUT, 5.0, (("us1", 1),))
    return api.plan(request, "megatron", PlanningContext(request))


def ring(latencies: tuple[float, ...], rate: float) -> IslandsPlan:
    """Islands of one node each in a ring of links of one rate, in bytes per second."""
    plan = node()
    alike, count = plan.fleet.cluster("us1"), len(latencies)
    clusters: tuple[Cluster, ...] = tuple(replace(alike, name=f"n{index}") for index in range(count))
    trunks = tuple(
        Trunk((f"n{index}", f"n{(index + 1) % count}"), "ethernet", rate, latency) for index, latency in enumerate(latencies)
    )
    where = replace(plan.topology, fleet=Fleet("intellect-1", clusters, trunks))
    islands = (
        replace(plan, topology=where, placement=tuple(Device(c.name, 0, device.index) for device in plan.placement))
        for c in clusters
    )
    return IslandsPlan(SYNC, tuple(islands), MadeBy("INTELLECT-1", "1"))


def rows() -> Iterator[Row]:
    """The rows of table 2. The slowest link is busiest, so that the seconds of an exchange are latency + bytes / rate."""
    for name, (latencies, published, mfu) in RINGS.items():
        plan = ring(latencies, RANGE[0])
        cost = exchange_cost(plan)
        assert all(weight / Capacities(plan.fleet)(link) <= _most(cost) / RANGE[0] for link, weight in cost.use)
        nbytes = cost.payload * _most(cost)
        rate = nbytes / (published - cost.latency)
        found = cost.latency + nbytes / min(max(rate, RANGE[0]), RANGE[1])
        yield Row(name, len(latencies), rate, found, published, BASE_MFU * 100 * INNER_S / (100 * INNER_S + found), mfu)


def checkpoint() -> tuple[float, tuple[float, float]]:
    """Bytes of the live checkpoint for a node that joins, and the link rates, in bytes per second, that send it in 60 and in 30
    minutes."""
    plan = ring(RINGS["USA"][0], RANGE[0])
    mesh = ElasticMesh(plan)
    sent = mesh.checkpoint(0, frozenset({1}))
    slowest, slow = (RANGE[0] * (mesh.seconds(sent) - sent.latency) / (minutes * 60 - sent.latency) for minutes in (60, 30))
    return checkpoint_bytes(plan), (slowest, slow)


def _most(cost: ExchangeCost) -> float:
    """Bytes on the busiest trunk for each byte of the payload."""
    return max(weight for link, weight in cost.use if link[0] == "trunk")


def show() -> None:
    """Print the table, and the inner step as predicted with two software stacks."""
    print(f"{'nodes':<16}{'link Gbit/s':>12}{'exchange s':>12}{'published':>10}{'MFU':>8}{'published':>10}")
    for row in rows():
        numbers = f"{row.exchange_s:>12.0f}{row.published_s:>10.0f}{row.mfu:>8.1%}{row.published_mfu:>10.1%}"
        print(f"{row.name:<13}{row.nodes:>3}{row.rate * 8 / GIGA:>12.2f}{numbers}")
    nbytes, rates = checkpoint()
    low, high = (rate * 8 / GIGA for rate in rates)
    print(f"live checkpoint: {nbytes / GIGA:.0f} GB, in 60 to 30 minutes over links of {low:.2f} to {high:.2f} Gbit/s")
    for stack in (None, NEWEST):
        print(f"inner step, stack {stack or 'default'}: {inner_step(stack):.1f} s, published {INNER_S:.1f} s")


def inner_step(stack: str | None) -> float:
    """Predicted seconds of an inner step of a node with a software stack."""
    own = node(stack).prediction
    assert own is not None
    return own.step_s
