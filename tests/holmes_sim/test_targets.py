"""What a plan must be able to run on: named targets, any framework, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import commands, exporters, targets
from holmes_sim.requirements import request, require
from planner.request import Wishes
from planner.search.fitting import fitting
from sim.errors import HolmesError
from sim.formats import catalog
from sim.formats.edits import edited
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload
from tests import features

HYBRID = commands.load("holmes-hybrid-4")
WORKLOAD = commands.workload_of(HYBRID)
PLAIN = ParallelConfig(pp=2, num_microbatches=(4,))
GATHERED = replace(PLAIN, pp=1)
"""A layout that DeepSpeed runs, too: without a pipeline."""
TWO = "at least 2 frameworks"


def running(config: ParallelConfig, workload: Workload) -> list[str]:
    """The frameworks that can express a layout."""
    return [name for name in exporters.frameworks() if not list(exporters.target(name).unsupported_layout(config, workload))]


def reasons(config: ParallelConfig) -> list[str]:
    return list(targets.any_framework().unsupported_layout(config, WORKLOAD))


def test_any_framework_runs_what_one_of_them_runs():
    """Only DeepSpeed runs its own 1F1B; only Megatron-LM and FlagScale interleave a model with a tied embedding."""
    own = replace(PLAIN, schedule="1f1b-deepspeed")
    interleaved = replace(PLAIN, schedule="interleaved", vpp=2)
    for config, able in ((own, ["deepspeed"]), (interleaved, ["megatron", "flagscale"])):
        assert reasons(config) == []
        assert running(config, WORKLOAD) == able


def test_at_least_some_frameworks_run_what_as_many_of_them_run():
    own, interleaved = replace(PLAIN, schedule="1f1b-deepspeed"), replace(PLAIN, schedule="interleaved", vpp=2)
    two, three, beside = (targets.named(name) for name in (TWO, "at least 3 frameworks", f"deepspeed and {TWO}"))
    assert list(two.unsupported_layout(interleaved, WORKLOAD)) == []
    assert list(two.unsupported_layout(own, WORKLOAD)) and list(three.unsupported_layout(interleaved, WORKLOAD))
    assert list(beside.unsupported_layout(own, WORKLOAD)) and not list(beside.unsupported_layout(GATHERED, WORKLOAD))
    assert (two.vendors, targets.named("at least 4 frameworks").vendors) == ("joined", "one")
    assert two.can_not == "fewer than 2 frameworks can"


def test_at_least_some_frameworks_run_the_layout_and_the_placement(monkeypatch):
    """Of those that run the layout, one too few runs the placement."""
    plan = features.plan_of(features.FEATURES[0])
    able = [name for name in exporters.frameworks() if not any(exporters.unsupported(name, plan))]
    every = targets.named(targets.at_least(len(able)))
    assert every.fault(plan) == ""
    monkeypatch.setattr(exporters.get(able[0]), "unsupported_placement", lambda plan: iter(["hosts: none"]))
    assert targets.named(targets.at_least(len(able))).fault(plan) != ""
    assert targets.named(targets.at_least(len(able) - 1)).fault(plan) == ""


def test_there_are_no_more_frameworks_than_are_known():
    with pytest.raises(HolmesError, match=r"^targets: min 6 is more than the training frameworks megatron, torchtitan, "):
        targets.at_least(6)


def test_only_usual_schedules_unless_one_is_asked_for():
    refused = reasons(replace(PLAIN, schedule="zb-h2"))
    assert refused[0] == "schedule zb-h2: few frameworks run it; --schedule zb-h2, or --for none"
    assert request(HYBRID, WORKLOAD).target == targets.any_framework()
    assert request(HYBRID, WORKLOAD, Wishes(schedule="1f1b")).target == targets.any_framework()
    assert request(HYBRID, WORKLOAD, Wishes(schedule="zb-h2")).target is None
    assert request(require(HYBRID, {"schedule": ["1f1b", "zb-h1"]}), WORKLOAD).target is None


def test_one_framework_must_run_the_layout_and_the_placement(monkeypatch):
    """A framework that runs the layout and another one that runs the placement are not enough."""
    plan = features.plan_of(features.FEATURES[0])
    every = targets.any_framework()
    with_layout = running(plan.config, plan.workload)
    assert every.fault(plan) == ""
    for name in with_layout:  # what runs the layout now refuses the placement, and the others still refuse the layout
        monkeypatch.setattr(exporters.get(name), "unsupported_placement", lambda plan: iter(["hosts: none"]))
    assert targets.any_framework().fault(plan) != ""


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (("any",), "any"),
        (("megatron", "any"), "megatron"),
        (("none",), None),
        (("holmes and slurm",), "holmes and slurm"),
        ((TWO, "any"), TWO),
        (("megatron", TWO), f"megatron and {TWO}"),
    ],
)
def test_words_for_a_target(asked: tuple[str, ...], name: str | None):
    target = targets.aimed(request(HYBRID, WORKLOAD, target="none"), asked).target
    assert (target.name if target is not None else None) == name


def test_a_wrong_word_is_told():
    with pytest.raises(HolmesError, match="target 'megatro' is unknown; did you mean 'megatron'"):
        request(HYBRID, WORKLOAD, target="megatro")
    with pytest.raises(HolmesError, match="target: the name of a launch target, 'any' or 'none' is expected, not None"):
        request(HYBRID, WORKLOAD, target=None)


def test_a_word_that_is_like_no_target_shows_all_that_may_be_asked_for():
    with pytest.raises(HolmesError, match=r"^target 'xyz' is unknown; known: any, chakra, .*, none, "):
        request(HYBRID, WORKLOAD, target="xyz")


def test_without_a_framework_that_runs_anything_there_is_no_target():
    """No framework has tf32, which Sailor's inputs use."""
    where = edited(HYBRID, {"workload.precision": "tf32"})
    assert request(where, commands.workload_of(where)).target is None


def test_a_model_whose_layers_differ_is_planned_for_a_framework():
    """Whether one can run a plan is asked with a model of equal layers in its place."""
    workload = commands.workload_of(HYBRID, "gemma-3-1b", 32, 1024)
    assert request(HYBRID, workload).target == targets.any_framework()


def test_published_strategies_know_no_framework():
    assert targets.of_strategy("holmes", "any") == "none"
    assert targets.of_strategy("holmes", "megatron") == "megatron"
    assert targets.of_strategy("certified", "any") == "any"


def test_a_plan_that_fits_runs_with_the_target():
    found = fitting(request(HYBRID, WORKLOAD))
    assert found is not None
    assert found.config.schedule == "1f1b"


def test_where_no_framework_runs_a_plan_that_fits_remedies_know_what_was_asked():
    """But no framework streams parameters, whatever fits."""
    large = replace(WORKLOAD, model=catalog.model("gpt-530b"))
    found = request(HYBRID, large, target="any")
    assert found.target is None
    assert found.unfit_target is not None and found.unfit_target.name == "any"
    assert request(HYBRID, large, target="none").unfit_target is None
    assert request(HYBRID, WORKLOAD, target="any").unfit_target is None
    assert request(HYBRID, large, Wishes(offload="parameters"), target="any").unfit_target is None
