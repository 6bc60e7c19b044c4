"""Some plan of a schedule along a V: one that fits is found, and none where none fits."""

from __future__ import annotations

import pytest

from planner.placement.simulation import fits
from planner.request import Wishes
from planner.search.along_a_v_fitting import some_plan
from planner.search.fitting import fitting
from sim.hardware.cluster import Fleet
from tests import builders as make
from tests.planner.builders import request


def machines(memory: float = 1e12) -> Fleet:
    return make.fleet(make.cluster(nodes=4, devices=1, nics=(make.nic(bandwidth=1e7),), spec=make.device(memory=memory)))


@pytest.mark.parametrize(("pp", "found"), [(None, 4), (2, 2), (1, None), (5, None)])
def test_the_longest_pipeline_that_may_be(pp: int | None, found: int | None) -> None:
    question = request(machines(), make.model(8, tied_embeddings=False), 8, Wishes(schedule="dualpipev", dp=1, pp=pp))
    plan = some_plan(question)
    assert (plan and plan.config.pp) == found
    if plan is not None:
        assert fits(plan) and (plan.config.schedule, plan.config.vpp) == ("dualpipev", 2)
        assert fitting(question) == plan


@pytest.mark.parametrize(("facts", "wishes"), [({"tied_embeddings": True}, {}), ({"tied_embeddings": False}, {"vpp": 4})])
def test_none_where_the_schedule_is_not_planned(facts: dict[str, object], wishes: dict[str, int]) -> None:
    assert some_plan(request(machines(), make.model(8, **facts), 8, Wishes(schedule="dualpipev", **wishes))) is None


def test_none_where_nothing_fits_memory() -> None:
    question = request(machines(memory=1e3), make.model(8, tied_embeddings=False), 8, Wishes(schedule="dualpipev"))
    assert some_plan(question) is None
