"""Stages of unlike microbatch sizes: a timetable by hand, all samples sent once, and the laws of folding and abandonment."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from sim.analytic.plan_costs import step_seconds, upper_bound_seconds
from sim.engine.engine import simulate, simulate_at_length, simulate_up_to
from sim.engine.symmetry import unfolded
from sim.engine.timeline import Timeline
from sim.errors import NotDefined, NotModelled, PlanError
from sim.kernels import compute
from sim.kernels.formulas import pass_seconds
from sim.plan.plan import Plan
from tests import builders as make
from tests.more import after
from tests.sim.engine.test_steady_state import assert_equal, assert_is_led, longer

SAMPLE = 64 * 96 * 2
"""Bytes of the activations of one sample: 64 tokens of 96 bf16 values."""


def test_timetable_of_two_stages(free_ends: None) -> None:
    """Two microbatches of two samples, which stage 0 computes one by one: it has sent all four samples before the first
    gradient comes. Stage 1 reads and writes what it joins and cuts."""
    machines = make.fleet(make.cluster(nodes=2, devices=1, nics=(make.nic(bandwidth=1e9),)))
    plan = make.plan(machines, pp=2, microbatches=2, microbatch_size=2, stage_microbatch_size=(1, 2), zero_stage=0)
    device, one = plan.fleet.spec(plan.placement[0]), SAMPLE / 1e9
    (f, b), (f1, b1) = (
        tuple(2 * seconds for seconds in compute.layer_seconds(device, plan.workload, plan.config.of_pp_rank(rank)))
        for rank in (0, 1)
    )
    copied = pass_seconds(2 * 2 * SAMPLE, device)
    f1, b1 = f1 + copied, b1 + copied
    come = [index * (f + one) + f + one for index in range(4)]  # a send blocks the rank
    first = come[1]  # both samples of the first microbatch are on rank 1
    back = first + f1 + b1
    second = max(back + 2 * one, come[3])  # rank 1 has sent two gradients, which blocks it
    sent = second + f1 + b1
    expected = [
        (0, "F0", 0.0, f),
        (0, "F1", come[0], come[0] + f),
        (0, "F2", come[1], come[1] + f),
        (0, "F3", come[2], come[2] + f),
        (1, "F0", first, first + f1),
        (1, "B0", first + f1, back),
        (1, "F1", second, second + f1),
        (1, "B1", second + f1, sent),
    ]
    at = come[3]
    for index, arrived in enumerate((back + one, back + 2 * one, sent + one, sent + 2 * one)):
        at = max(at, arrived)
        expected.append((0, f"B{index}", at, at + b))
        at += b
    for timeline in (simulate(plan), simulate_at_length(plan, unfolded(plan))):
        found = [(s.rank, s.name, s.start, s.end) for s in timeline.spans if s.lane == "compute" and s.name != "optimizer"]
        assert [row[:2] for row in sorted(found)] == [row[:2] for row in sorted(expected)]
        for mine, hand in zip(sorted(found), sorted(expected), strict=True):
            assert mine[2:] == pytest.approx(hand[2:])


@pytest.mark.parametrize("sizes", [(1, 4), (4, 1), (2, 4)])
def test_a_message_has_the_samples_of_the_smaller_microbatch(sizes: tuple[int, ...]) -> None:
    machines = make.fleet(make.cluster(nodes=2, devices=1, nics=(make.nic(bandwidth=1e6),)))
    plan = make.plan(machines, pp=2, microbatches=3, microbatch_size=4, stage_microbatch_size=sizes)
    ahead = [span for span in simulate(plan).spans if span.lane == "send"]
    assert len(ahead) == 12 // min(sizes)
    assert {round(span.seconds * 1e6 / (min(sizes) * SAMPLE), 6) for span in ahead} == {1.0}


def drawn(rng: random.Random) -> Plan:
    """A plan with unlike microbatches beside other keys. Raises PlanError, NotModelled or NotDefined where they do not fit."""
    pp, experts = rng.choice([2, 2, 3, 4]), rng.random() < 0.4

    def some(values: tuple[int, ...], share: float = 0.4) -> tuple[int, ...]:
        found = tuple(rng.choice(values) for _ in range(pp))
        return found if len(set(found)) > 1 and rng.random() < share else ()

    sizes = some((1, 2, 4), 1.0)
    unlike = {"stage_tp": some((1, 2)), "stage_cp": some((1, 2)), "stage_zero": some((0, 1, 2, 3))}
    tp, dp = max(unlike["stage_tp"], default=rng.choice([1, 2])), rng.choice([1, 2, 3])
    cp = min(unlike["stage_cp"], default=rng.choice([1, 2]))
    numbers = tuple(rng.randint(1, 4) for _ in range(dp)) if rng.random() < 0.5 else (rng.randint(1, 5),) * dp
    cards = (make.nic(bandwidth=rng.choice([1e6, 1e9])),) * rng.choice([1, 2])
    machines = make.fleet(make.cluster(nodes=16, devices=rng.choice([4, 8]), nics=cards))
    return make.plan(
        machines, tp, pp, dp, 1, numbers, shape={"experts": 4, "experts_per_token": 2} if experts else {},
        microbatch_size=max(sizes, default=1), stage_microbatch_size=sizes, cp=cp, ep=rng.choice([1, 2]) if experts else 1,
        schedule=rng.choice(["1f1b", "1f1b", "gpipe"]), sequence_parallel=rng.random() < 0.5,
        zero_stage=max(unlike["stage_zero"], default=rng.randint(0, 3)), **unlike,
    )  # fmt: skip


@pytest.mark.parametrize("seed", after(3, range(20)))
def test_laws_of_unlike_microbatches(seed: int) -> None:
    """Folded and unfolded steps are equal, and a simulation up to the step is never abandoned."""
    rng, plans = random.Random(seed), list[Plan]()
    while len(plans) < 10:
        with suppress(PlanError, NotModelled, NotDefined):
            plan = drawn(rng)
            plans += [plan] if plan.config.stage_microbatch_size else []
    for plan in plans:
        step = simulate_at_length(plan, unfolded(plan)).step_s
        assert simulate(plan).step_s == pytest.approx(step, rel=1e-9)
        assert isinstance(simulate_up_to(plan, step), Timeline)
        assert upper_bound_seconds(plan) <= step * (1 + 1e-9) or plan.workload.model.experts


@pytest.mark.parametrize("seed", after(2, range(20)))
def test_a_steady_state_is_extrapolated(seed: int) -> None:
    """Each stage counts its own microbatches, and each border its messages: spans and their names are those of a simulation of
    all."""
    rng, plans = random.Random(1000 + seed), list[Plan]()
    while len(plans) < 6:
        with suppress(PlanError, NotModelled, NotDefined):
            plan = drawn(rng)
            plans += [longer(plan, 8)] if plan.config.stage_microbatch_size else []
    shorter = 0
    for plan in plans:
        timeline, whole = simulate(plan), simulate_at_length(plan)
        assert_equal(timeline, whole)
        assert_is_led(timeline)
        shorter += timeline.events < whole.events
    assert shorter


def test_the_closed_form_says_that_it_has_none() -> None:
    plan = make.plan(make.fleet(make.cluster(nodes=2)), pp=2, microbatches=2, microbatch_size=2, stage_microbatch_size=(1, 2))
    with pytest.raises(NotModelled, match="the closed form has no stages with unlike microbatch sizes; the engine simulates"):
        step_seconds(plan)
