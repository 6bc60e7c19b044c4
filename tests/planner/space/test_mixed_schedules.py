"""Schedules of plans with mixed stages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.request import Wishes
from planner.space.mixed_schedules import playable, variants_of_mixed
from planner.target import Target
from sim.plan import schedules
from tests.planner.builders import on_two_clusters, shape


def test_replicas_may_differ_without_virtual_stages_and_up_to_zero_1():
    found = list(variants_of_mixed(on_two_clusters(), shape(dp=2)))
    assert {(one.schedule, one.vpp, one.zero_stage) for one in found} == {
        ("1f1b", 1, 1), ("zb-h1", 1, 1), ("zb-h2", 1, 1),
    }  # fmt: skip
    assert not list(variants_of_mixed(on_two_clusters(wishes=Wishes(zero_stage=2)), shape(dp=2, zero_stage=2)))


def test_a_pinned_schedule_is_the_only_one():
    assert playable(on_two_clusters(wishes=Wishes(schedule="gpipe")), shape(dp=2), True) == [schedules.get("gpipe")]


@pytest.mark.parametrize(("several", "names"), [(True, ["1f1b"]), (False, ["1f1b", "zb-h1", "zb-h2"])])
def test_a_target_without_split_backwards_has_them_in_pipelines_of_one_stage_only(several, names):
    def unsupported(config, workload):
        return iter([f"schedule {config.schedule}"] if config.pp > 1 and config.schedule.startswith("zb") else [])

    question = replace(on_two_clusters(), target=Target("one", "any", (), unsupported, lambda plan: iter(())))
    assert playable(question, shape(dp=2), several) == [schedules.get(name) for name in names]
