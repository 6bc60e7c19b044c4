"""The bound on all plans whose clusters have degrees of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.certificates.brute import STRICT
from benchmarks.certificates.judge import NEAR
from benchmarks.certificates.unlike_degrees import judge, owned
from holmes_sim import exporters
from holmes_sim.printing.certificates import certificate as text
from planner.limits import NO_LIMITS
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from planner.search.certificate import certificate
from planner.search.incumbent import Incumbent
from planner.search.unlike_degrees import try_unlike
from planner.search.unlike_degrees_proof import prove_unlike, unlike_bound
from planner.space.shapes import searched
from planner.time_limit import TimeLimit
from sim.plan.plan import Plan
from tests.more import after
from tests.planner.brute_force import fastest_step
from tests.planner.builders import on_one_cluster, shape
from tests.planner.search.searches import incumbent, simulated
from tests.planner.unlike_degrees import every_unlike, question

PINNED = Wishes(schedule="1f1b", zero_stage=1, recompute="none")
BASE = shape(recompute="none")
FIRST = (8, 67, 19, 31, 46)
"""Seeds of few plans of unlike degrees, one of which is the fastest of all plans."""
JUDGED = 50
"""Number of drawn fleets."""
SLOWER = {36: 0.012}
"""How much slower the found plan is at most, by seed; `NEAR` for others."""


def begun(asked: Request, budgets: Budgets | None = None) -> tuple[Plan, Incumbent]:
    """The plan of one stage on `a` and two on `b`, all with dp 2, and the incumbent that began with it."""
    alike = simulated(replace(asked, limits=NO_LIMITS), shape(dp=2), ("a", 1), ("b", 1), ("b", 1))
    return alike, incumbent(asked, budgets, best=alike)


@pytest.mark.parametrize(
    ("speeds", "room", "least"), [((2e11, 2e11), 64e6, 24.396), ((3e11, 1e11), 64e6, 28.448), ((3e11, 3e11), 90e6, 17.114)]
)
def test_no_plan_of_all_takes_less(speeds, room, least):
    """Milliseconds, and brute force over all plans of unlike dp."""
    asked = question(PINNED, speeds=speeds, room=room)
    _, kept = begun(asked)
    bound = prove_unlike(kept, list(searched(asked)))
    assert bound is not None
    assert round(bound * 1e3, 3) == least
    assert bound <= fastest_step(every_unlike(asked, [BASE])) * (1 + STRICT)


@pytest.mark.parametrize("seed", after(2, (*FIRST, *(seed for seed in range(JUDGED) if seed not in FIRST)), last=4))
def test_no_plan_of_drawn_fleets_takes_less_and_one_as_fast_is_found(seed):
    """Devices, links and nodes that users own, and every plan of unlike degrees of a small model."""
    found = judge(owned(seed), seed)
    assert found is not None
    assert found.bound_s <= found.best_s * (1 + STRICT)
    assert found.slower <= SLOWER.get(seed, NEAR)


def test_the_certificate_of_such_a_plan_says_how_far_it_can_be_from_the_best_one():
    asked = question(PINNED, room=64e6)
    alike, kept = begun(asked)
    try_unlike(kept, list(searched(asked)))
    best = kept.best
    assert best is not None and step(best) < step(alike)
    bases = list(searched(asked))
    apart = unlike_bound(asked, step(best), prove_unlike(kept, bases), bases)
    assert apart is not None
    found = certificate(kept, best, [0.995 * step(alike)], None, [], None, apart)
    assert found.unlike_degrees == apart
    assert (found.lower_bound_s, found.gap) == (apart.lower_bound_s, pytest.approx(apart.gap))
    assert found.all_lower_bound_s == apart.lower_bound_s and 0 < found.gap < 1
    assert "stage_dp (tried and bounded apart)" in found.outside
    assert text(best, found) == (
        "Certificate: no plan of the searched space takes less than 25.7 ms (closed form), 5.4% more than this plan. Its "
        "stages have degrees of their own on each cluster: no such plan takes less than 24.27 ms: at most 0.5% of 24.4 ms "
        "could be saved."
    )
    beside = certificate(kept, alike, [0.995 * step(alike)], None, [], None, apart)
    assert (beside.lower_bound_s, beside.all_lower_bound_s) == (0.995 * step(alike), apart.lower_bound_s)
    assert text(alike, beside).endswith(
        " No plan in which clusters have degrees of their own takes less than 24.27 ms: at most 0.5% of 24.4 ms could be saved."
    )
    as_good = certificate(kept, best, [0.8 * step(best)], None, [], None, replace(apart, lower_bound_s=0.9 * step(best)))
    assert text(alike, replace(as_good, beside_space=False)).endswith(
        " Nor does one in which clusters have degrees of their own."
    )


def test_its_space_is_told_in_one_line():
    asked = question(PINNED, experts=4)
    apart = unlike_bound(asked, 2.0, 1.5, list(searched(asked)))
    assert apart is not None
    assert (apart.lower_bound_s, apart.gap) == (1.5, 0.25)
    assert apart.space == (
        "pipelines over several clusters whose stages have one tp, dp, ep and etp on each, not the same on all; tp 1, 2, 4; "
        "ep 1, 2, 4; schedule 1f1b; ZeRO 1; recompute none; any order of the clusters, number of stages and split of the "
        "layers; stages on the next free devices of their cluster; cp and ep groups at equal positions on their nodes; no "
        "virtual stages"
    )
    flagscale = replace(question(PINNED), target=exporters.target("flagscale"))
    apart = unlike_bound(flagscale, 2.0, 1.5, list(searched(flagscale)))
    assert apart is not None and apart.space.endswith("no virtual stages; as flagscale can run them")
    assert unlike_bound(asked, 2.0, None, []) is None


def test_a_budget_of_tests_or_the_time_limit_leaves_a_lower_bound_or_none():
    asked = question(PINNED, room=64e6)
    bases = list(searched(asked))
    full = prove_unlike(begun(asked)[1], bases)
    least = prove_unlike(begun(asked, replace(Budgets(), unlike_tests=0))[1], bases)
    assert full is not None and least is not None and least < full
    _, late = begun(asked)
    late.limit = late.context.limit = TimeLimit(0.0)
    left = iter(bases)
    assert prove_unlike(late, left) is None and len(list(left)) == len(bases)


def test_nothing_is_proved_where_no_such_plan_is_tried():
    asked = on_one_cluster()
    kept = incumbent(asked, best=simulated(asked, shape(), ("c", asked.workload.model.layers)))
    assert prove_unlike(kept, list(searched(asked))) is None
    wanted = question(PINNED)
    _, every = begun(wanted)
    every.context.every_step = True
    assert prove_unlike(every, list(searched(wanted))) is None
