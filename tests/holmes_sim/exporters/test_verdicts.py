"""What is exported today is what the targets' own programs read as the plan, when they were last asked (`make test-peers`)."""

from __future__ import annotations

import pytest

from holmes_sim import exporters
from tests.peers import exported

MOST_RANKS = {"chakra": 8}
"""Exports of more ranks are made by `make test-peers` alone: all traces of the corpus are gigabytes, and exports of hundreds of
ranks repeat lines of smaller ones."""
USUAL = 64
"""Most ranks of the other targets."""


@pytest.mark.parametrize("target", exported.readers())
def test_what_is_exported_has_been_read(target):
    kept = exported.kept(target)
    plans = dict(exported.expressible(target, exported.shipped()))
    few = [name for name, plan in plans.items() if len(plan.placement) <= MOST_RANKS.get(target, USUAL)]
    today = {name: exported.digest(exporters.get(target).launch(plans[name])) for name in few}
    assert {name: kept["verdicts"][name]["digest"] for name in few} == today, "run make test-peers"
    assert list(kept["verdicts"]) == list(plans)
    assert kept["unread"] == []
    assert all(verdict["read"] for verdict in kept["verdicts"].values())


def test_every_target_has_a_reader():
    assert exported.readers() == sorted(exporters.names())
