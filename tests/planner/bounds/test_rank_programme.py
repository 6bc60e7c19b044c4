"""The dynamic programmes over the ranks of pipelines whose layers differ."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner import api
from planner.bounds import rank_states
from planner.bounds.rank_programme import RankProgramme
from planner.bounds.rank_states import States, contents
from planner.bounds.unlike_deadline import deadline_bound
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.simulation import step
from planner.request import Request
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.bounds.test_unlike_lengths import simulated
from tests.planner.builders import request
from tests.planner.unlike import CHEAP_FIRST, PINNED, interleaved, only_shape, question


def programme(wanted: Request, cutoff: float = math.inf) -> RankProgramme:
    context, shape = PlanningContext(wanted), only_shape(wanted)
    classes = UnlikeCosts(context).classes(shape)
    layers = classes[0].layers
    return RankProgramme(context, shape, classes, States(layers, shape.vpp, contents(layers, shape.vpp)), cutoff)


def bound_of(wanted: Request, pp: int, cutoff: float = math.inf) -> float:
    return programme(wanted, cutoff).least(pp)


def test_the_bound_is_below_the_step_and_nearer_than_the_deadline_test() -> None:
    wanted = question()
    context, shape = PlanningContext(wanted), only_shape(wanted)
    deadline = deadline_bound(context, shape, UnlikeCosts(context).classes(shape), 0.0, math.inf)
    bound, seconds = bound_of(wanted, 2), step(api.plan(wanted))
    assert deadline < bound <= seconds * (1 + 1e-9)
    assert bound > 0.9 * seconds


def test_with_virtual_stages_no_two_ranks_have_the_same_cheap_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only numbers of layers are kept, both ranks may have all four cheap layers: the bound is further away."""
    wanted = question(interleaved(2))
    seconds, bound = step(api.plan(wanted)), bound_of(wanted, 2)
    monkeypatch.setattr(rank_states, "MOST_MOVES", 0)
    assert 0.6 * seconds < bound_of(wanted, 2) < 0.85 * bound
    assert 0.8 * seconds < bound <= seconds * (1 + 1e-9)


def test_no_rank_holds_what_takes_longer_than_the_cutoff() -> None:
    wanted = question()
    bound = bound_of(wanted, 2)
    assert bound_of(wanted, 2, cutoff=2 * bound) == bound
    assert bound_of(wanted, 2, cutoff=bound / 2) >= bound / 2


def test_there_is_no_pipeline_with_more_ranks_than_stages() -> None:
    assert bound_of(question(replace(PINNED, pp=None)), 3) == math.inf


def four_in_two_clusters(rate: float, schedule: str, vpp: int) -> Request:
    """Two nodes of two devices each, slow Ethernet between the nodes of a cluster, and a trunk between the clusters."""
    clusters = [
        make.cluster(name, 1, 2, nics=(make.nic("ethernet", rate),), spec=make.device(f"chip-{name}", speed))
        for name, speed in (("a", 2e10), ("b", 1e10))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", rate, 1e-5),))
    wishes = replace(interleaved(vpp) if vpp > 1 else PINNED, pp=None, schedule=schedule)
    return request(machines, make.model(8, **CHEAP_FIRST), 8, wishes)


@pytest.mark.parametrize("rate", [1e8, 2e5])
@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("interleaved", 2), ("zb-h2", 1)])
def test_no_pipeline_of_given_classes_is_faster_than_its_bound(rate: float, schedule: str, vpp: int) -> None:
    """All splits over the orders of two and four ranks; the least bound of them is at least that of their length."""
    wanted, near = four_in_two_clusters(rate, schedule, vpp), 0.0
    of = programme(wanted)
    for ranks in [(0, 1), (1, 0), (0, 0), (0, 0, 1, 1), (1, 1, 0, 0)]:
        bound = of.least_of(ranks)
        cuts = [(0, *cut, 8) for cut in itertools.combinations(range(vpp, 9 - vpp), len(ranks) - 1)]
        splits = [tuple(b - a for a, b in itertools.pairwise(cut)) for cut in cuts]
        fastest = min(
            simulated(wanted, tuple(("ab"[c], own) for c, own in zip(ranks, split, strict=True)))
            for split in splits
            if min(split) >= vpp
        )
        assert of.least(len(ranks)) <= bound * (1 + 1e-12)
        assert bound <= fastest * (1 + 1e-9)
        near = max(near, bound / fastest)
    assert near > (0.9 if vpp == 1 else 0.8)


def test_splits_are_all_that_may_end_within_the_cutoff() -> None:
    """Of three ranks, 21 splits; each that is left out takes as long as the seconds that are said."""
    wanted, ranks = four_in_two_clusters(1e8, "1f1b", 1), (0, 0, 1)
    every = [(a, b, 8 - a - b) for a in range(1, 7) for b in range(1, 8 - a)]
    steps = {split: simulated(wanted, tuple(("ab"[c], own) for c, own in zip(ranks, split, strict=True))) for split in every}
    assert len(steps) == 21
    low = programme(wanted).least_of(ranks)
    whole, listed = programme(wanted).splits(ranks, low, 100)
    assert (whole, sorted(listed)) == (math.inf, every)
    cutoff = sorted(steps.values())[6]
    within, found = programme(wanted, cutoff).splits(ranks, low, 100)
    assert within == cutoff
    assert len(found) == len(set(found)) < 21
    assert all(seconds >= cutoff for split, seconds in steps.items() if split not in found)
    less, few = programme(wanted, cutoff).splits(ranks, low, 4)
    assert low <= less < cutoff
    assert len(few) <= 4
    assert all(seconds >= less for split, seconds in steps.items() if split not in few)


def test_where_no_pipelines_are_few_enough_none_is_listed() -> None:
    wanted = four_in_two_clusters(1e8, "1f1b", 1)
    low = programme(wanted).least_of((0, 0, 1))
    assert programme(wanted).splits((0, 0, 1), low, 0)[1] == []


@pytest.mark.parametrize(("rate", "inside"), [(1e5, 1e7), (1e6, 1e8)])
def test_the_last_message_back_is_sent_beside_the_reduction_of_gradients(rate: float, inside: float) -> None:
    """Of stages of two replicas, with one microbatch: 1f1b waits for its sends, but reductions begin before the last one."""
    clusters = [
        make.cluster(name, 1, 2, nics=(make.nic("ethernet", rate),), intra_node=make.wire(bandwidth=inside)) for name in "ab"
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", rate, 1e-5),))
    wanted = request(machines, make.model(8, **CHEAP_FIRST), 2, replace(PINNED, dp=2))
    of = programme(wanted)
    for ranks in [(0, 1), (1, 0)]:
        steps = [
            simulated(wanted, tuple(("ab"[c], own) for c, own in zip(ranks, (n, 8 - n), strict=True))) for n in range(1, 8)
        ]
        assert 0.9 * min(steps) < of.least_of(ranks) <= min(steps) * (1 + 1e-9)
