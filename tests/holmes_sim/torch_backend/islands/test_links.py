"""Which ranks exchange which weights."""

from __future__ import annotations

import pytest

from holmes_sim.torch_backend.islands.links import Cell, Link, fragments_of, links_of
from sim.errors import NotSupported


def test_equal_layouts_have_one_link_for_each_rank() -> None:
    island = [[Cell("a", 0, 6)], [Cell("a", 6, 10), Cell("b", 0, 4)]]
    assert links_of([island, island], 0, 1) == [
        Link((1, 1), "", ((0, 4), (4, 8)), (Cell("a", 6, 10), Cell("b", 0, 4)))
    ]  # fmt: skip
    assert [link.owners for link in links_of([island, island], 1, 0)] == [(0, 0)]


def test_unlike_layouts_are_cut_where_either_is() -> None:
    """Rank 1 of the island of two ranks holds 2 to 4 of a, and b: each with another rank of the island of three."""
    two = [[Cell("a", 0, 2)], [Cell("a", 2, 4), Cell("b", 0, 3)]]
    three = [[Cell("a", 0, 3)], [Cell("a", 3, 4)], [Cell("b", 0, 3)]]
    assert [(link.owners, link.ranges) for link in links_of([two, three], 0, 1)] == [
        ((1, 0), ((0, 1),)),
        ((1, 1), ((1, 2),)),
        ((1, 2), ((2, 5),)),
    ]
    assert [(link.owners, link.ranges) for link in links_of([two, three], 1, 0)] == [((0, 0), ((0, 2),)), ((1, 0), ((2, 3),))]


def test_copies_have_links_of_their_own() -> None:
    rank = [Cell("a of tp 0", 0, 2), Cell("norm of tp 0", 0, 1, kind="copy")]
    assert [(link.kind, link.ranges) for link in links_of([[rank], [rank]], 0, 0)] == [("", ((0, 2),)), ("copy", ((2, 3),))]


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ([[Cell("a", 0, 4)]], "only one has .'b'"),
        ([[Cell("a", 0, 3), Cell("b", 0, 3)]], r"islands\[1\]: no rank, or several, own values 3 to 4 of a"),
        ([[Cell("a", 0, 4), Cell("b", 0, 3)], [Cell("a", 2, 4)]], r"islands\[1\]: no rank, or several, own values 2 to 4 of a"),
    ],
)
def test_islands_with_other_weights_are_refused(other: list[list[Cell]], fault: str) -> None:
    with pytest.raises(NotSupported, match=fault):
        links_of([[[Cell("a", 0, 4), Cell("b", 0, 3)]], other], 0, 0)


def test_fragments_have_equally_many_values() -> None:
    link = Link((0, 0), "", ((0, 3), (10, 17)), ())
    assert fragments_of(link, 1) == [((0, 3), (10, 17))]
    assert fragments_of(link, 3) == [((0, 3),), ((10, 13),), ((13, 17),)]
    assert fragments_of(link, 2) == [((0, 3), (10, 12)), ((12, 17),)]
