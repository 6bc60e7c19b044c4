"""Alpa's programme: least sum of stages under a bound on the slowest, against brute force and by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.models.submeshes import CELLS, Submeshes, Work, cheapest, divide
from planner.time_limit import TimeLimit

ALL = math.inf


def offer(capacity: int, layers: int, seconds: float, depth: int, most: tuple[int, ...] = ()) -> Submeshes:
    """Stages of so many seconds a layer, in any role; `most[s - 1]` layers fit s stages before the end (all if not said)."""
    table = np.full((depth + 1, layers + 1), np.inf)
    for s in range(1, depth + 1):
        for k in range(1, (most[s - 1] if most else layers) + 1):
            table[s, k] = seconds * k
    return Submeshes(capacity, table, table.copy())


def plenty() -> Work:
    return Work(limit=TimeLimit(math.inf))


def brute(offers, layers: int, m: int, lengths, vpp: int) -> float:
    """T of the best of all divisions, one by one."""
    best = math.inf
    for pp in lengths:
        for classes in itertools.combinations_with_replacement(range(len(offers)), pp):
            if any(classes.count(c) > offers[c].number for c in classes):
                continue
            for cuts in itertools.combinations(range(1, layers), pp - 1):
                sizes = [b - a for a, b in itertools.pairwise((0, *cuts, layers))]
                tables = [offers[c].other if stage else offers[c].first for stage, c in enumerate(classes)]
                times = [float(t[pp - stage, k]) for stage, (t, k) in enumerate(zip(tables, sizes, strict=True))]
                if max(times) < math.inf:
                    best = min(best, (m - 1) * max(times) + sum(times) / vpp)
    return best


@st.composite
def instances(draw):
    layers = draw(st.integers(1, 6))
    capacities = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    depth, offers = min(sum(capacities), layers), []
    for capacity in capacities:
        tables = []
        for _ in range(2):
            table = np.full((depth + 1, layers + 1), np.inf)
            for k in range(1, layers + 1):
                table[1 : draw(st.integers(0, depth)) + 1, k] = draw(st.integers(1, 20))
            tables.append(table)
        offers.append(Submeshes(min(capacity, depth), *tables))
    lengths = draw(st.sampled_from([tuple(range(1, depth + 1)), (depth,)]))
    return offers, layers, draw(st.integers(1, 6)), lengths, draw(st.integers(1, 2))


@given(instances())
def test_the_programme_finds_what_brute_force_finds(instance):
    found, best = divide(*instance, plenty()), brute(*instance)
    assert (found is None) == (best == math.inf)
    if found is not None:
        offers, layers, m, _, vpp = instance
        assert found[0] == pytest.approx(best)
        assert sum(size for _, size in found[1]) == layers
        times = [
            (offers[c].other if stage else offers[c].first)[len(found[1]) - stage, k] for stage, (c, k) in enumerate(found[1])
        ]
        assert (m - 1) * max(times) + sum(times) / vpp == pytest.approx(best)


@pytest.mark.parametrize(
    ("microbatches", "seconds", "stages"),
    [
        (1, 6.0, ((0, 6),)),  # one microbatch: no pipeline helps, all on the fast one
        (3, 16.0, ((0, 4), (1, 2))),  # 2 x 4 + 8 against 18
        (100, 404.0, ((0, 4), (1, 2))),
    ],
)
def test_layers_by_speed_where_there_are_microbatches_to_fill_the_pipeline(microbatches, seconds, stages):
    """1 s a layer on the one, 2 s on the other, 6 layers: T = sum + (B - 1) max."""
    offers = [offer(1, 6, 1.0, 2), offer(1, 6, 2.0, 2)]
    assert divide(offers, 6, microbatches, (1, 2), 1, plenty()) == (seconds, stages)


def test_memory_in_flight_bounds_the_stages_far_from_the_end():
    """Six layers on three alike stages: two each, unless the first may hold one only and the second two."""
    assert divide([offer(3, 6, 1.0, 3)], 6, 10, (3,), 1, plenty()) == (24.0, ((0, 2), (0, 2), (0, 2)))
    tight = offer(3, 6, 1.0, 3, most=(6, 2, 1))
    assert divide([tight], 6, 10, (3,), 1, plenty()) == (33.0, ((0, 1), (0, 2), (0, 3)))
    assert divide([offer(3, 6, 1.0, 3, most=(2, 2, 1))], 6, 10, (1, 2, 3), 1, plenty()) is None


def test_a_bound_on_the_slowest_stage_is_kept():
    """Under 2 s a stage, six layers of 1 s need three stages; under 1 s there is nothing."""
    offers = [offer(4, 6, 1.0, 4)]
    for bound, found in ((2.0, 3), (3.0, 2), (6.0, 1)):
        total, stages = cheapest([o.under(bound) for o in offers], 6, (found,), plenty())
        assert (total, len(stages)) == (6.0, found)
    assert cheapest([o.under(1.0) for o in offers], 6, (1, 2, 3, 4), plenty()) is None


def test_no_more_stages_of_a_class_than_it_has_submeshes():
    _, stages = divide([offer(1, 6, 1.0, 4), offer(3, 6, 10.0, 4)], 6, 50, (4,), 1, plenty())
    assert [cluster for cluster, _ in stages] == [0, 1, 1, 1]
    assert [size for _, size in stages] == [3, 1, 1, 1]


def test_a_little_work_gives_a_worse_answer_not_none():
    offers = [offer(6, 24, 1.0, 12), offer(6, 24, 1.7, 12)]
    spent = Work(limit=TimeLimit(math.inf), cells=CELLS + 1)
    patient, hasty = (divide(offers, 24, 4, range(1, 13), 1, work) for work in (plenty(), spent))
    assert hasty is not None and patient[0] <= hasty[0]
