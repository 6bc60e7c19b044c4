"""The kinds of the layers of a model."""

from __future__ import annotations

from planner.costs.layer_kinds import Layers
from tests.planner.unlike import question


def test_layers_of_each_kind_are_counted() -> None:
    layers = Layers(question(mtp_layers=1).workload)
    assert (layers.number, layers.further, len(layers.kinds), layers.order) == (8, 1, 2, (0, 0, 0, 0, 1, 1, 1, 1))
    assert [layers.counts(*stage) for stage in ((0, 3), (3, 6), (4, 8))] == [(3, 0), (1, 2), (0, 4)]
    assert layers.every == (4, 5)
    assert layers.only(1, 3) == (0, 3)
    assert [(n, kind.ffn_hidden) for n, kind in layers.of((1, 2), True).held] == [(1, 24), (3, 384)]
