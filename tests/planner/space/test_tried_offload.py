"""Where offload of the optimizer is tried, and which targets can launch stages that differ in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import exporters
from planner.space.tried_offload import may_differ, may_offload
from tests.planner.search.test_offloaded import question

FRAMEWORKS = exporters.frameworks()


@pytest.mark.parametrize(("facts", "tried"), [({}, True), ({"cpu": None}, False), ({"host": None}, False)])
def test_hosts_must_be_known(facts, tried):
    assert may_offload(question(**facts)) == tried


@pytest.mark.parametrize("name", exporters.names())
def test_no_framework_has_stages_that_differ(name):
    assert may_differ(replace(question(), target=exporters.target(name))) == (name not in FRAMEWORKS)
