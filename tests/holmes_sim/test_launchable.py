"""The sentence that says which frameworks can run a plan."""

from __future__ import annotations

from holmes_sim import exporters, launchable
from sim.plan.certificate import Axis, Certificate
from tests import builders, features


def test_each_framework_is_named_once_on_one_side():
    assert exporters.frameworks() == ("megatron", "torchtitan", "deepspeed", "flagscale", "holmes")
    plain = features.plan_of(features.FEATURES[0])
    assert launchable.frameworks(plain) == (
        "Runs with megatron, torchtitan, flagscale, holmes; not with deepspeed: `plan --for NAME` finds the best plan for one."
    )


def test_where_all_or_none_can_the_sentence_is_shorter(monkeypatch):
    plan = features.plan_of(features.FEATURES[0])
    monkeypatch.setattr(exporters, "unsupported", lambda name, plan: iter(()))
    assert launchable.frameworks(plan) == "Runs with megatron, torchtitan, deepspeed, flagscale, holmes."
    monkeypatch.setattr(exporters, "unsupported", lambda name, plan: iter(["tp 1: never"]))
    assert launchable.frameworks(plan) == (
        "Does not run with megatron, torchtitan, deepspeed, flagscale, holmes: `plan --for NAME` finds the best plan for one. "
        "Most often because of tp 1: never."
    )


def test_large_plans_are_not_asked_about(monkeypatch):
    monkeypatch.setattr(launchable, "MOST", 1)
    assert launchable.frameworks(builders.plan(builders.fleet(builders.cluster(devices=2)), dp=2)) == ""


def test_a_plan_for_a_target_names_the_versions_that_read_its_exports():
    plain = features.plan_of(features.FEATURES[0])
    proof = Certificate("feasible", 1.0, 1.0, 0.0, "none", False, space=(Axis("target", ("megatron and holmes",)),))
    assert launchable.frameworks(plain.annotated(certificate=proof)).startswith(
        "Runs with megatron (its exports were read by megatron-core 0.16.1 and 0.19.2), torchtitan, flagscale, "
        "holmes (its exports were read by its own code (dadcc08)); not with deepspeed: "
    )
