"""A shape: its microbatches and its configuration."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from planner.space.shape import split_backward
from sim.plan import schedules
from sim.workload.routing import Routing
from tests.planner.builders import on_one_cluster, shape


def test_replicas_of_a_dp_that_does_not_divide_the_batch_differ_by_one_microbatch():
    workload = on_one_cluster(batch=14).workload
    three = shape(dp=3, microbatch_size=2)
    assert (three.microbatches(workload), three.least_microbatches(workload), three.divides(workload)) == (3, 2, False)
    assert three.microbatches_of_replicas(workload) == (3, 2, 2)
    assert three.config(workload, 2).num_microbatches == (3, 3, 3), "for costs, the most"
    one = shape(dp=7)
    assert (one.microbatches(workload), one.least_microbatches(workload), one.divides(workload)) == (2, 2, True)


def test_a_split_backward_overlaps_messages():
    found = split_backward(shape(schedule="interleaved", vpp=2))
    assert found.vpp == 1 and schedules.get(found.schedule).SPLITS_BACKWARD and schedules.get(found.schedule).OVERLAPS_SENDS


def test_the_longest_pipeline_is_one_that_the_schedule_is_defined_for():
    interleaved = shape(schedule="interleaved", vpp=2)
    assert [interleaved.longest(12, most) for most in (3, 5, 7, 13)] == [3, 4, 6, 12]
    assert [shape().longest(12, most) for most in (3, 5)] == [3, 5]


def test_a_shape_of_another_process_is_found_in_a_dictionary():
    made = "import pickle, sys; from tests.planner.builders import shape; pickle.dump(shape(dp=3), sys.stdout.buffer)"
    foreign = subprocess.run(
        [sys.executable, "-c", made], capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": "1"}
    ).stdout
    assert {shape(dp=3): "found"}[pickle.loads(foreign)] == "found"


def test_a_configuration_has_the_routing_of_its_workload_for_its_ep():
    counted = replace(on_one_cluster().workload, routing=Routing(tokens=(5, 3, 1, 1)))
    assert [shape(dp=4, ep=ep).config(counted, 1).imbalance for ep in (1, 2, 4)] == [1.0, 1.6, 2.0]
    padded = replace(counted, routing=Routing(capacity_factor=1.25, pad_to_capacity=True))
    assert shape(dp=4, ep=2).config(padded, 2).load == 1.25


@pytest.mark.parametrize("name", ["alltoall", "allgather", "deepep"])
@pytest.mark.parametrize(("ep", "shared"), [(1, 64), (2, 0), (2, 64)])
def test_the_exchange_of_a_stack_is_that_of_plans_that_have_one(name: str, ep: int, shared: int):
    """Shared experts run beside an all_to_all only; without ep above 1 no token travels."""
    workload = on_one_cluster(batch=4).workload
    workload = replace(workload, model=replace(workload.model, experts=4, experts_per_token=2, shared_ffn_hidden=shared))
    config = shape(dp=2, ep=ep, dispatcher=name, overlap_shared_experts=True).config(workload, 2)
    assert config.dispatcher == (name if ep > 1 else "alltoall")
    assert config.overlap_shared_experts == (ep > 1 and shared > 0 and name != "allgather")
    if name != "allgather":
        beside = shape(dp=2, ep=ep, dispatcher=name, overlap_expert_communication=True).config(workload, 2)
        assert beside.overlap_expert_communication == (ep > 1)
