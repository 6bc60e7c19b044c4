"""The bound of unlike degrees beside simulations: the same in a second process and in this one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from planner.placement.simulation import step
from planner.search import unlike_beside
from planner.search.incumbent import Incumbent
from planner.search.unlike_beside import UnlikeBeside
from planner.search.unlike_degrees_proof import prove_unlike
from planner.space.shapes import searched
from planner.time_limit import TimeLimit
from sim.plan.plan import Plan
from tests.planner.search.test_unlike_degrees_proof import PINNED
from tests.planner.search.test_unlike_degrees_proof import begun as first_plan
from tests.planner.unlike_degrees import question

QUESTION = question(PINNED, room=64e6)
BASES = list(searched(QUESTION))


def as_if(plan: Plan, seconds: float) -> Plan:
    """The plan, as if its step took so many seconds."""
    assert plan.prediction is not None
    return plan.annotated(prediction=replace(plan.prediction, step_s=seconds))


@contextmanager
def begun(beside: bool, lower_bound: float = 0.0) -> Iterator[tuple[UnlikeBeside, Incumbent]]:
    """A proof that has begun below a first plan, if a second process is of use, and the search."""
    _, kept = first_plan(QUESTION)
    kept.limit, kept.lower_bound = TimeLimit(math.inf), lower_bound
    with pytest.MonkeyPatch.context() as patch, UnlikeBeside(kept.context, BASES) as proof:
        patch.setattr(unlike_beside, "has_free_core", lambda: beside)
        patch.setattr(unlike_beside, "BESIDE_FROM", 1)
        proof.begin(kept)
        assert (proof._second is not None) == (beside and not lower_bound)
        yield proof, kept


def test_a_second_process_proves_what_this_one_proves():
    found = list[float | None]()
    for beside in (True, False):
        with begun(beside) as (proof, kept):
            found.append(proof.collect(kept))
            assert not kept.limit.reached
    assert found[0] == found[1]
    assert round((found[0] or 0.0) * 1e3, 3) == 24.396


def test_it_is_done_again_below_a_faster_plan_where_its_bound_is_too_low():
    with begun(True) as (proof, kept):
        assert kept.best is not None
        kept.keep(as_if(kept.best, 1.001 * 24.396e-3))
        found = proof.collect(kept)
        assert found == prove_unlike(kept, BASES) == kept.target
    with begun(True) as (proof, kept):
        assert kept.best is not None
        kept.keep(as_if(kept.best, 0.99 * step(kept.best)))
        again = proof.collect(kept)
        assert again == prove_unlike(kept, BASES)


def test_no_process_begins_where_no_simulation_follows():
    """The bound of whole stages is closed then."""
    with begun(True, lower_bound=1.0) as (proof, kept):
        assert proof.collect(kept) == prove_unlike(kept, BASES)
