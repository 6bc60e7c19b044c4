"""Compressed messages are refused by every framework, and printed with a plan."""

from __future__ import annotations

import pytest

from holmes_sim import exporters
from holmes_sim.launching.compressed_messages import compressed
from sim.plan.parallel_config import ParallelConfig
from tests import builders

REASON = "message_compression int8: its pipeline sends whole activations and gradients; none"


@pytest.mark.parametrize(("pp", "text", "refused"), [(2, "int8", True), (1, "int8", False), (2, "none", False)])
def test_where_they_have_an_effect(pp, text, refused):
    assert list(compressed(ParallelConfig(pp=pp, message_compression=text))) == ([REASON] if refused else [])


@pytest.mark.parametrize("name", exporters.frameworks())
def test_frameworks_refuse_them(name):
    plan = builders.plan(builders.fleet(builders.cluster(nodes=2)), pp=2, message_compression="int8")
    assert REASON in exporters.unsupported(name, plan)
    assert REASON in exporters.target(name).unsupported_layout(plan.config, plan.workload)
