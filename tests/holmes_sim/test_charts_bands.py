"""Bands of rows whose bars would be too thin: shares of time in windows."""

from __future__ import annotations

import pytest

from holmes_sim import charts
from holmes_sim.charts import gantt
from holmes_sim.charts.bands import shares, visible
from sim.engine.engine import simulate
from tests import builders


def test_what_covers_what():
    """A collective from 1 to 2 s covers the wait from 0 to 3 s, and compute from 2.5 s covers the end of the wait."""
    found = visible([(0.0, 3.0, "wait"), (1.0, 2.0, "tp"), (2.5, 4.0, "F")], ("wait", "tp", "F"))
    assert found == [(0.0, 1.0, "wait"), (1.0, 2.0, "tp"), (2.0, 2.5, "wait"), (2.5, 3.0, "F"), (3.0, 4.0, "F")]


def test_shares_of_windows():
    assert shares([(0.0, 1.5, "F"), (2.0, 4.0, "B")], 4.0, 2) == {"F": [0.75, 0.0], "B": [0.0, 1.0]}
    assert shares([(1.0, 3.0, "F")], 4.0, 4)["F"] == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize(("microbatches", "in_bands"), [(8, False), (1000, True)])
def test_many_microbatches_are_bands(microbatches: int, in_bands: bool):
    plan = builders.plan(builders.fleet(builders.cluster(devices=2)), pp=2, microbatches=microbatches)
    figure = charts.pipeline(plan, simulate(plan))
    (axes,) = figure.axes
    drawn = [patch for patch in axes.patches if patch.get_gid() in gantt.STACK]
    assert bool(drawn) is in_bands
    assert ("heights of bands are shares of time" in axes.get_xlabel()) is in_bands
    for patch in drawn:  # no band leaves the bar of its row
        heights = patch.get_data()
        assert min(heights.values) >= -1e-9 and max(heights.values) <= 1 + gantt.BAR[1] + 1e-9
    hatched = {patch.get_gid() for patch in drawn if patch.get_hatch()}
    assert hatched == ({"bubble"} if in_bands else set()), "as in bars and in the legend"
