"""The weights on devices, by hand: layers of virtual stages, ends, and the parts of tensor parallelism."""

from __future__ import annotations

from sim.hardware.cluster import Device
from sim.plan.holdings import Holding, holdings, holdings_of
from tests import builders as make


def test_virtual_stages_and_ends_by_hand() -> None:
    """Four stages of two layers on two ranks: 0, 1, 4, 5 with the embedding, and 2, 3, 6, 7 with the logits."""
    plan = make.plan(make.fleet(make.cluster("c", 2, 1)), pp=2, vpp=2, schedule="interleaved", microbatches=2)
    part = (1, 0, 1, 1, 0)
    assert holdings(plan) == {
        Device("c", 0, 0): Holding(part, frozenset({0, 1, 4, 5}), True, False),
        Device("c", 1, 0): Holding(part, frozenset({2, 3, 6, 7}), False, True),
    }


def test_a_rank_without_a_device_holds_nothing() -> None:
    plan = make.plan(make.fleet(make.cluster("c", 1, 2)), tp=2)
    found = holdings_of(plan.config, plan.stages, (None, plan.placement[1]))
    assert list(found) == [Device("c", 0, 1)] and found[Device("c", 0, 1)].part[:2] == (2, 1)


def test_what_a_device_lacks() -> None:
    """Another part of the same layers is as good as nothing."""
    has = Holding((1, 0), frozenset({0, 1}), True, False)
    assert Holding((1, 0), frozenset({1, 2}), True, True).lacks(has) == (1, False, True)
    assert Holding((2, 0), frozenset({1, 2}), True, True).lacks(has) == (2, True, True)
    assert Holding((1, 0), frozenset({1}), False, False).lacks(has) == (0, False, False)
    assert has.lacks(None) == (2, True, False)
