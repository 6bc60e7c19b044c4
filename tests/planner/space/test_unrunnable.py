"""A target that can run no layout of a workload is known before a search."""

from __future__ import annotations

from dataclasses import replace

from planner.request import Wishes
from planner.space.unrunnable import fault_of_every_shape
from tests.planner.builders import on_one_cluster
from tests.planner.targets import target

FREE = on_one_cluster(layers=4, batch=8, nodes=2, devices=2)
REQUEST = replace(FREE, target=target())


def with_faults(of_layout):
    """The request for a target with these faults of a (config, workload)."""
    return replace(REQUEST, target=replace(REQUEST.target, unsupported_layout=lambda *given: iter(of_layout(*given))))


def test_a_fault_of_the_model_is_that_of_every_shape():
    assert fault_of_every_shape(with_faults(lambda config, workload: [f"mlp {workload.model.mlp}: gated"])) == "mlp gelu: gated"


def test_a_target_that_runs_a_layout_has_none():
    assert fault_of_every_shape(FREE) == fault_of_every_shape(REQUEST) == ""
    one = with_faults(lambda config, workload: ["tp: 2 only"] if config.tp != 2 else [])
    assert fault_of_every_shape(one) == ""


def test_unlike_faults_are_not_one():
    assert fault_of_every_shape(with_faults(lambda config, workload: [f"tp {config.tp}: none"])) == ""


def test_pins_that_no_device_keeps_to_are_no_fault_of_the_target():
    assert fault_of_every_shape(replace(REQUEST, wishes=Wishes(tp=16))) == ""
