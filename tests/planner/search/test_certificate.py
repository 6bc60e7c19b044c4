"""The certificate of a plan from the bounds of a search."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from holmes_sim.printing.certificates import certificate as text
from planner.bounds.mixed_deadline import MixedBound
from planner.costs.context import PlanningContext
from planner.placement.simulation import simulate_plan, step
from planner.search.certificate import certificate, mixed_lower_bound, proof_seconds, work_of_mixed
from planner.search.mixed import mixed
from planner.time_limit import TimeLimit
from sim.units import time_text
from tests.planner.builders import on_one_cluster, on_two_clusters, shape
from tests.planner.search.searches import incumbent, simulated


@pytest.mark.parametrize(("share", "status"), [(0.9, "feasible"), (0.998, "feasible"), (0.9995, "optimal"), (2.0, "optimal")])
def test_the_least_bound_decides(share, status):
    question = on_one_cluster()
    plan = simulated(question, shape(), ("c", 4))
    bounds = [share * step(plan), 3 * step(plan)]
    kept = incumbent(question, best=plan)
    kept.limit.reached = True
    found = certificate(kept, plan, bounds, None, ["HiGHS", "CBC"])
    assert found.lower_bound_s == pytest.approx(min(share, 1.0) * step(plan))
    assert found.gap == pytest.approx(1 - min(share, 1.0), abs=1e-12)
    assert (found.status, found.objective_s, found.time_limit_reached) == (status, step(plan), True)
    assert found.solver == "closed form+CBC+HiGHS"


def test_plans_with_mixed_stages_have_a_bound_only_on_several_clusters():
    one, two = on_one_cluster(nodes=2), on_two_clusters()
    assert mixed_lower_bound(incumbent(one, best=simulated(one, shape(), ("c", 4)))) is None
    plan = simulated(two, shape(), ("a", 2), ("b", 2))
    bound = mixed_lower_bound(incumbent(two, best=plan))
    assert bound is not None and 0 < bound.seconds <= step(plan)


def test_one_bound_covers_plans_of_whole_and_of_mixed_stages():
    """The least of both, whatever the plan's own kind; the layout with it is named where the gap is not small."""
    two = on_two_clusters(layers=4, batch=6, nodes=3)
    ((_, built), *_) = mixed(PlanningContext(two), "certified", TimeLimit(math.inf))
    across, whole = simulate_plan(built), simulated(two, shape(), ("a", 2), ("b", 2))
    for plan in (across, whole):
        kept, least = incumbent(two, best=plan), MixedBound(0.5 * step(plan), ((shape(), ((), (), ())),))
        found = certificate(kept, plan, [2 * step(plan)], least, [], "tp 1, dp 2")
        bounds = found.lower_bound_s, found.mixed_lower_bound_s, found.whole_lower_bound_s, found.gap
        assert bounds == (0.5 * step(plan), 0.5 * step(plan), 2 * step(plan), 0.5)
        assert found.least_bound_layout == "plans with mixed stages, tp 1, pp 3, dp 1, microbatch size 1, recompute none"
        assert text(plan, found).endswith(
            f" No searched plan with each stage on one cluster takes less than {time_text(2 * step(plan))}."
        )
        found = certificate(kept, plan, [0.4 * step(plan)], least, [], "tp 1, dp 2")
        assert (found.lower_bound_s, found.least_bound_layout) == (0.4 * step(plan), "tp 1, dp 2")
        assert "with each stage on one cluster" not in text(plan, found)
        assert certificate(kept, plan, [], least, []).whole_lower_bound_s is None
    found = certificate(incumbent(two, best=whole), whole, [0.999 * step(whole)], MixedBound(0.997 * step(whole)), [])
    assert (found.lower_bound_s, found.least_bound_layout) == (0.997 * step(whole), None)


def test_a_search_without_a_proof_states_the_bound_of_total_work():
    two = on_two_clusters()
    plan = simulated(two, shape(), ("a", 2), ("b", 2))
    kept = incumbent(two, best=plan)
    kept.work_bound = 0.25 * step(plan)
    assert work_of_mixed(kept) == MixedBound(0.25 * step(plan))
    kept.limit = TimeLimit(0.0)
    assert mixed_lower_bound(kept) == MixedBound(0.25 * step(plan))
    assert work_of_mixed(incumbent(on_one_cluster())) is None


def test_the_first_plan_leaves_time_for_the_proof():
    """A fifth of the time limit; none without a limit, without a proof, or for a search that must be punctual."""
    limited, endless = on_one_cluster(), replace(on_one_cluster(), time_limit=math.inf)
    limited = replace(limited, time_limit=50.0)
    assert proof_seconds(incumbent(limited)) == 10.0
    assert proof_seconds(incumbent(endless)) == 0.0
    punctual, unproved = incumbent(limited), incumbent(limited)
    punctual.context.punctual, unproved.context.proves = True, False
    assert (proof_seconds(punctual), proof_seconds(unproved)) == (0.0, 0.0)
