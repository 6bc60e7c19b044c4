"""Replica rows: rings through many equivalent nodes cost the same from the few that are kept as from all nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.space.device_slots import Run, rows
from sim.hardware.cluster import Device, Fabric, Fleet, Trunk
from sim.network.collective_costs import CollectiveCosts
from sim.network.paths import Capacities
from sim.network.replica_rows import ReplicaRows
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make

REAL = {
    "intra_node": make.wire(bandwidth=3.1e11, latency=3.7e-7, overhead=2.3e-6, efficiency=0.83, interference=0.03),
    "nics": (make.nic(count=2, latency=4.1e-6, efficiency=0.91, interference=0.07),),
}
"""Links whose latencies and efficiencies are no round numbers, two NICs for four devices."""

SIZES = (0.0, 1.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e9)


def costs(fleet: Fleet, tp: int, listed: ReplicaRows, zero: int) -> CollectiveCosts:
    config = ParallelConfig(tp=tp, dp=len(listed), num_microbatches=(1,) * len(listed), zero_stage=zero)
    return CollectiveCosts(fleet, config, listed, Capacities(fleet))


def prices(of: CollectiveCosts, kind: str, operation: str) -> list[tuple[float, str]]:
    """Seconds of a collective of each size, from none to 1e9 bytes, and the best algorithm for it."""
    return [(of.seconds(kind, operation, size, 1), of.best(kind, [(operation, size, 1)])) for size in SIZES]


@given(data=st.data())
def test_a_ring_costs_what_it_costs_node_by_node(data: st.DataObject) -> None:
    """On one cluster or two, in leaves or not, from any slot on, however many there are: the very same numbers."""
    tp, zero = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.sampled_from([0, 1]))
    names = data.draw(st.sampled_from(["a", "ab"]))
    fabrics = [data.draw(st.sampled_from([None, Fabric(2, 1.0), Fabric(3, 4.0)])) for _ in names]
    clusters = [
        make.cluster(name, nodes=12, devices=4, fabric=fabric, **REAL) for name, fabric in zip(names, fabrics, strict=True)
    ]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e10, 1e-6),) if len(names) > 1 else ())
    firsts = [data.draw(st.integers(0, 12)) for _ in names]
    counts = [data.draw(st.integers(1, 12 * 4 // tp - first)) if first < 48 // tp else 1 for first in firsts]
    stand = tuple(Run(c, min(f, 48 // tp - 1), n) for c, f, n in zip(clusters, firsts, counts, strict=True))
    short = rows(stand, tp)
    every = short.all()
    listed = ReplicaRows(every, (), lambda: every)
    assert len(short) == len(every) and len(short.like) == len(every)
    assert all([d.index for d in short.kept[i]] == [d.index for d in row] for i, row in zip(short.like, every, strict=True))
    assert ReplicaRows.of(fleet, every).unlisted == short.unlisted and ReplicaRows.of(fleet, every).kept == short.kept
    few, full = costs(fleet, tp, short, zero), costs(fleet, tp, listed, zero)
    kinds = (["dp"] if len(every) > 1 else []) + (["tp"] if tp > 1 else [])
    for kind in kinds:
        for operation in ("all_reduce", "reduce_scatter", "all_gather"):
            assert prices(few, kind, operation) == prices(full, kind, operation)
            assert few.interference(kind, operation, 1e6) == full.interference(kind, operation, 1e6)


def test_three_of_many_equivalent_nodes_are_kept() -> None:
    """Slots 1 to 41 of nodes of two: half a node, twenty nodes, of which the first two and the last are kept."""
    short = rows((Run(make.cluster(nodes=40, devices=4), 1, 41),), 2)
    assert [row[0].node for row in short.kept] == [0, 1, 1, 2, 2, 20, 20]
    assert (short.unlisted, len(short)) == (((3, 5, 17),), 41)


def test_nodes_that_a_ring_visits_twice_are_all_kept() -> None:
    fleet = make.fleet(make.cluster(nodes=6, devices=2))
    zigzag = tuple((Device("c", node, index),) for index in range(2) for node in range(6))
    assert ReplicaRows.of(fleet, zigzag).unlisted == ()
    assert ReplicaRows.of(fleet, zigzag[:6]).unlisted == ((1, 2, 3),)


@pytest.mark.parametrize("shards", [2, 24])
def test_blocks_that_share_state_are_all_evaluated(shards: int) -> None:
    """What ZeRO shards in blocks of two goes round in small rings, and their copies; in one block it is one ring."""
    cluster = make.cluster(nodes=12, devices=2)
    fleet = make.fleet(cluster)
    short = rows((Run(cluster, 0, 24),), 1)
    every = short.all()
    config = ParallelConfig(dp=24, num_microbatches=(1,) * 24, zero_stage=1, zero_shard_size=shards)
    few, full = (
        CollectiveCosts(fleet, config, listed, Capacities(fleet)) for listed in (short, ReplicaRows(every, (), lambda: every))
    )
    assert prices(few, "dp", "reduce_scatter") == prices(full, "dp", "reduce_scatter")


@given(data=st.data())
def test_rows_of_equal_pattern_cost_the_same(data: st.DataObject) -> None:
    """Stages of one cluster in every position on its nodes, in leaves of two nodes or not: equal patterns, the same numbers."""
    tp, taken = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.integers(2, 10))
    fabric = Fabric(2, 2.0) if data.draw(st.booleans()) else None
    fleet = make.fleet(make.cluster("a", 16, 4, fabric=fabric, **REAL))
    cluster = fleet.clusters[0]
    stages = [
        ReplicaRows.of(fleet, rows((Run(cluster, first, taken),), tp).all()) for first in range(0, 64 // tp - taken, taken)
    ]
    by_pattern: dict[object, list[tuple[float, str]]] = {}
    for stage in stages:
        found = prices(costs(fleet, tp, stage, 1), "dp", "reduce_scatter")
        assert by_pattern.setdefault(stage.pattern(fleet), found) == found
    assert len(by_pattern) <= 8


def test_a_pattern_names_positions_on_nodes_and_leaves() -> None:
    """Six slots on nodes of four: every second stage has the same position. In leaves of two nodes each stage of four slots has
    one of two."""
    fleet = make.fleet(make.cluster("a", 6, 4, **REAL))
    patterns = [rows((Run(fleet.clusters[0], first, 6),), 1).pattern(fleet) for first in (0, 6, 12, 18)]
    assert patterns[0] == patterns[2] != patterns[1] == patterns[3]
    leaves = make.fleet(make.cluster("a", 6, 4, fabric=Fabric(2, 2.0), **REAL))
    patterns = [rows((Run(leaves.clusters[0], first, 4),), 1).pattern(leaves) for first in (0, 4, 8, 12)]
    assert patterns[0] == patterns[2] != patterns[1] == patterns[3]
