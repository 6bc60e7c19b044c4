"""Two different things of one page never have the same colour."""

from __future__ import annotations

from itertools import combinations

import pytest
from matplotlib.colors import to_rgb

from holmes_sim.charts.outer_period import COLOURS
from holmes_sim.charts.palette import ACTIONS, NICS, SECONDS, island_colours, stage_colours
from holmes_sim.charts.style import GREY
from sim.formats import catalog
from sim.results.explain import KINDS

SAME = {"forward": "F", "backward": "B", "pp": "send"}
"""Kind of seconds -> the bars in which they are."""


def things(pp: int) -> dict[str, str]:
    """What a page shows, and its colour."""
    seconds = {SAME.get(kind, kind): colour for kind, colour in SECONDS.items()}
    stages = {f"stage {stage}": colour for stage, colour in enumerate(stage_colours(pp))}
    return ACTIONS | seconds | NICS | stages | {"idle": GREY}


def things_of_islands(islands: int) -> dict[str, str]:
    """What the page of a plan of islands shows, and its colour; those that wait have the colour of idle devices."""
    own = {f"island {index}": colour for index, colour in enumerate(island_colours(islands))}
    stages = {f"stage {stage}": colour for stage, colour in enumerate(stage_colours(islands))}
    return own | stages | NICS | COLOURS


def alike(colours: dict[str, str]) -> list[tuple[str, str]]:
    """Pairs whose red, green and blue differ by less than an eighth, a guess of what can be seen side by side."""
    return [
        (one, other)
        for (one, a), (other, b) in combinations(colours.items(), 2)
        if max(abs(x - y) for x, y in zip(to_rgb(a), to_rgb(b), strict=True)) < 1 / 8
    ]


@pytest.mark.parametrize("pp", [1, 2, 4, 6])
def test_no_two_things_look_alike(pp):
    assert alike(things(pp)) == []


@pytest.mark.parametrize("islands", [2, 3, 6])
def test_no_two_things_of_a_page_of_islands_look_alike(islands):
    assert alike(things_of_islands(islands)) == []


def test_many_stages_differ_among_themselves():
    assert len(set(stage_colours(64))) == 64


def test_a_kind_of_seconds_has_the_colour_of_its_bars():
    assert all(SECONDS[kind] == ACTIONS[SAME.get(kind, kind)] for kind in SECONDS if SAME.get(kind, kind) in ACTIONS)


def test_everything_has_a_colour():
    assert set(NICS) == set(catalog.names("nics")) and set(SECONDS) == set(KINDS)
