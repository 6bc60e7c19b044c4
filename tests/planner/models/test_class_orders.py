"""Orders of node classes in which the stage programme is solved."""

from __future__ import annotations

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.models.class_orders import near_sets, orders
from planner.space.shape import Shape
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request


def test_orders_are_all_of_three_classes_and_the_cheapest_path_of_more():
    def names(count: int, trunks: tuple[Trunk, ...]) -> list[str]:
        clusters = [make.cluster(name, nics=(make.nic("ethernet", 1e9),)) for name in "abcd"[:count]]  # alike but for trunks
        question = request(make.fleet(*clusters, trunks=trunks), make.model(8), 8)
        shape, context = Shape(1, 1, 1, "none", "1f1b", 1, 1), PlanningContext(question)
        return ["".join(option.cluster.name for option in order) for order in orders(context, node_classes(context, shape))]

    def joined(*pairs: str) -> tuple[Trunk, ...]:
        return tuple(Trunk((pair[0], pair[1]), "ethernet", 1e9, 1e-2) for pair in pairs)

    assert sorted(names(3, joined("ab", "ac", "bc"))) == ["abc", "acb", "bac", "bca", "cab", "cba"]
    assert sorted(names(4, joined("ac", "cb", "bd"))) == ["acbd", "dbca"], "along the trunks"


def test_near_sets_grow_from_each_class_by_the_cheapest_message():
    """On a line a - b - c - d with latencies of 10, 30 and 20 ms, and a cluster e that nothing joins."""
    clusters = [make.cluster(name, nics=(make.nic("ethernet", 1e9),)) for name in "abcde"]
    trunks = tuple(
        Trunk((a, b), "ethernet", 1e9, late) for a, b, late in (("a", "b", 0.01), ("b", "c", 0.03), ("c", "d", 0.02))
    )
    question = request(make.fleet(*clusters, trunks=trunks), make.model(8), 8)
    context = PlanningContext(question)
    found = near_sets(context, node_classes(context, Shape(1, 1, 1, "none", "1f1b", 1, 1)))
    assert ["".join(option.cluster.name for option in some) for some in found] == ["ab", "abc", "abcd", "cd", "bcd"]
