"""Which requirements conflict, and what each of them costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import commands
from holmes_sim.conflicts import Price, Required, explained, prices, share_of, smallest
from holmes_sim.requirements import require
from planner.request import Wishes
from sim.errors import Infeasible
from tests.more import after, more

HYBRID = commands.load("holmes-hybrid-4")
WORKLOAD = replace(commands.workload_of(HYBRID), global_batch_size=64)
"""A small batch has few sizes of microbatches, so that searches are short."""


def required(given: dict[str, object], target: str = "none", **pins: object) -> Required:
    return Required(require(HYBRID, given), WORKLOAD, Wishes(**pins), target)


def test_requirements_in_words():
    given = {
        "tp": {"max": 4}, "devices": {"max": 16}, "nodes": {"exclude": ["ib/node0", "roce"]}, "rent": {"max": "36 USD/h"},
        "cost": {"max": "0.2 USD/Mtoken"},
        "clusters": {"ib": {"tp": 2}}, "targets": ["megatron", "flagscale"], "memory_headroom": 0.1, "first_stage": "ib",
    }  # fmt: skip
    assert required(given, "deepspeed", pp=4, zero_stage=0).items() == (
        "tp at most 4", "devices at most 16", "nodes without ib/node0, roce", "rent at most 36 USD/h",
        "cost at most 0.2 USD/Mtoken", "tp 2 on cluster ib",
        "targets megatron, flagscale", "memory_headroom 0.1", "first_stage ib", "--pp 4", "--zero-stage 0", "--for deepspeed",
    )  # fmt: skip
    stages = [{"stage": 1, "cluster": "ib"}, {"stage": -2, "cluster": "roce"}]
    assert required({"stages": stages}).items() == ("stage 1 on cluster ib, stage -2 on cluster roce",)
    assert required({"nodes": {"only": ["ib"]}}).items() == ("nodes only ib",)


@pytest.mark.parametrize(
    ("one", "conflict"),
    after(
        6,
        [
            (required({"tp": {"max": 4}, "devices": {"max": 8}}), ()),
            (required({"tp": 3, "devices": {"max": 8}}), ("tp 3",)),
            (required({"tp": {"max": 4}, "devices": {"max": 8}}, tp=8), ("tp at most 4", "--tp 8")),
            (
                required({"schedule": ["1f1b"], "devices": {"max": 1}, "recompute": "none", "microbatch_size": {"min": 8}}),
                ("devices at most 1", "recompute none", "microbatch_size at least 8"),
            ),
            (required({"devices": {"max": 16}, "dp": {"min": 17}}), ("devices at most 16", "dp at least 17")),
            (required({"memory_headroom": 0.99, "tp": {"max": 2}}), ("memory_headroom 0.99",)),
            (required({"tp": 4, "pp": {"min": 9}, "first_stage": "ib"}), ("tp 4", "pp at least 9")),
            (required({"nodes": {"only": ["ib"]}, "devices": {"max": 16}}, "torchtitan"), ("--for torchtitan",)),
        ],
    ),
)
def test_the_smallest_set_that_conflicts(one, conflict):
    assert smallest(one) == (conflict, True)


def test_without_a_plan_for_the_workload_nothing_conflicts():
    one = Required(require(HYBRID, {"devices": {"max": 8}}), commands.workload_of(HYBRID, "gpt-175b", 1, 2048), Wishes())
    assert smallest(one) == ((), True)


def test_without_time_the_set_has_no_more_than_it_needs():
    """The launch target alone conflicts with the model; two others conflict with each other."""
    one = required({"tp": {"max": 4}, "devices": {"max": 8}}, "torchtitan", tp=8)
    assert smallest(one) == (("--for torchtitan",), True)
    assert smallest(required({"tp": {"max": 4}, "devices": {"max": 8}}, tp=8), 0.0) == (("tp at most 4", "--tp 8"), False)


@more
def test_prices_are_the_steps_without_each():
    pins = {"tp": 2, "pp": 2, "microbatch_size": 4, "schedule": "1f1b", "recompute": "none", "zero_stage": 1, "cp": 1}
    one = required({"devices": {"max": 16}, "first_stage": "ib"}, **pins)
    found = commands.plan(one.where, WORKLOAD, wishes=one.wishes, target="none").plan
    free = commands.plan(HYBRID, WORKLOAD, wishes=one.wishes, target="none").plan
    assert found.prediction is not None and free.prediction is not None
    assert len(found.placement) == 16
    devices, first = prices(one, one.items()[:2], 60.0, start=found)
    assert (devices.requirement, devices.step_s) == ("devices at most 16", pytest.approx(free.prediction.step_s))
    assert first.step_s is not None and first.step_s <= found.prediction.step_s
    assert devices.step_s < first.step_s
    assert devices.bound_s is not None and devices.bound_s <= devices.step_s


@pytest.mark.parametrize(
    ("left", "items", "seconds", "share"),
    [
        (60.0, 4, 60.0, 15.0),
        (18.0, 4, 18.0, 5.0),  # the first of four, not 4.5 s each
        (3.0, 1, 18.0, 3.0),
        (2.4, 1, 18.0, 0.0),
        (1.9, 1, 2.0, 1.9),  # of a short time limit all that is left
        (0.9, 1, 2.0, 0.0),
        (-1e-6, 1, 0.0, 0.0),
    ],
)
def test_first_requirements_have_their_time_before_later_ones(left, items, seconds, share):
    assert share_of(left, items, seconds) == share


def test_a_requirement_has_no_price_without_time():
    one = required({"tp": {"max": 4}})
    assert list(prices(one, one.items(), 0.0)) == [Price("tp at most 4", None, "not planned: no time left")]


def test_the_error_names_the_conflict_and_what_each_costs():
    pins = {"pp": 1, "microbatch_size": 8, "schedule": "1f1b", "recompute": "full", "zero_stage": 1}
    one = required({"tp": {"max": 4}, "first_stage": "ib"}, tp=8, **pins)
    lines = str(explained(one, Infeasible("none"), 60.0, print)).splitlines()
    assert lines[0] == "no plan of holmes-hybrid-4 has all of: tp at most 4; --tp 8 (the smallest set that conflicts)"
    assert [line.partition(": a step of ")[0] for line in lines[1:]] == ["without tp at most 4", "without --tp 8"]


def test_a_range_over_values_that_are_not_searched_says_so():
    one = required({"cp": {"min": 2}}, tp=2, pp=2, microbatch_size=4, schedule="1f1b", recompute="none")
    lines = str(explained(one, Infeasible("none; remedy: more"), 60.0, print)).splitlines()
    assert lines[:3] == [
        "no plan of holmes-hybrid-4 has cp at least 2",
        "none",
        "a range leaves out values that are searched otherwise; a list such as [2, 4] searches others, too",
    ]


def test_an_error_without_a_conflict_is_kept():
    error = Infeasible("no plan")
    assert explained(required({"tp": {"max": 4}}), error, 60.0, print) is error
