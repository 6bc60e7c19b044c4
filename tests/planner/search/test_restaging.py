"""Candidates of the first plan of fleets of many classes."""

from __future__ import annotations

from dataclasses import replace

from holmes_sim import exporters
from planner.request import Request
from planner.search.first_plan import find_first_plan
from planner.search.incumbent import Incumbent
from planner.search.restaging import restaged_candidates, simulate_restarted
from planner.space.shape import Shape, split_backward
from planner.space.shapes import searched
from tests.more import more
from tests.planner.builders import many_clusters
from tests.planner.search.searches import incumbent


def restaged(kept: Incumbent) -> list[float]:
    """Seconds of the candidates of all shapes of a request."""
    base_of: dict[Shape, Shape] = {split_backward(base): base for base in searched(kept.request)}
    return [one.seconds for one in restaged_candidates(kept, list(base_of), base_of)]


def question(number: int = 5) -> Request:
    asked = many_clusters(0, number, layers=14, batch=12)
    return replace(asked, wishes=replace(asked.wishes, schedule="1f1b"))


def test_fleets_of_few_classes_have_none():
    assert restaged(incumbent(question(3))) == []


def test_where_no_schedule_splits_the_backward_virtual_stages_are_restaged_too():
    """Megatron-LM runs no such schedule; its fastest pipelines of unlike classes have virtual stages."""
    asked = many_clusters(0, 5, layers=24, batch=12)
    asked = replace(asked, wishes=replace(asked.wishes, dp=1, microbatch_size=1, recompute="none"))
    kept = incumbent(replace(asked, target=exporters.target("megatron")))
    base_of: dict[Shape, Shape] = {split_backward(base): base for base in searched(kept.request)}
    found = restaged_candidates(kept, list(base_of), base_of)
    best = {kind: min(one.seconds for one in found if one.shape.schedule == kind) for kind in ("1f1b", "interleaved")}
    assert best["interleaved"] < 0.97 * best["1f1b"]


def test_the_search_begins_again_unless_a_quick_plan_is_wanted():
    """Without restarts nothing but the candidates of the restarts is missing."""
    asked = question()
    asked = replace(asked, wishes=replace(asked.wishes, dp=1, microbatch_size=1, recompute="none"))
    kept, quick = incumbent(asked), incumbent(asked)
    kept.context.proves = quick.context.proves = quick.context.restarts = False
    every, fewer = sorted(restaged(kept)), sorted(restaged(quick))
    assert 0 < quick.context.effort.times["pipelines priced"] < kept.context.effort.times["pipelines priced"]
    assert every[0] <= fewer[0]


def test_beside_a_proof_it_begins_again_only_where_that_leaves_a_gap():
    asked = question()
    asked = replace(asked, wishes=replace(asked.wishes, dp=1, microbatch_size=1, recompute="none"))
    kept = incumbent(asked)
    find_first_plan(kept, list(searched(asked)))
    postponed, first, priced = list(kept.restarts), kept.cutoff, kept.context.effort.times["pipelines priced"]
    assert len(postponed) == kept.budgets.restaged_again
    kept.lower_bound = kept.target
    simulate_restarted(kept)
    assert kept.restarts == postponed and kept.context.effort.times["pipelines priced"] == priced
    kept.lower_bound = 0.0
    simulate_restarted(kept)
    assert kept.restarts == [] and kept.context.effort.times["pipelines priced"] > priced
    assert kept.cutoff <= first


@more
def test_no_candidate_is_sought_of_variants_that_cannot_be_faster_than_the_best_plan():
    """The deadline test of the least step leaves nothing to be searched; with a long step, all is as without a plan."""
    kept = incumbent(question())
    every = restaged(kept)
    find_first_plan(kept, list(searched(kept.request)))
    assert every and kept.best is not None and kept.best.prediction is not None
    for step_s, found in ((1e-6 * min(every), []), (1.2 * max(every), every)):
        known = kept.best.annotated(prediction=replace(kept.best.prediction, step_s=step_s))
        assert restaged(incumbent(kept.request, best=known)) == found
