"""The only file that knows PuLP: tiny programmes with one possible answer, on both solvers."""

from __future__ import annotations

import itertools
import math
import random

import pulp
import pytest

from planner.models.solver import NothingFound, Programme, Solution, count, total
from planner.time_limit import TimeLimit


@pytest.fixture(params=["HiGHS", "CBC"])
def solve(request, monkeypatch):
    """Solve on one of the two solvers; CBC stands in where HiGHS is not installed."""
    if request.param == "CBC":
        monkeypatch.setattr(pulp.HiGHS, "available", lambda self: False)

    def solved(programme: Programme) -> Solution | None:
        found = programme.solve(1_000, TimeLimit(math.inf))
        assert found is None or found.solver == request.param
        return found

    return solved


def test_a_programme_with_one_answer(solve):
    """Cheapest 7 = 3 x + 2 y with x <= 1: x = 1, y = 2; the relaxation would take x = 1 too, but y = 2 is whole."""
    p = Programme("coins")
    x, y = p.integer("x", 0, 1), p.integer("y", 0, 9)
    p.require("sum", total([(x, 3.0), (y, 2.0)]) == 7)
    p.minimise(total([(x, 5.0), (y, 4.0)]))
    found = solve(p)
    assert (found.objective, found.proved, count(x), count(y)) == (13.0, True, 1, 2)
    assert found.bound == pytest.approx(13.0)


def test_the_whole_answer_is_dearer_than_the_relaxed_one(solve):
    """2 x >= 3 whole is x = 2, not 1.5."""
    p = Programme("whole")
    x = p.integer("x", 0, 9)
    p.require("enough", total([(x, 2.0)]) >= 3)
    p.minimise(total([(x, 1.0)]))
    assert solve(p).objective == pytest.approx(2.0)


def test_reals_binaries_and_constants(solve):
    """A switch of price 2 opens a pipe of width 3; 2.5 are needed: 2 + 2.5 + 10."""
    p = Programme("pipe")
    open_, flow = p.binary("open"), p.real("flow", 0.0)
    p.require("width", total([(flow, 1.0), (open_, -3.0)]) <= 0)
    p.require("need", total([(flow, 1.0)]) >= 2.5)
    p.minimise(total([(open_, 2.0), (flow, 1.0)], 10.0))
    found = solve(p)
    assert found.objective == pytest.approx(14.5)
    assert count(open_) == 1


def test_a_real_has_an_upper_end(solve):
    p = Programme("end")
    x = p.real("x", 0.0, 4.0)
    p.require("enough", total([(x, 1.0)]) >= 5)
    p.minimise(total([(x, 1.0)]))
    assert solve(p) is None


def test_what_has_no_solution_gives_none(solve):
    p = Programme("none")
    x = p.binary("x")
    p.require("two", total([(x, 1.0)]) >= 2)
    p.minimise(total([(x, 1.0)]))
    assert solve(p) is None


def test_a_variable_may_come_several_times():
    p = Programme("again")
    x = p.integer("x", 0, 9)
    assert total([(x, 1.0), (x, 2.0)], 4.0).toDict() == total([(x, 3.0)], 4.0).toDict()


def test_small_knapsacks_against_brute_force(solve):
    rng = random.Random(1)
    for _ in range(5):
        worth, weight = ([rng.randint(1, 20) for _ in range(8)] for _ in range(2))
        p = Programme("knapsack")
        take = [p.binary(f"take[{i}]") for i in range(8)]
        p.require("room", total(zip(take, weight, strict=True)) <= 40)
        p.minimise(total((v, -w) for v, w in zip(take, worth, strict=True)))
        best = max(
            sum(w for w, use in zip(worth, uses, strict=True) if use)
            for uses in itertools.product((0, 1), repeat=8)
            if sum(w for w, use in zip(weight, uses, strict=True) if use) <= 40
        )
        assert solve(p).objective == pytest.approx(-best)


