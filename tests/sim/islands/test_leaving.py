"""How often islands leave: texts, kinds that add up, and drawn absences."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from sim.errors import OptionError
from sim.islands.leaving import Leave, Leaving, drawn, of_islands, parse


def test_texts():
    assert parse("island:100h:2h") == Leave("island", 360_000.0, 7200.0)
    assert parse(" node :1h:30s") == Leave("node", 3600.0, 30.0)


@pytest.mark.parametrize("text", ["", "island", "island:100h", "site:100h:2h", "node:0h:1h", "node:1h:2", "node:1h:2h:3h"])
def test_wrong_texts(text):
    with pytest.raises(OptionError, match="write for example island:100h:2h"):
        parse(text)


def test_leaves_of_islands_nodes_and_failures_add_up():
    leaves = (Leave("island", 1000.0, 10.0), Leave("node", 4000.0, 100.0))
    two, none = of_islands(leaves, (2, 4), ({"device": 1 / 2000}, {}), 20.0)
    assert 1 / two.every == pytest.approx(1 / 1000 + 2 / 4000 + 1 / 2000)
    assert two.away == pytest.approx((10 / 1000 + 100 * 2 / 4000 + 20 / 2000) * two.every)
    assert (none.every, none.away) == (pytest.approx(500.0), pytest.approx(55.0))
    never = of_islands((), (1,), ({},), 0.0)[0]
    assert (never.present, never.rate) == (1.0, 0.0)


def test_drawn_absences_are_apart_and_as_often_as_expected():
    leaving = (Leaving(90.0, 10.0), Leaving(math.inf, 0.0))
    found = drawn(leaving, 1e6, 0)
    assert found == drawn(leaving, 1e6, 0)
    assert found != drawn(leaving, 1e6, 1)
    assert {one.island for one in found} == {0}
    assert all(one.back <= other.left for one, other in pairwise(found))
    away = sum(one.back - one.left for one in found) / 1e6
    assert away == pytest.approx(1 - leaving[0].present, rel=0.05)
    assert len(found) == pytest.approx(1e6 * leaving[0].rate, rel=0.05)


def test_an_island_may_be_away_at_the_start():
    away = [seed for seed in range(300) if any(one.left == 0.0 for one in drawn((Leaving(1e3, 1e3),), 1.0, seed))]
    assert 110 < len(away) < 190
