"""Tokens of ranks of unlike cp and tp: which ranks have the same ones, and which of them."""

from __future__ import annotations

import itertools

import pytest

from sim.plan.token_parts import exchanged, holders, match, parts

DEGREES = tuple(itertools.product((1, 2, 4), (1, 2, 4, 8)))


def positions(stage: tuple[int, int], index: tuple[int, int], length: int) -> list[int]:
    """The positions of a rank's tokens: those of two chunks of its cp rank, of which it has a slice."""
    (cp, tp), (rank, slice_) = stage, index
    width = length // (2 * cp)
    every = [*range(rank * width, (rank + 1) * width), *range((2 * cp - 1 - rank) * width, (2 * cp - rank) * width)]
    return every[slice_ * len(every) // tp : (slice_ + 1) * len(every) // tp]


def test_each_rank_of_tp_4_and_cp_2_has_an_eighth_of_a_sequence():
    """Ranks 0 and 1 of the first cp rank have its front chunk, 2 and 3 its back chunk, which is the last quarter."""
    assert holders((2, 4), 8) == ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (0, 2), (0, 3))
    assert holders((1, 1), 4) == ((0, 0),) * 4
    assert holders((1, 2), 4) == ((0, 0), (0, 0), (0, 1), (0, 1))


def test_a_slice_of_the_front_and_one_of_the_back_go_to_ranks_in_opposite_order():
    """tp 4: the first quarter of a sequence is that of the first half of each fine front chunk, the last of their backs."""
    found = [list(exchanged((0, tp), (1, 4), (2, 4)).items()) for tp in range(4)]
    assert found == [
        [((0, 0), (0,)), ((0, 1), (1,))], [((1, 0), (0,)), ((1, 1), (1,))],
        [((1, 2), (0,)), ((1, 3), (1,))], [((0, 2), (0,)), ((0, 3), (1,))],
    ]  # fmt: skip
    assert exchanged((1, 0), (2, 1), (1, 4)) == {(0, 1): (0,), (0, 2): (1,)}
    assert exchanged((0, 0), (1, 1), (2, 1)) == {(0, 0): (0, 3), (1, 0): (1, 2)}


@pytest.mark.parametrize(("own", "other"), tuple(itertools.product(DEGREES, repeat=2)))
def test_peers_have_equally_many_of_the_tokens_of_a_rank(own, other):
    length = 128
    assert match(own, other) and match(other, own)
    for index in itertools.product(*map(range, own)):
        mine, found = positions(own, index, length), exchanged(index, own, other)
        pieces = sum(map(len, found.values()))
        width = len(mine) // pieces
        both = {there: [one for one in mine if one in positions(other, there, length)] for there in found}
        assert sorted(itertools.chain.from_iterable(both.values())) == mine
        assert {len(some) for some in both.values()} == {len(mine) // len(found)}
        for there, which in found.items():
            assert both[there] == [one for part in which for one in mine[part * width : (part + 1) * width]]
            assert index in exchanged(there, other, own)


def test_tokens_that_do_not_match():
    """tp 3 has a slice of both chunks; sixths and quarters of a sequence overlap by twelfths."""
    assert [parts(one) for one in ((1, 1), (1, 2), (2, 4), (1, 6), (1, 3))] == [2, 2, 8, 6, 0]
    assert not match((1, 3), (2, 3)) and not match((1, 6), (2, 2))
    assert match((1, 6), (2, 6)) and match((1, 2), (3, 2))
