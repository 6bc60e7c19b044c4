"""Plans of the pipeline that was built last."""

from __future__ import annotations

import pytest

from planner.placement import latest_plans, ranks
from planner.placement.latest_plans import LatestPlans
from sim.errors import NotDefined
from tests.planner.builders import on_one_cluster, shape

REQUEST, SHAPE = on_one_cluster(nodes=2, devices=2), shape(dp=2)


def test_the_plans_of_the_latest_pipeline_are_built_once() -> None:
    plans, stages = LatestPlans(), (("c", 2), ("c", 2))
    first = plans.build(REQUEST, SHAPE, stages, False)
    assert plans.build(REQUEST, SHAPE, stages, False) is first
    assert first == ranks.build(REQUEST, SHAPE, stages, "certified")
    assert plans.build(REQUEST, SHAPE, (("c", 1), ("c", 3)), False).layers == (1, 3)
    assert plans.build(REQUEST, SHAPE, stages, False) is not first


def test_why_there_is_no_plan_is_known_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def refused(*facts: object) -> None:
        asked.append(True)
        raise NotDefined("the target refuses it")

    monkeypatch.setattr(latest_plans, "build", refused)
    plans = LatestPlans()
    for _ in range(2):
        with pytest.raises(NotDefined, match="the target refuses it"):
            plans.build(REQUEST, SHAPE, (("c", 4),), True)
    assert asked == [True]
