"""Orders of node classes in which the stage programme is solved."""

from __future__ import annotations

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.models.class_orders import orders
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
