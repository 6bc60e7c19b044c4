"""Division of required devices and rent among islands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.islands.budgets import check_limits, divisions, inside
from planner.limits import NO_LIMITS, Limits
from planner.request import Request
from planner.training_time import TrainingTime
from sim.errors import OptionError
from sim.formats.edits import edited
from tests.planner.islands.fleets import request, slow_trunk

PARTITION = (("east",), ("west",))
USD = 1 / 3600


def limited(limits: Limits, east: int = 2, prices: tuple[float, float] = (1.0, 1.0)) -> Request:
    """A request for two sites of `east` and two nodes of two devices each, with prices in USD/h."""
    facts: dict[str, object] = {f"clusters.{name}.node.devices.count": 2 for name in ("east", "west")}
    facts |= {"clusters.east.nodes": east}
    facts |= {
        f"clusters.{name}.node.devices.price": f"{price} USD/h" for name, price in zip(("east", "west"), prices, strict=True)
    }
    return replace(request(edited(slow_trunk(), facts)), limits=limits)


def shares(limits: Limits, **facts: object) -> list[tuple[tuple[int | None, float | None], ...]]:
    """(devices, rent in USD/h) of each island, for each way to divide."""
    found = divisions(limited(limits, **facts), PARTITION)
    return [tuple((one.devices, None if one.rent is None else round(one.rent / USD, 6)) for one in way) for way in found]


def test_without_a_budget_or_within_it_there_is_one_way():
    assert shares(NO_LIMITS) == [((None, None), (None, None))]
    assert shares(Limits(devices=8)) == [((8, None), (8, None))]
    assert shares(Limits(rent=8 * USD)) == [((None, 8.0), (None, 8.0))]


def test_devices_are_divided_in_proportion_or_by_nodes():
    assert shares(Limits(devices=6)) == [((3, None), (3, None)), ((4, None), (2, None))]
    assert shares(Limits(devices=6), east=6) == [((4, None), (1, None)), ((4, None), (2, None))]


def test_a_division_that_leaves_an_island_out_is_none():
    assert shares(Limits(devices=2)) == [((1, None), (1, None))]
    assert shares(Limits(devices=1)) == []


def test_rent_goes_to_those_that_compute_most_for_it():
    assert shares(Limits(rent=8 * USD), prices=(2.0, 1.0)) == [
        ((None, pytest.approx(16 / 3, abs=1e-5)), (None, pytest.approx(8 / 3, abs=1e-5))),
        ((2, 4.0), (4, 4.0)),
    ]


def test_cost_and_days_are_not_of_one_island():
    whole = Limits(devices=4, cost=1e-6, training=TrainingTime(1.0, 1e9, 0.9, "guess"))
    assert inside(whole) == Limits(devices=4)


@pytest.mark.parametrize("name", ["first", "last"])
def test_end_stages_are_refused(name):
    with pytest.raises(
        OptionError, match=f"^require.{name}_stage east: each island has a {name} stage of its own; leave it out"
    ):
        check_limits(Limits(**{name: "east"}))
