"""Plans whose stages have tp and dp of their own on each cluster."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from holmes_sim import exporters
from holmes_sim.printing.certificates import certificate as text
from planner.bounds.mixed_deadline import MixedBound
from planner.costs.context import PlanningContext
from planner.limits import NO_LIMITS, Limits
from planner.placement.simulation import fits, step
from planner.request import Request, Wishes
from planner.search.certificate import certificate
from planner.search.incumbent import Incumbent
from planner.search.unlike_degrees import hosts_of, try_unlike, unlike_seconds
from planner.space.shapes import searched
from planner.time_limit import TimeLimit
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate_at_length
from sim.engine.symmetry import unfolded
from sim.plan.allowed import Allowed
from sim.plan.plan import Plan
from tests.more import after
from tests.planner.brute_force import fastest_step
from tests.planner.builders import NO_PROOF, plan_of, shape
from tests.planner.search.searches import incumbent, simulated
from tests.planner.unlike_degrees import PINNED, drawn, every_unlike, question

LIKELY = (15, 50, 13)
"""Seeds whose plan has stages of unlike dp."""


def tried(asked: Request, limit: TimeLimit | None = None) -> tuple[Plan, Incumbent]:
    """The plan of one stage on `a` and two on `b`, all with dp 2, and the incumbent that began with it."""
    alike = simulated(replace(asked, limits=NO_LIMITS), shape(dp=2, recompute="block"), ("a", 1), ("b", 1), ("b", 1))
    kept = incumbent(asked, best=alike)
    if limit is not None:
        kept.limit = kept.context.limit = limit
    try_unlike(kept, list(searched(asked)))
    return alike, kept


@pytest.mark.parametrize(
    ("speeds", "dp", "layers", "before", "after"),
    [((2e11, 2e11), (2, 4), (1, 2), 25.831, 24.396), ((3e11, 1e11), (4, 2), (2, 1), 44.207, 31.875)],
)
def test_the_best_of_all_plans_with_unlike_dp_is_found(speeds, dp, layers, before, after):
    """The four devices of `b` are a stage with dp 4 and microbatches of one sequence, beside dp 2 and two sequences on `a`."""
    asked = question(speeds=speeds)
    alike, kept = tried(asked)
    assert kept.best is not None and kept.best.prediction is not None
    assert (round(step(alike) * 1e3, 3), round(step(kept.best) * 1e3, 3)) == (before, after)
    config = kept.best.config
    assert (config.stage_dp, config.dp, config.tp, config.microbatch_size, kept.best.layers) == (dp, 2, 1, 2, layers)
    assert step(kept.best) == pytest.approx(fastest_step(every_unlike(asked, [shape(recompute="block")])), rel=1e-9)
    assert kept.context.simulated == [kept.best]


CP = Limits(dimensions=(("cp", Allowed(values=(1, 2))),))
"""cp 1 and 2, which is else searched for sequences of 8,192 tokens and more."""


@pytest.mark.parametrize(
    ("seq_len", "room", "speeds", "stage_cp", "layers", "ms"),
    after(
        1,
        [
            (64, 64e6, (2e11, 2e11), (1, 2), (1, 2), 22.191),
            (1024, 64e6, (3e11, 1e11), (2, 1), (2, 1), 564.442),
            (1024, 130e6, (3e11, 1e11), (1, 2), (2, 1), 438.856),
            (256, 64e6, (2e11, 2e11), (1, 2), (1, 2), 81.81),
        ],
    ),
)
def test_the_best_of_all_plans_with_unlike_cp_is_found(seq_len, room, speeds, stage_cp, layers, ms):
    """The four devices of `b` are two replicas with cp 2 beside two of one device each on `a`; or where `b` is slow and the
    sequences are long, two of its devices are."""
    asked = replace(question(seq_len=seq_len, room=room, speeds=speeds), limits=CP)
    best = tried(asked)[1].best
    assert best is not None
    assert (best.config.stage_cp, best.config.dp, best.layers, round(step(best) * 1e3, 3)) == (stage_cp, 2, layers, ms)
    bases = [shape(recompute="block", cp=cp) for cp in (1, 2)]
    assert step(best) == pytest.approx(fastest_step(every_unlike(asked, bases)), rel=1e-9)
    assert simulate_at_length(best, unfolded(best)).step_s == pytest.approx(step(best), rel=1e-9)


EXPERTS = ((1, None), (2, None), (4, None), (4, 1))
"""ep and etp of all plans of a mixture."""


@pytest.mark.parametrize(
    ("room", "speeds", "degrees", "layers", "ms", "experts"),
    after(
        1,
        [
            (130e6, (2e11, 2e11), (2, 4), (1, 2), 38.693, ((2, None), (4, None))),
            (130e6, (2e11, 2e11), (2, 4), (1, 2), 38.693, EXPERTS),
            (90e6, (3e11, 1e11), (4, 2), (2, 1), 49.951, EXPERTS),
            (130e6, (3e11, 1e11), (2, 4), (2, 1), 44.62, EXPERTS),
        ],
    ),
)
def test_the_best_of_all_plans_of_a_mixture_is_found(room, speeds, degrees, layers, ms, experts):
    """Each stage divides the four experts over all of its replicas."""
    asked = question(room=room, speeds=speeds, experts=4)
    best = tried(asked)[1].best
    assert best is not None
    config = best.config
    assert (config.stage_dp, config.stage_ep, best.layers, round(step(best) * 1e3, 3)) == (degrees, degrees, layers, ms)
    bases = [shape(recompute="block", ep=ep, etp=etp) for ep, etp in experts]
    assert step(best) == pytest.approx(fastest_step(every_unlike(asked, bases)), rel=1e-9)
    assert simulate_at_length(best, unfolded(best)).step_s == pytest.approx(step(best), rel=1e-9)


def test_a_framework_gets_the_unlike_degrees_that_it_takes():
    """FlagScale has no context parallelism in its meshes, and divides experts on all of them or on none."""
    flagscale = exporters.target("flagscale")
    best = tried(replace(question(), limits=CP, target=flagscale))[1].best
    assert best is not None and not best.config.further_degrees
    best = tried(replace(question(room=130e6, experts=4, mlp="swiglu"), target=flagscale))[1].best
    assert best is not None and best.config.stage_ep == (2, 4)


def test_the_evaluator_has_the_engine_s_step_of_the_plan():
    best = tried(question())[1].best
    assert best is not None
    assert simulate_at_length(best, unfolded(best)).step_s == pytest.approx(step(best), rel=1e-9)
    assert float(evaluate([best])[0]) == pytest.approx(step(best), rel=1e-3)


@pytest.mark.parametrize(
    "asked",
    [
        question(replace(PINNED, tp=1)),
        question(replace(PINNED, dp=2)),
        question(replace(PINNED, microbatch_size=1)),
        question(replace(PINNED, zero_shard_size=2)),
        question(Wishes(schedule="interleaved", vpp=2), layers=6),
        question(tied=True),
        replace(question(), machines=(("b", 1),)),
        replace(question(), target=exporters.target("megatron")),
    ],
)
def test_pins_a_tied_embedding_one_cluster_and_a_target_leave_one_dp(asked):
    alike = simulated(question(), shape(dp=2, recompute="block"), ("a", 1), ("b", 1), ("b", 1))
    kept = incumbent(asked, best=alike)
    assert unlike_seconds(kept) == 0
    try_unlike(kept, [shape(dp=2)])
    assert kept.context.effort.times == {}


@pytest.mark.parametrize(
    "limits",
    [
        Limits(dimensions=(("dp", Allowed(most=2)),)),
        Limits(dimensions=(("microbatch_size", Allowed(most=1)),)),
        Limits(last="a", dimensions=(("pp", Allowed(most=2)),)),
        Limits(devices=5),
    ],
)
def test_a_plan_keeps_to_the_limits(limits):
    alike, kept = tried(replace(question(), limits=limits))
    assert kept.best is alike or not any(limits.faults(kept.best))
    assert step(kept.best) >= tried(question())[1].cutoff


@pytest.mark.parametrize("seed", after(2, LIKELY + tuple(seed for seed in range(60) if seed not in LIKELY), last=3))
def test_a_drawn_plan_fits_keeps_its_pins_and_takes_as_long_at_length(seed):
    asked = drawn(seed)
    found = plan_of(asked, budgets=NO_PROOF)
    assert seed not in LIKELY or (found is not None and found.config.stage_dp)
    if found is not None:
        assert fits(found) and not asked.refuses(found)
        assert all(wish in (None, getattr(found.config, name)) for name, wish in asdict(asked.wishes).items())
        assert simulate_at_length(found, unfolded(found)).step_s == pytest.approx(step(found), rel=1e-9)
        alike = plan_of(asked, budgets=replace(NO_PROOF, unlike_layouts=0))
        assert alike is not None and step(found) <= step(alike)


def test_a_cluster_without_memory_for_a_layer_is_left_out():
    asked = question()
    a, b = asked.topology.fleet.clusters
    tiny = replace(a, node=replace(a.node, device=replace(a.node.device, memory=1e6)))
    small = replace(asked, topology=replace(asked.topology, fleet=replace(asked.topology.fleet, clusters=(tiny, b))))
    kept = incumbent(small, best=tried(asked)[0])
    before = kept.best
    try_unlike(kept, list(searched(small)))
    assert kept.best is before and kept.context.simulated == []


def test_a_pinned_size_is_that_of_a_replica():
    _, kept = tried(question(replace(PINNED, microbatch_size=2)))
    assert kept.best is not None
    assert (kept.best.config.stage_dp, kept.best.config.microbatch_size) == ((2, 4), 2)


def test_nothing_is_tried_after_the_time_limit_or_where_every_step_is_wanted():
    asked = question()
    alike, late = tried(asked, TimeLimit(0.0))
    assert late.best is alike and late.limit.reached
    bases = searched(asked)
    try_unlike(late, bases)
    assert len(list(bases)) == len(list(searched(asked)))  # to list layouts of experts takes tenths of a second
    kept = incumbent(asked, best=alike)
    kept.context.every_step = True
    try_unlike(kept, list(searched(asked)))
    assert kept.best is alike and unlike_seconds(kept) == 0


def test_the_proof_leaves_a_part_of_the_time_limit():
    for seconds, left in ((math.inf, 2.0), (50.0, 2.0), (10.0, 0.4)):
        asked = replace(question(), time_limit=seconds)
        kept = Incumbent(asked, PlanningContext(asked), incumbent(asked).budgets, TimeLimit(seconds))
        assert unlike_seconds(kept) == pytest.approx(left)


def test_a_target_that_launches_unlike_dp_gets_such_a_plan():
    """Each cluster is one node with one stage: FlagScale has a mesh for each."""
    found = plan_of(replace(question(), target=exporters.target("flagscale")), budgets=NO_PROOF)
    assert found is not None and found.config.stage_dp == (2, 4)
    assert not list(exporters.unsupported("flagscale", found))
    written = exporters.get("flagscale").launch(found).files["conf/train/plan.yaml"].content
    assert "hetero_process_meshes: [1, 1, 1, 2, 1, 1, 1, 1, 4, 1]" in written
    assert "micro_batch_size: 2" in written


def test_the_certificate_names_such_plans_beside_its_space():
    asked = question()
    alike, kept = tried(asked)
    best = kept.best
    assert best is not None
    found = certificate(kept, best, [0.995 * step(alike)], None, [])
    assert (found.status, found.lower_bound_s, found.gap) == ("feasible", step(best), 0.0)
    assert found.whole_lower_bound_s == 0.995 * step(alike)
    assert "stage_dp (tried, without a proof)" in found.outside
    assert text(best, found) == (
        "Certificate: no plan of the searched space takes less than 25.7 ms (closed form), 5.4% more than this plan. Its "
        "stages have degrees of their own on each cluster: nothing is proved for other plans of this kind."
    )
    slower = certificate(kept, best, [0.9 * step(best)], MixedBound(0.8 * step(best)), [])
    assert (slower.lower_bound_s, slower.whole_lower_bound_s) == (0.8 * step(best), 0.9 * step(best))
    assert "20.0% less than this plan" in text(best, slower)
    assert not certificate(kept, alike, [step(alike)], None, []).beside_space


def test_all_searches_of_a_request_ask_a_target_once():
    """Also those of another context of the same request, but not of one with other pins."""
    asked = question(Wishes())
    context = PlanningContext(asked)
    assert hosts_of(context) is hosts_of(context) is hosts_of(context.of(asked))
    assert hosts_of(context.of(replace(asked, wishes=Wishes(tp=1)))) is not hosts_of(context)
