"""The prediction of a stage with two sets of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.disaggregation import memory
from sim.disaggregation.costs import TaskCosts, compute_bounds
from sim.disaggregation.plan import predict
from sim.disaggregation.simulation import simulated_step
from tests.sim.disaggregation.builders import EXCHANGE, machines, stage
from tests.two_rank_sets import plan


def test_numbers_of_a_prediction():
    """Two layers and two rounds of two microbatches; a dispatch takes half a second, and so does a combine."""
    whole = stage(machines(rate=EXCHANGE / 0.5), batch=4, rounds=2)
    found = predict(whole)
    assert found.step_s == simulated_step(whole)
    assert found.tokens_per_s == pytest.approx(4 * 64 / found.step_s)
    assert found.exchange_s == pytest.approx((8.0, 8.0))
    closing = TaskCosts(whole).closing()
    assert found.closing_s == (closing["attention"], closing["experts"])
    assert found.peak_memory_bytes == (memory.attention_rank_bytes(whole), memory.expert_rank_bytes(whole))
    assert max(found.compute_s) < found.step_s


def test_compute_and_the_end_of_a_step_are_the_bounds():
    whole = stage(machines(2, 1), batch=24, rounds=3, kept=(0, 4))
    found, bounds = predict(whole), compute_bounds(whole, TaskCosts(whole))
    for index, stream in enumerate(("attention", "experts")):
        assert found.compute_s[index] + found.closing_s[index] == pytest.approx(bounds[stream])


def test_ranks_are_numbered_set_by_set():
    assert [str(device) for device in plan().placement] == ["new/node0/dev0", "new/node1/dev0", "old/node0/dev0"]
    assert plan().workload == replace(plan().topology, workload=plan().workload).workload
    assert repr(plan()).startswith("two-types: small, attention on 2 devices of new, experts on 1 of old")
