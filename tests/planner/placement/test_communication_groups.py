"""DT-FM's two costs and its division of devices, against brute force and by hand."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.placement.communication_groups import CommunicationModel, bottleneck, in_order, matched, refined
from sim.hardware.cluster import Trunk
from sim.network.paths import Capacities
from tests import builders as make
from tests.planner.builders import request, shape


def web(dp: int, pp: int, gradients: float, activations: float) -> CommunicationModel:
    """The model over clusters a and b of two nodes of two devices: 1e11 B/s in a node, 1e10 between nodes, 1e9 between
    clusters."""
    nics = (make.nic("infiniband", 1e10), make.nic("ethernet", 1e9))
    clusters = [make.cluster(name, 2, 2, nics, intra_node=make.wire(bandwidth=1e11)) for name in ("a", "b")]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.25),))
    found = CommunicationModel(request(machines, make.model(8), 64), Capacities(machines), shape(dp=dp), pp)
    found.gradients, found.activations = gradients, activations
    return found


# costs


def test_a_group_exchanges_shares_of_its_gradients_with_every_other_member():
    """2 (a + G / dp / b) to each; both devices of a node share its NIC, so that each has half."""
    some = web(4, 2, gradients=4e10, activations=0.0)
    inside, nodes, across = 2 * 0.1, 2 * 1e10 / 0.5e10, 2 * (0.25 + 1e10 / 0.5e9)
    assert some.exchange(((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1))) == pytest.approx(inside + 2 * nodes)
    assert some.exchange(((0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1))) == pytest.approx(inside + 2 * across)
    assert some.exchange(((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 1, 1))) == pytest.approx(3 * across), "the loneliest decides"


def test_messages_go_as_far_as_the_worst_of_the_best_pairs():
    some = web(2, 4, gradients=0.0, activations=1e10)
    here, beside, other, far = (((0, 0, 0), (0, 1, 0)), ((0, 0, 1), (0, 1, 1)), ((0, 1, 0), (0, 1, 1)), ((1, 0, 0), (1, 0, 1)))
    assert some.matching(here, beside) == (pytest.approx(0.2), {(0, 0): 2}), "each inside its node"
    assert some.matching(here, other)[0] == pytest.approx(4.0), "one of them over the NIC, which all use at once"
    assert some.matching(here, far)[0] == pytest.approx(2 * (0.25 + 1e10 / 0.5e9))


@given(st.data())
def test_a_bottleneck_matching_is_that_of_brute_force(data):
    here, there = (data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=4)) for _ in range(2))
    prices = {(a, b): float(data.draw(st.integers(1, 9))) for a in set(here) for b in set(there)}
    longest, flow = bottleneck({a: here.count(a) for a in set(here)}, {b: there.count(b) for b in set(there)}, prices)
    best = min(max(prices[pair] for pair in zip(here, order, strict=True)) for order in itertools.permutations(there))
    assert longest == best
    assert sum(flow.values()) == 4
    assert all(prices[pair] <= longest for pair, number in flow.items() if number)


def test_a_path_visits_all_groups_by_the_cheapest_borders():
    """a - b and b - c are near, a - c is far: b stands in the middle, however they are listed."""
    a, b, c = (((node, 0, 0),) for node in range(3))
    far = {frozenset((0, 1)): 1.0, frozenset((1, 2)): 2.0, frozenset((0, 2)): 9.0}
    for listed in itertools.permutations((a, b, c)):
        ordered, cost = in_order(listed, lambda x, y: far[frozenset((x[0][0], y[0][0]))])
        assert cost == 3.0
        assert ordered in ((a, b, c), (c, b, a))


def test_a_path_over_many_kinds_of_groups_is_not_enumerated():
    """Ten clusters on a line, shuffled: each is put where it costs least, and the line comes out."""
    groups = tuple(((node, 0, 0),) for node in (3, 7, 0, 9, 1, 5, 8, 2, 6, 4))
    ordered, cost = in_order(groups, lambda x, y: float(abs(x[0][0] - y[0][0])))
    assert cost == 9.0
    assert [group[0][0] for group in ordered] in (list(range(10)), list(reversed(range(10))))


# divisions


def inside(web: nx.Graph, groups) -> float:
    return sum(web.edges[pair]["weight"] for group in groups for pair in itertools.combinations(group, 2))


def balanced(units, size: int):
    """Every division of units into groups of a size."""
    if not units:
        yield ()
        return
    for rest in itertools.combinations(units[1:], size - 1):
        left = [unit for unit in units[1:] if unit not in rest]
        for others in balanced(left, size):
            yield ((units[0], *rest), *others)


@pytest.mark.parametrize(("sites", "size"), [(2, 3), (3, 2), (2, 4), (3, 3)])
def test_units_of_a_site_find_each_other(sites, size):
    """Sites dealt like cards, 1 s inside and 10 s between: the groups are the sites, as by brute force."""
    units = tuple((n % sites, 0, n) for n in range(sites * size))
    web = nx.Graph()
    for a, b in itertools.combinations(units, 2):
        web.add_edge(a, b, weight=1.0 if a[0] == b[0] else 10.0)
    begin = tuple(units[first : first + size] for first in range(0, len(units), size))
    found = refined(web, begin)
    assert sorted(unit for group in found for unit in group) == sorted(units)
    assert all(len({unit[0] for unit in group}) == 1 and len(group) == size for group in found)
    assert inside(web, found) == min(inside(web, groups) for groups in balanced(units, size)) < inside(web, begin)


def clusters_of(groups) -> list[set[int]]:
    return [{unit[0] for unit in group} for group in groups]


def test_heavy_gradients_stay_in_clusters_and_heavy_messages_too():
    """What is heavy does not cross: groups inside clusters for gradients, pipelines inside clusters for activations."""
    cost, groups = web(4, 2, gradients=4e10, activations=1.0).division()
    assert clusters_of(groups) == [{0}, {1}]
    assert cost == pytest.approx(0.2 + 2 * 4.0 + 2 * (0.25 + 1 / 0.5e9))
    _, groups = web(4, 2, gradients=1.0, activations=1e12).division()
    assert clusters_of(groups) == [{0, 1}, {0, 1}]
    assert all(a[:2] == b[:2] for a, b in zip(*groups, strict=True)), "a replica's stages are beside each other in a node"


def test_replicas_stand_in_line_inside_their_nodes():
    before = ((0, 0, 0), (0, 1, 0), (1, 0, 0))
    group = ((1, 0, 1), (0, 1, 1), (0, 0, 1))
    assert matched(before, group, {(0, 0): 2, (1, 1): 1, (0, 1): 0, (1, 0): 0}) == ((0, 0, 1), (0, 1, 1), (1, 0, 1))


def test_every_unit_is_used_once():
    for dp, pp in ((1, 8), (2, 4), (4, 2), (8, 1), (3, 2)):
        cost, groups = web(dp, pp, gradients=1e9, activations=1e9).division()
        units = [unit for group in groups for unit in group]
        assert math.isfinite(cost)
        assert [len(group) for group in groups] == [dp] * pp
        assert len(set(units)) == len(units) == dp * pp
