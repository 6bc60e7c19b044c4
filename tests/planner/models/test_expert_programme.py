"""The programme itself: dominated rows, places of several ranks, shares of copies, and an end without a solution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from planner.experts import rules
from planner.experts.problem import ExpertPlacement, cost
from planner.experts.search import rank_rows
from planner.models import expert_programme
from planner.models.expert_programme import ExpertRows, assign, best_shares
from planner.models.solver import NothingFound
from planner.time_limit import TimeLimit
from tests.planner.experts.problems import drawn, problem


def rows(**facts: object) -> ExpertRows:
    """Three experts with 1/2, 1/4 and 1/4 of the tokens of one source; two places of two slots; one link into each place."""
    links = np.array([[[1.0, 0.0]], [[0.0, 2.0]]])
    values = {"slots": (2, 2), "ranks": (2, 2), "dispatch": links, "combine": links, "compute": np.zeros((2, 1))}
    return ExpertRows(np.array([[0.5, 0.25, 0.25]]), **(values | facts))


def test_a_replica_divides_the_tokens_of_its_expert() -> None:
    """Four slots for three experts. Links of 1 and 2 s: 2/3 of the tokens on the fast one, 1/3 on the slow one."""
    found = assign((rows(ranks=(1, 1)),), 1.0, TimeLimit(10.0))
    assert found is not None
    assert found.solution.proved
    assert found.solution.objective == pytest.approx(2 * 2 / 3)
    assert found.copies.sum(0).tolist() == [2, 2]
    assert np.array([0.5, 0.25, 0.25]) @ found.shares[0][0] == pytest.approx([2 / 3, 1 / 3])
    assert found.shares[0].sum(2) == pytest.approx(np.ones((1, 3)))


def test_a_place_of_several_ranks_holds_several_copies() -> None:
    """The fast place has three slots: two copies of one expert there are allowed where it has two ranks."""
    wide = rows(slots=(3, 1), compute=np.array([[0.0], [9.0]]))
    found = assign((wide,), 1.0, TimeLimit(10.0))
    assert found is not None
    assert found.copies[:, 0].tolist() == [1, 1, 1] or found.copies[:, 0].max() == 2
    assert found.solution.objective == pytest.approx(2.0), "all tokens in the fast place, 1 s each way"
    narrow = assign((replace(wide, slots=(2, 1), tokens=np.array([[0.5, 0.25, 0.25]])),), 1.0, TimeLimit(10.0))
    assert narrow is not None
    assert narrow.solution.objective == pytest.approx(2 * 0.75 + 9 * 0.25), "one cold expert must go to the other place"


def test_dispatch_and_combine_may_differ() -> None:
    back = np.array([[[5.0, 0.0]], [[0.0, 0.1]]])
    found = assign((rows(slots=(2, 1), combine=back),), 1.0, TimeLimit(10.0))
    assert found is not None
    assert found.solution.objective == pytest.approx(0.5 * 2 + 0.5 * 5), "the hot expert goes to the place that answers sooner"
    assert found.copies[0].tolist() == [0, 1]


def test_rows_below_others_are_left_out() -> None:
    links = np.array([[[1.0, 2.0]], [[1.0, 1.0]], [[0.0, 3.0]], [[1.0, 2.0]], [[0.0, 0.0]]])
    kept = expert_programme._undominated(links)
    assert kept.tolist() == [[[0.0, 3.0]], [[1.0, 2.0]]]


def test_least_seconds_of_experts_are_in_the_bound() -> None:
    found = assign((rows(least=7.0),), 1.0, TimeLimit(10.0))
    assert found is not None
    assert found.solution.bound >= 7.0


def test_shares_of_copies_go_where_they_are_cheap() -> None:
    """Both nodes have a copy of expert 0; each computes its own tokens."""
    given = problem([[1, 1], [1, 1]], slots=2, replicas=2)
    shares = best_shares(rank_rows(given), [(0, 0), (1, 0), (0, 1), (1, 1)], 1.0, TimeLimit(10.0))
    assert shares == pytest.approx(np.array([[1, 0], [1, 0], [0, 1], [0, 1]]))


@pytest.mark.parametrize("seed", range(4))
def test_shares_against_another_solver(seed: int) -> None:
    """Seconds of the shares that are found, against SciPy's linear programme written out anew."""
    given = drawn(seed, replicas=True)
    copies = list(rules.balanced(given).copies())
    shares = best_shares(rank_rows(given), copies, 1.0, TimeLimit(10.0))
    number = 2 * len(copies)  # share of copy c for source s at 2 c + s, then the seconds out, back and of the experts
    above = []
    for part, links in enumerate((given.passes * given.dispatch, given.passes * given.combine)):
        for link in links:
            row = [link[s, rank] * given.tokens[s, expert] for expert, rank in copies for s in range(2)]
            above.append([*row, *(-float(part == index) for index in range(3))])
    for rank in range(given.ranks):
        seconds = given.compute[rank] * given.sizes
        row = [seconds[s] * given.tokens[s, expert] * (home == rank) for expert, home in copies for s in range(2)]
        above.append([*row, 0.0, 0.0, -1.0])
    once = [
        [float(copies[index // 2][0] == expert and index % 2 == s) if index < number else 0.0 for index in range(number + 3)]
        for expert in range(given.experts)
        for s in range(2)
    ]
    least = linprog([0.0] * number + [1.0] * 3, np.array(above), np.zeros(len(above)), np.array(once), np.ones(len(once)))
    assert cost(given, ExpertPlacement(rules.balanced(given).ranks, shares)).total == pytest.approx(least.fun, rel=1e-6)


def test_a_search_that_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> None:
        raise NothingFound

    monkeypatch.setattr(expert_programme.Programme, "solve", nothing)
    given = rank_rows(drawn(0, replicas=True))
    assert assign((given,), 1.0, TimeLimit(1.0)) is None
    assert best_shares(given, [(expert, 0) for expert in range(given.tokens.shape[1])], 1.0, TimeLimit(1.0)) is None
