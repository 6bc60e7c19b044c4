"""Plans whose optimizer state is in host memory, which the search tries beside its proof."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holmes_sim import exporters
from holmes_sim.printing.certificates import certificate as text
from planner.limits import NO_LIMITS, Limits
from planner.placement.ranks import with_layers
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.search import offloaded
from planner.search.certificate import certificate
from planner.search.incumbent import Incumbent
from planner.search.offloaded import offload_seconds, short_of_memory, try_offloaded
from planner.space.tried_offload import may_differ
from planner.time_limit import TimeLimit
from sim.hardware.cluster import Trunk
from sim.hardware.memory_facts import WORKSPACE
from sim.plan.allowed import Allowed
from sim.plan.offloading import OPTIMIZER
from sim.plan.plan import Plan
from sim.workload.adapter import Adapter
from tests import builders as make
from tests.planner import outside_torch
from tests.planner.builders import plan_of, request, shape
from tests.planner.search.searches import incumbent, simulated

PINNED = Wishes(schedule="1f1b", zero_stage=1)
WHOLE = ("a", 4), ("b", 1), ("b", 1)


def question(
    wishes: Wishes = PINNED, rooms: tuple[float, float] = (170e6, 60e6), batch: int = 64, cpu: float | None = 1e10,
    host: float | None = 1e9,
) -> Request:  # fmt: skip
    """A device with memory for four of six layers on `a`, and two with memory for one each on `b`, all equally fast. Hosts have
    `cpu` bytes a second of memory bandwidth for each device."""
    clusters = []
    for name, count, room in zip("ab", (1, 2), rooms, strict=True):
        spec = make.device(
            f"chip-{name}", 2e11, 1e11, memory=room + WORKSPACE + outside_torch.CONTEXT, host_bandwidth=1e10,
            host_memory_bandwidth=cpu,
        )  # fmt: skip
        nics = (make.nic("ethernet", 5e9, latency=1e-6),)
        one = make.cluster(name, 1, count, nics=nics, intra_node=make.wire(bandwidth=1e10), spec=spec)
        clusters.append(replace(one, node=replace(one.node, host_memory=host)))
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 2e10, 1e-6),))
    return request(machines, make.model(6, 384), batch, wishes)


def tried(asked: Request, limit: TimeLimit | None = None) -> tuple[Plan, Incumbent]:
    """The plan of four layers on `a` and one on each device of `b`, and the incumbent that began with it."""
    free = replace(asked, limits=NO_LIMITS, wishes=PINNED, target=None)
    alike = simulated(free, shape(recompute="block"), *WHOLE)
    kept = incumbent(asked, best=alike)
    if limit is not None:
        kept.limit = kept.context.limit = limit
    try_offloaded(kept)
    return alike, kept


def every_split(plan: Plan, asked: Request) -> Iterator[float]:
    """Steps of all plans on the same devices with other layers, in which stages of some, all or no clusters offload."""
    for some, *layers in itertools.product(itertools.product(("none", OPTIMIZER), repeat=2), *[range(1, 5)] * 3):
        keeps = (some[0], some[1], some[1])
        unlike = {"offload": (OPTIMIZER,) if OPTIMIZER in keeps else (), "stage_offload": keeps if len(set(some)) > 1 else ()}
        if sum(layers) == 6:
            found = with_layers(asked, replace(plan, config=replace(plan.config, **unlike)), tuple(layers))
            if fits(found):
                yield step(simulate_plan(found))


def test_only_the_stages_of_small_devices_offload():
    """With its optimizer on the host, a device of `b` has memory for two layers, and the pipeline is balanced."""
    asked = question()
    alike, kept = tried(asked)
    assert kept.best is not None and kept.best.prediction is not None
    config = kept.best.config
    assert (config.stage_offload, config.offload, kept.best.layers) == (("none", OPTIMIZER, OPTIMIZER), (OPTIMIZER,), (2, 2, 2))
    assert (round(step(alike) * 1e3, 2), round(step(kept.best) * 1e3, 2)) == (952.12, 545.72)
    assert step(kept.best) == pytest.approx(min(every_split(kept.best, asked)), rel=1e-9)


def test_all_plans_that_offload_are_searched_where_estimates_are_far_below(monkeypatch):
    """The same plan is found where the search for a first plan finds none; an estimate that saves too little is not enough."""
    asked = replace(question(), target=exporters.target("megatron"))
    alike, kept = tried(asked)
    monkeypatch.setattr(offloaded, "find_first_plan", lambda inner, bases: None)
    _, without = tried(asked)
    assert kept.best is not None and without.best is not None
    assert (without.best.layers, without.best.config.offload, step(without.best)) == (
        kept.best.layers, (OPTIMIZER,), step(kept.best),
    )  # fmt: skip
    monkeypatch.setattr(offloaded, "GAIN", 0.9)
    assert tried(asked)[1].best == alike


def test_all_stages_offload_for_a_framework():
    """Megatron-LM has one switch for all stages."""
    asked = replace(question(), target=exporters.target("megatron"))
    alike, kept = tried(asked)
    assert kept.best is not None and step(kept.best) < 0.7 * step(alike)
    assert (kept.best.config.offload, kept.best.config.stage_offload) == ((OPTIMIZER,), ())
    assert not may_differ(asked) and may_differ(question())


@pytest.mark.parametrize(
    "asked",
    [
        question(replace(PINNED, offload="none")),
        question(replace(PINNED, offload="activations")),
        question(cpu=None),
        question(host=None),
        replace(question(), limits=Limits(dimensions=(("offload", Allowed(values=("none",))),))),
        replace(question(), workload=replace(question().workload, adapter=Adapter(8))),
    ],
)
def test_pins_requirements_adapters_and_unknown_hosts_leave_it_out(asked):
    alike, kept = tried(asked)
    assert kept.best is alike and kept.context.effort.times == {} and offload_seconds(kept) == 0


def test_nothing_is_tried_after_the_time_limit_or_for_other_objectives():
    alike, late = tried(question(), TimeLimit(0.0))
    assert late.best is alike and late.limit.reached
    kept = incumbent(question(), best=alike)
    kept.context.every_step = True
    try_offloaded(kept)
    assert kept.best is alike and kept.context.effort.times == {}


def test_nothing_is_tried_where_memory_is_ample():
    asked = question(rooms=(20e9, 20e9))
    ample = simulated(asked, shape(recompute="block"), ("a", 2), ("b", 2), ("b", 2))
    assert not short_of_memory(ample) and short_of_memory(tried(question())[0])
    kept = incumbent(asked, best=ample)
    try_offloaded(kept)
    assert kept.best is ample and kept.context.effort.times == {}


def test_a_slow_host_is_not_worth_it():
    """An update on hosts takes longer than the layers that it moves."""
    alike, kept = tried(question(batch=64, cpu=1e8))
    assert kept.best is alike


def test_the_certificate_does_not_hold_for_such_plans():
    found, pinned = plan_of(question()), plan_of(question(replace(PINNED, offload=OPTIMIZER, dp=1)))
    assert found is not None and pinned is not None and found.certificate is not None and pinned.certificate is not None
    assert (found.certificate.status, found.certificate.beside_space) == ("feasible", True)
    assert "offload optimizer (tried, without a proof)" in found.certificate.outside
    assert "Offload of the optimizer is not searched (--offload): nothing is proved" in text(found, found.certificate)
    assert not pinned.certificate.beside_space
    assert not any("offload optimizer" in one for one in pinned.certificate.outside)
    kept = incumbent(question(cpu=None), best=simulated(question(cpu=None), shape(recompute="block"), *WHOLE))
    assert kept.best is not None
    unknown = certificate(kept, kept.best, [0.1], None, ())
    assert "optimizer state or activations in host memory (--offload)" in unknown.outside
