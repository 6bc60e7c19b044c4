"""A prediction that rests on a guess says so: devices whose rates of matrix products were not measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import kernels
from holmes_sim import cases, commands, guesses, validation
from sim.formats import catalog
from sim.formats.edits import edited
from sim.hardware.stack import DEFAULT
from sim.plan.plan import Plan

SAILOR = cases.load(validation.folder() / "sailor.yaml")
PROFILED = cases.load(validation.folder() / "profiled" / "sailor_mixed.yaml")
(HOLMES, *_) = cases.load(validation.folder() / "holmes.yaml")


def plan_of(case: cases.Case) -> Plan:
    assert case.plan is not None
    return case.plan


def test_guessed_devices_are_named_and_measured_ones_are_not() -> None:
    assert guesses.guessed_rates(plan_of(SAILOR[0])) == ("gh200-96gb",)
    assert guesses.guessed_rates(plan_of(HOLMES)) == (), "the curve of a100-sxm4-80gb was measured"


@pytest.mark.parametrize(
    ("device", "origin"),
    [("a100-sxm4-80gb", "measured"), ("v100-sxm2-16gb", "checked"), ("t4", "guess"), ("h800-sxm5-80gb", "guess")],
)
def test_the_catalogue_says_where_a_curve_comes_from(device: str, origin: str) -> None:
    facts = catalog.device_facts(device)
    assert guesses.origin(facts) == origin
    assert guesses.is_guessed(facts) == (origin == "guess")


def test_checked_curves_are_those_that_measured_layers_confirm() -> None:
    """Two or more layers on the device, in proportion to the A100 of the same software within a twentieth (fp16), and in fp32
    within 7 %: benson-guo/zorse 2fd6330."""
    checked = [name for name in catalog.names("devices") if guesses.origin(catalog.device_facts(name)) == "checked"]
    assert checked == ["a100-sxm4-40gb", "v100-sxm2-16gb"]
    reference = kernels.middle_error(kernels.layer_errors("a100-sxm4-80gb fp16"))
    for name in checked:
        half, single = (kernels.layer_errors(f"{name} {precision}") for precision in ("fp16", "fp32"))
        assert min(len(half), len(single)) >= 2
        assert (1 + kernels.middle_error(half)) / (1 + reference) == pytest.approx(1, abs=0.05)
        assert max(abs(error) for one in single for error in (one.forward, one.backward)) <= 0.07


def test_only_devices_with_a_rank_count() -> None:
    mixed = next(plan_of(case) for case in SAILOR if len(plan_of(case).specs) == 3)
    assert guesses.guessed_rates(mixed) == ("rtx-2080-ti", "titan-rtx")


def test_a_profile_replaces_the_guess() -> None:
    measured = validation.read([validation.folder() / "profiled" / "sailor_mixed.yaml"], "sailor")
    plans = [(bare.plan, case.plan) for bare, case in zip(PROFILED, measured, strict=True) if bare.plan and case.plan]
    assert all(guesses.guessed_rates(bare) for bare, _ in plans)
    assert [guesses.guessed_rates(plan) for _, plan in plans] == [()] * len(plans)


def test_rates_that_the_topology_gives_are_not_the_guess_of_the_catalogue() -> None:
    plan = plan_of(SAILOR[0])
    (spec,) = plan.specs
    assert guesses.catalogued(spec, DEFAULT) is not None
    assert guesses.catalogued(replace(spec, gemm=replace(spec.gemm, compute_efficiency=0.5)), DEFAULT) is None
    assert guesses.catalogued(replace(spec, name="mine"), DEFAULT) is None


def test_a_software_stack_is_no_change_of_the_device() -> None:
    """The rates of the device under a stack are the catalogue's, times the shares of the stack."""
    where = edited(commands.load("holmes-infiniband-4"), {"stack": "megatron-2021"})
    spec = where.fleet.clusters[0].node.device
    assert guesses.catalogued(spec, DEFAULT) is None
    assert guesses.catalogued(spec, where.stack) is not None


@pytest.mark.parametrize(
    ("device", "precision", "guessed"), [("gb200", "fp8", False), ("gb200", "nvfp4", False), ("gh200-96gb", "fp8", True)]
)
def test_narrow_products_have_a_grade_of_their_own(device: str, precision: str, guessed: bool) -> None:
    """The curves of gb200 were measured in fp8 and nvfp4; that of gh200 in fp8 is that of h100, a guess."""
    topology = commands.load("holmes-infiniband-4")
    (cluster,) = topology.fleet.clusters
    changes = {f"clusters.{cluster.name}.node.devices.type": device, "workload.precision": precision}
    where = edited(topology, changes)
    assert where.workload is not None
    assert guesses.guessed_rates(commands.plan(where, where.workload, "megatron").plan) == ((device,) if guessed else ())
