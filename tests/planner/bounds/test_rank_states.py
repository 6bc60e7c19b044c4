"""What is behind a rank whose layers differ, and what the rank adds."""

from __future__ import annotations

import pytest

from planner.bounds import rank_states
from planner.bounds.rank_states import States, contents
from planner.costs.layer_kinds import Layers
from tests.planner.unlike import question

LAYERS = Layers(question().workload)
"""Four cheap layers, then four others."""


def test_contents_of_ranges_of_a_model_with_four_cheap_layers_of_eight() -> None:
    whole = contents(LAYERS, 1)
    assert whole[0] == [(0, 0)]
    assert whole[3] == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert whole[8] == [(4, 4)]
    assert contents(LAYERS, 2)[2] == [(0, 2), (1, 1), (2, 0)]
    assert contents(LAYERS, 2)[8] == [(4, 4)], "no more layers of a kind than the model has"


def test_without_virtual_stages_a_rank_has_the_layers_before_those_behind_it() -> None:
    states = States(LAYERS, 1, contents(LAYERS, 1))
    assert states.last == 8
    rows = {(moves.before[i], moves.after[i]): cell for moves in [states.other] for i, cell in enumerate(moves.cell)}
    for (behind, after), counts in {(0, 3): (0, 3), (3, 6): (2, 1), (6, 8): (2, 0), (0, 8): (4, 4)}.items():
        cell, moves = rows[behind, after], states.other
        assert (moves.behind[cell], moves.own[cell]) == (behind, after - behind)
        assert states.kinds[after - behind][moves.content[cell]] == counts
    assert len(rows) == 45, "each pair of a number of layers behind, and with the rank"
    assert len(states.last_rank.before) == 9


def test_with_virtual_stages_no_kind_is_used_more_often_than_the_model_has_it() -> None:
    states = States(LAYERS, 2, contents(LAYERS, 2))
    assert states.last == 24, "0 to 4 of each kind"
    moves, cheap_behind = states.other, 3
    taken = {
        (int(moves.own[cell]), states.kinds[moves.own[cell]][moves.content[cell]], int(after))
        for before, after, cell in zip(moves.before, moves.after, moves.cell, strict=True)
        if before == cheap_behind
    }
    assert {counts[0] for _, counts, _ in taken} == {0, 1}, "one cheap layer is left"
    assert (3, (1, 2), 3 + 1 + 2 * 5) in taken


def test_layers_for_further_tokens_are_behind_all_ranks_but_the_last() -> None:
    layers = Layers(question(mtp_layers=1).workload)
    states = States(layers, 2, contents(layers, 2))
    assert states.last_rank.own.min() == 1
    assert states.last_rank.behind.max() == 0
    assert states.other.behind.min() == 1


def test_of_too_many_states_only_the_number_of_layers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_states, "MOST_MOVES", 100)
    states = States(LAYERS, 2, contents(LAYERS, 2))
    assert states.last == 8
    moves = states.other
    assert {int(moves.after[i] - moves.before[i] - moves.own[cell]) for i, cell in enumerate(moves.cell)} == {0}
