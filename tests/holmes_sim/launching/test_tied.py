"""Sums of shards of a tied embedding's gradient are refused where they would have an effect."""

from __future__ import annotations

import pytest

from holmes_sim import exporters
from holmes_sim.launching.tied import shards
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make

REASON = "tied_shards: its end stages sum the whole gradient of a tied embedding; tied_shards false (plan with --for)"


@pytest.mark.parametrize(
    ("pp", "on", "tied", "refused"),
    [(2, True, True, True), (1, True, True, False), (2, False, True, False), (2, True, False, False)],
)
def test_where_it_has_an_effect(pp, on, tied, refused):
    config = ParallelConfig(pp=pp, dp=2, num_microbatches=(2, 2), tied_shards=on)
    workload = make.plan(make.fleet(make.cluster()), shape={"tied_embeddings": tied}).workload
    assert list(shards(config, workload)) == ([REASON] if refused else [])


@pytest.mark.parametrize("name", [name for name in exporters.frameworks() if name != "torchtitan"])
def test_frameworks_refuse_it(name):
    workload = make.plan(make.fleet(make.cluster()), shape={"tied_embeddings": True}).workload
    config = ParallelConfig(pp=2, dp=2, num_microbatches=(2, 2), tied_shards=True)
    assert REASON in exporters.target(name).unsupported_layout(config, workload)
