"""Lists of tensors of DeepSpeed's ZeRO 3 of 2021: closed forms, who has them, and a published step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import validation
from sim.analytic import plan_costs
from sim.analytic.stage_amounts import traffic_seconds
from sim.engine.engine import simulate
from sim.kernels.compute import rank_kernels
from sim.kernels.tensor_lists import list_seconds
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.plan.under_stack import with_stack
from sim.workload.workload import Workload
from tests import builders
from tests.published_runs import runs

CONFIG = ParallelConfig(dp=4, num_microbatches=(4,) * 4, zero_stage=3, overlap_grad_reduce=False)
GPT = Workload(builders.model(8), 64, 64)
LISTING = builders.device(tensor_lists=True)


def test_a_forward_has_a_slice_for_each_rank_and_product() -> None:
    """Four products on four ranks: 16 slices of 13.5 us, and a zeroing and a copy of 1 MB at 1 TB/s."""
    kernels = rank_kernels(GPT, CONFIG)
    forward, backward = list_seconds(LISTING, CONFIG, kernels, (1e6, 2e6), 1)
    assert forward == pytest.approx(16 * 13.5e-6 + 3e-6, rel=1e-12)
    assert backward - forward == pytest.approx(4 * 12 * 13.5e-6 + 4e-6, rel=1e-12), "twelve tensors have gradients"
    again = list_seconds(LISTING, CONFIG, kernels, (1e6, 2e6), 2)
    assert again == pytest.approx((forward, backward + forward), rel=1e-12), "weights of a repeated forward are gathered, too"


def test_slices_are_as_many_as_ranks_that_share_the_weights() -> None:
    kernels = rank_kernels(GPT, CONFIG)
    whole, half = (
        sum(list_seconds(LISTING, one, kernels, (0.0, 0.0), 1)) for one in (CONFIG, replace(CONFIG, zero_shard_size=2))
    )
    assert whole == pytest.approx(2 * half, rel=1e-12)


@pytest.mark.parametrize("config", [replace(CONFIG, zero_stage=2), replace(CONFIG, zero_stage=1)])
def test_only_zero_3_and_only_such_software_has_lists(config: ParallelConfig) -> None:
    kernels = rank_kernels(GPT, config)
    assert list_seconds(LISTING, config, kernels, (1e6, 1e6), 1) == (0.0, 0.0)
    assert list_seconds(builders.device(), CONFIG, kernels, (1e6, 1e6), 1) == (0.0, 0.0)


@pytest.mark.parametrize("overlaps", [False, True])
def test_lists_are_added_to_each_layer_of_a_pass(overlaps: bool) -> None:
    """They are as long whether collectives overlap or not, and come on top of the memory that the latter take."""
    config = replace(CONFIG, overlap_grad_reduce=overlaps)
    shape = (config, 3, False, False)
    without, listing = (traffic_seconds(device, GPT, *shape) for device in (builders.device(), LISTING))
    one = traffic_seconds(LISTING, GPT, config, 1, False, False)
    alone = traffic_seconds(builders.device(), GPT, config, 1, False, False)
    assert [a - b for a, b in zip(listing, without, strict=True)] == pytest.approx(
        [3 * (a - b) for a, b in zip(one, alone, strict=True)], rel=1e-9
    )
    assert min(listing) > 16 * 3 * 13.5e-6


def of_2021(name: str) -> Plan:
    """The plan of a published run with the default numbers and the facts of its software."""
    case = runs("new_software/zero_3")[name]
    assert case.plan is not None
    return with_stack(validation.stack_of(case, "default")[1], case.plan)


def test_closed_form_and_engine_agree_with_lists() -> None:
    plan = of_2021("zero-3-175b-g384-mb4")
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=0.01)


def test_twice_the_devices_take_as_long_as_published() -> None:
    """175B with a batch of 1,536 sequences takes 66.7 s on 768 devices and on 1,536 (arXiv 2104.04473, table 2)."""
    once, twice = (plan_costs.step_seconds(of_2021(f"zero-3-175b-g{devices}")) for devices in ("768-mb2", "1536-mb1"))
    assert 1.0 < twice / once < 1.25


def test_software_of_2022_gathers_into_one_tensor() -> None:
    devices = {name: of_2021(name).fleet.spec(of_2021(name).placement[0]) for name in runs("new_software/zero_3")}
    assert {name for name, device in devices.items() if not device.tensor_lists} == {"zero-3-azure-175b-g256-mb32"}
