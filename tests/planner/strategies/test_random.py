"""The random strategy: what it draws, and that it draws the same for everybody."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from holmes_sim import commands
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from planner.strategies import get
from planner.strategies.random import uneven
from sim.formats import planfile


@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 20), st.integers(0, 99))
def test_layers_are_around_even_and_none_is_lost(pp, least, more, seed):
    layers = pp * least + more
    found = uneven(layers, pp, least, random.Random(seed))
    assert len(found) == pp
    assert sum(found) == layers
    assert min(found) >= least
    even = [layers * (pp_rank + 1) // pp - layers * pp_rank // pp for pp_rank in range(pp)]
    assert sum(abs(a - b) for a, b in zip(found, even, strict=True)) <= 2 * pp, "at most pp layers have moved"


def test_draws_are_the_same_whatever_others_have_drawn(monkeypatch):
    """A seed of its own: neither the state of Python's generator nor the order of calls matters, and it is left as it was."""
    monkeypatch.setattr(get("random"), "DRAWN", 10)
    topology = commands.load("holmes-hybrid-4")
    question = Request(topology, topology.workload, Wishes(tp=8, microbatch_size=8, dp=2), 50.0)
    texts = set()
    for seed in (1, 2):
        random.seed(seed)
        state = random.getstate()
        texts.add(planfile.to_json(get("random").plan(question, PlanningContext(question))))
        assert random.getstate() == state
    assert len(texts) == 1
    assert json.loads(texts.pop())["made_by"]["strategy"] == "random"
