"""Keys by stage set together, on fleets with room for all of them: the laws of folding, evaluator and closed form."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from sim.analytic.evaluator import evaluate
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate, simulate_at_length
from sim.engine.symmetry import unfolded
from sim.errors import NotDefined, NotModelled, PlanError
from sim.plan.plan import Plan
from tests import builders as make
from tests.more import after

EXPERTS = {"experts": 4, "experts_per_token": 2}


def drawn(rng: random.Random) -> Plan:
    """A plan with several keys by stage. Raises PlanError, NotModelled or NotDefined where they do not fit each other."""
    pp, with_experts = rng.choice([2, 2, 3]), rng.random() < 0.6

    def some(values: tuple[int, ...]) -> tuple[int, ...]:
        found = tuple(rng.choice(values) for _ in range(pp))
        return found if len(set(found)) > 1 and rng.random() < 0.5 else ()

    unlike = {
        key: some(values) for key, values in (("stage_tp", (1, 2, 4)), ("stage_dp", (1, 2, 4)), ("stage_zero", (0, 1, 2, 3)))
    }
    unlike["stage_cp"] = some((1, 2))
    unlike["stage_ep"] = some((1, 2, 4)) if with_experts else ()
    tp = max(unlike["stage_tp"], default=rng.choice([1, 2, 4]))
    dp, cp = (min(unlike[key], default=rng.choice([1, 2])) for key in ("stage_dp", "stage_cp"))
    schedule = rng.choice(["1f1b", "gpipe", "zb-h1", "interleaved"])
    vpp, microbatches = (2, pp * rng.randint(1, 2)) if schedule == "interleaved" else (1, rng.randint(1, 4))
    cards = (make.nic(bandwidth=rng.choice([1e6, 1e9])),) * rng.choice([1, 2])
    machines = make.fleet(make.cluster(nodes=32, devices=rng.choice([4, 8]), nics=cards))
    return make.plan(
        machines, tp, pp, dp, vpp, microbatches, shape=EXPERTS if with_experts else {}, microbatch_size=4, cp=cp,
        ep=unlike["stage_ep"][0] if unlike["stage_ep"] else rng.choice([1, 2, 4]) if with_experts else 1,
        etp=rng.choice([None, 1, 2]) if with_experts else None, schedule=schedule, sequence_parallel=True,
        zero_stage=max(unlike["stage_zero"], default=rng.randint(0, 3)), **unlike,
    )  # fmt: skip


@pytest.mark.parametrize("seed", after(3, range(20)))
def test_laws_of_keys_by_stage(seed: int) -> None:
    rng, plans = random.Random(seed), list[Plan]()
    while len(plans) < 10:
        with suppress(PlanError, NotModelled, NotDefined):
            plans.append(drawn(rng))
    assert any(plan.config.has_stage_degrees for plan in plans)
    for plan in plans:
        step = simulate_at_length(plan, unfolded(plan)).step_s
        assert simulate(plan).step_s == pytest.approx(step, rel=1e-9)
        assert step_seconds(plan) <= step * (1 + 1e-9)
        with suppress(NotModelled):  # ZeRO 2 and 3 of experts with virtual stages
            assert evaluate([plan])[0] <= step * (1 + 1e-9)
