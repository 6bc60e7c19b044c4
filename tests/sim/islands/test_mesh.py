"""Costs of changes of the membership: exchanges of some islands, and live checkpoints."""

from __future__ import annotations

import pytest

from sim.hardware.cluster import Trunk
from sim.islands.exchange import exchange_cost
from sim.islands.mesh import ElasticMesh, checkpoint_bytes
from sim.sync import Sync
from tests.builders import fleet
from tests.sim.islands.builders import islands_plan, machines

SYNC = Sync("diloco", 10)


def test_the_exchange_among_some_islands_is_that_of_a_plan_of_these():
    three = islands_plan(machines(3, bandwidth=1e6, latency=0.1), SYNC)
    two = type(three)(SYNC, three.islands[:2], three.made_by)
    mesh = ElasticMesh(three)
    assert mesh.exchange(frozenset({0, 1})) == exchange_cost(two)
    assert mesh.exchange(frozenset({0, 1, 2})) == exchange_cost(three)
    alone = mesh.exchange(frozenset({1}))
    assert (alone.payload, alone.use, alone.update) == (0.0, (), exchange_cost(two).update)


def test_the_live_checkpoint_comes_from_the_fastest_island():
    where = machines(3)
    links = ((("a", "b"), 1e6, 0.5), (("b", "c"), 2e6, 0.25), (("c", "a"), 1e6, 0.0))
    trunks = tuple(Trunk(ends, "ethernet", rate, latency) for ends, rate, latency in links)
    plan = islands_plan(fleet(*where.clusters, trunks=trunks), SYNC)
    mesh = ElasticMesh(plan)
    sent = mesh.checkpoint(1, frozenset({0, 2}))
    assert (sent.source, sent.payload, sent.latency) == (2, 16 * plan.workload.model.parameters, 0.25)
    assert mesh.seconds(sent) == pytest.approx(0.25 + sent.payload / 2e6)
    assert mesh.checkpoint(1, frozenset({0})).source == 0


def test_a_ring_is_rebuilt_in_a_second_for_each_other_island():
    assert ElasticMesh(islands_plan(machines(), SYNC)).rebuild_s(8) == 7.0


@pytest.mark.parametrize(
    ("sync", "each"),
    [
        (Sync("every-step"), 4 + 8),  # weights, moments
        (Sync("local-sgd", 10), 4 + 8),
        (SYNC, 4 + 4 + 8),  # and the outer momentum, as prime sends them
        (Sync("streaming-diloco", 10, 1, 2), 4 + 4 + 4 + 8),  # weights differ from those of the last exchange
        (Sync("diloco", 10, compression="top-k=1%"), 4 + 4 + 8),  # error feedback stays where it is
    ],
)
def test_bytes_of_a_live_checkpoint(sync, each):
    plan = islands_plan(machines(), sync)
    assert checkpoint_bytes(plan) == each * plan.workload.model.parameters