def test_the_bound_of_an_unfinished_search_is_below_its_solution():
    """After twenty nodes the solution is not proved, and its bound is below it."""
    rng = random.Random(7)
    p = Programme("market_split")  # equalities of random numbers: no solver proves them at once
    take = [p.binary(f"take[{i}]") for i in range(60)]
    gaps = [(p.real(f"over[{k}]"), p.real(f"under[{k}]")) for k in range(6)]
    for k, (over, under) in enumerate(gaps):
        weights = [rng.randint(0, 99) for _ in take]
        terms = [*zip(take, weights, strict=True), (over, -1.0), (under, 1.0)]
        p.require(f"split[{k}]", total(terms) == sum(weights) // 2)
    p.minimise(total((v, 1.0) for pair in gaps for v in pair))
    found = p.solve(20, TimeLimit(math.inf))
    assert found is not None
    assert not found.proved
    assert found.bound < found.objective


def test_a_time_limit_that_ends_the_solver_is_recorded_and_a_node_limit_is_not():
    def knapsack() -> Programme:
        rng = random.Random(3)
        p = Programme("equal_shares")
        take = [p.binary(f"take[{i}]") for i in range(50)]
        for k in range(5):
            weights = [rng.randint(0, 99) for _ in take]
            p.require(f"half[{k}]", total(zip(take, weights, strict=True)) == sum(weights) // 2)
        return p

    short, long = TimeLimit(0.2), TimeLimit(math.inf)
    with pytest.raises(NothingFound):
        knapsack().solve(10**9, short)
    with pytest.raises(NothingFound):
        knapsack().solve(1, long)
    assert (short.reached, long.reached) == (True, False)


def test_a_programme_that_highspy_1_14_and_1_15_call_infeasible():
    """What is left of a stage programme after shrinking. first[a] = n[a] = last[b] = 1 is a solution, of step 1.29911860364.

    highspy 1.14.0, 1.15.0 and 1.15.1 lose it in presolve (HiGHS issue 3296 is alike); 1.13.1 and CBC find it.
    """
    p = Programme("shrunk")
    names = (
        "border_a",
        "border_first",
        "first_a",
        "last_b",
        "last_c",
        "first_b",
        "n_b",
        "n_a",
        "border_b",
        "last_a",
        "first_c",
    )
    step = p.real("step", up=491.874075011)
    v = {name: p.real(name) if name == "border_first" else p.integer(name, 0, 4 if name == "n_a" else 1) for name in names}

    def row(text: str, constant: float = 0.0):
        return total(
            [(step if word == "step" else v[word], float(factor)) for factor, word in (t.split("*") for t in text.split())],
            constant,
        )

    p.require("at_border", row("1*border_a 1*border_first -1*first_a -1*last_b -1*last_c", 1.0) >= 0)
    p.require("border_b", row("-1*last_c 1*border_b") <= 0)
    p.require("capacity_b", row("1*last_b 1*first_b 1*n_b 1*border_b") <= 1)
    p.require("capacity_c", row("1*last_c 1*first_c") <= 1)
    p.require("ends", row("1*last_c 1*n_b -1*border_b") <= 1)
    everything = "1*border_a 1*first_a 1*last_b 1*last_c 1*first_b 1*n_b 1*n_a 1*border_b 1*last_a 1*first_c"
    p.require("layers", row(everything) == 3)
    p.require("one_first", row("1*first_a 1*first_b 1*first_c") == 1)
    p.require("order_ends", row("1*first_b 1*last_a 1*first_c") <= 1)
    p.require("order_first", row("1*border_a 4*first_b 1*n_a 4*first_c") <= 4)
    p.require("pp", row("1*border_a 1*n_b 1*n_a 1*border_b") == 1)
    slow = "1*step -2.32290166008*border_a -0.214352874491*first_a -5.07336484412*first_b "
    slow += "-0.140224578842*n_a -1.32962075438*first_c"
    p.require("step_border", row(slow) >= 0)
    first = "1*step -1.12463032909*border_first -1.29911960364*first_a -11.5035048507*first_b -4.54044100501*first_c"
    p.require("step_first", row(first) >= 0)
    p.minimise(total([(step, 1.0)]))
    found = p.solve(1_000, TimeLimit(math.inf))
    assert found is not None
    assert found.objective == pytest.approx(1.29911960364, abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_both_solvers_agree_on_random_programmes(monkeypatch, seed):
    rng = random.Random(seed)
    rows = [[rng.randint(-3, 5) for _ in range(8)] for _ in range(6)]
    limits, prices = [rng.randint(2, 12) for _ in rows], [rng.uniform(-2, 5) for _ in range(8)]

    def answer() -> float | None:
        p = Programme("random")
        xs = [p.integer(f"x[{i}]", 0, 3) if i % 2 else p.binary(f"x[{i}]") for i in range(8)]
        for number, (row, limit) in enumerate(zip(rows, limits, strict=True)):
            p.require(f"row[{number}]", total(zip(xs, row, strict=True)) >= limit)
        p.minimise(total(zip(xs, prices, strict=True)))
        found = p.solve(1_000, TimeLimit(math.inf))
        return None if found is None else found.objective

    first = answer()
    monkeypatch.setattr(pulp.HiGHS, "available", lambda self: False)
    second = answer()
    assert (first is None) == (second is None)
    if first is not None:
        assert first == pytest.approx(second, rel=1e-4, abs=1e-5)
