"""Seconds of compute: launches, and what a backward, a recomputation and the optimizer add, on a device without secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.formats.catalog import device as device_of
from sim.formats.catalog import model as model_of
from sim.hardware.device_spec import AttentionRates, GemmCurve
from sim.kernels import compute, formulas
from sim.plan.parallel_config import ParallelConfig
from sim.workload.kernels import Attention
from sim.workload.workload import Workload
from tests import builders

LAUNCH = formulas.PASS_LAUNCH


def test_no_layer_is_faster_than_its_launch() -> None:
    """Forward 1 ms of the host, backward 1.3, whatever the device; a forward that is repeated is launched again."""
    device = builders.device(speed=1e30, memory_bandwidth=1e30, launch=1e-3)
    workload = Workload(builders.model(hidden=96), 8, 64)
    assert compute.layer_seconds(device, workload, ParallelConfig()) == pytest.approx((1e-3, 1.3e-3), rel=1e-12)
    repeated = compute.layer_seconds(device, workload, ParallelConfig(recompute="full"))
    assert repeated == pytest.approx((1e-3, 2.3e-3), rel=1e-12)


@pytest.mark.parametrize(("tp", "pp", "forward"), [(4, 2, 3e-3), (4, 1, 1e-3), (1, 2, 1e-3)])
def test_in_a_pipeline_the_launch_grows_with_the_ranks_of_a_tensor_parallel_group(tp: int, pp: int, forward: float) -> None:
    """1 ms and 4 x 0.5 ms; the backward takes 1.3 times as long."""
    device = builders.device(speed=1e30, memory_bandwidth=1e30, launch=1e-3, launch_per_rank=5e-4)
    config = ParallelConfig(tp=tp, pp=pp)
    found = compute.layer_seconds(device, Workload(builders.model(hidden=96), 8, 64), config)
    assert found == pytest.approx((forward, 1.3 * forward), rel=1e-12)


def test_software_may_move_more_bytes_of_every_gradient_that_a_rank_holds() -> None:
    """34 bytes for each of 1e6 parameters of the optimizer's shard, 100 for each of the 4e6 that the rank holds."""
    device = builders.device(memory_bandwidth=1e9, update_bytes=100.0)
    assert compute.optimizer_seconds(device, 1e6, 4e6) == pytest.approx(LAUNCH + 34e-3 + 0.4, rel=1e-12)


def test_the_host_takes_its_time_once_a_step() -> None:
    device = builders.device(memory_bandwidth=1e9, step=0.25)
    assert compute.optimizer_seconds(device, 1e6, 1e6) == pytest.approx(LAUNCH + 34e-3 + 0.25, rel=1e-12)


def test_a_gradient_is_read_as_it_comes_and_read_and_written_as_it_is_kept() -> None:
    """2 + 2 x 4 bytes a parameter against 2 + 2 x 2."""
    device = builders.device(speed=1e30, memory_bandwidth=1e9, attention=AttentionRates(1e30, 1e30))
    workload = Workload(builders.model(hidden=96), 8, 64)
    wide, narrow = (
        compute.layer_seconds(device, workload, ParallelConfig(gradient_precision=kind))[1] for kind in ("fp32", "bf16")
    )
    assert wide - narrow == pytest.approx(4 * workload.model.layer_parameters / 1e9, rel=1e-9)


def test_launches_that_block_add_to_the_kernels() -> None:
    """1 ms to a forward and to the one that is repeated, 1.3 ms to a backward."""
    workload = Workload(builders.model(hidden=6144), 2048, 64)
    config = ParallelConfig(recompute="full")
    device = device_of("a100-sxm4-80gb")
    devices = replace(device, launch=0.0), replace(device, launch=1e-3, blocking=True)
    there, here = (compute.layer_seconds(device, workload, config) for device in devices)
    assert [after - before for before, after in zip(there, here, strict=True)] == pytest.approx([1e-3, 2.3e-3])


def test_the_optimizer_moves_34_bytes_a_parameter() -> None:
    seconds = compute.optimizer_seconds(builders.device(memory_bandwidth=1e9), 1e6, 1e6)
    assert seconds == pytest.approx(LAUNCH + 34e-3, rel=1e-12)


def layer(**config: Any) -> tuple[float, float]:
    workload = Workload(builders.model(hidden=1536), 8, 1024)
    return compute.layer_seconds(builders.device(), workload, ParallelConfig(**config))


def test_full_recomputation_runs_the_forward_again() -> None:
    forward, backward = layer()
    assert layer(recompute="full") == (forward, pytest.approx(backward + forward, rel=1e-12))


def test_recomputation_that_stops_early_leaves_out_the_last_product() -> None:
    """24 s b h^2 FLOPs forward with a last product of 8 (torch.utils.checkpoint, early_stop), and the passes before it."""
    h, s = 1536, 1024
    device = replace(builders.device(speed=1e12, memory_bandwidth=1e30), attention=AttentionRates(1e30, 1e30))
    again = {}
    for experts in (0, 2):
        shape = {"experts": experts, "experts_per_token": 1} if experts else {}
        workload = Workload(builders.model(hidden=h, **shape), 8, s)
        config = ParallelConfig(recompute="full", early_stop=True)
        none, early, full = (
            compute.layer_seconds(device, workload, one)
            for one in (ParallelConfig(), config, replace(config, early_stop=False))
        )
        again[experts] = early[1] - none[1], full[1] - none[1]
    assert again[0][0] == pytest.approx(16 * s * h**2 / 1e12 + 5 * LAUNCH, rel=1e-9)
    assert again[2][0] == again[2][1]  # results of experts are weighted after their last product
    stopped = ParallelConfig(early_stop=True)
    assert compute.layer_seconds(device, workload, stopped) == compute.layer_seconds(device, workload, ParallelConfig())


def test_passes_of_software_that_fuses_less_move_more_bytes() -> None:
    """Heads move 12 s h bytes forward and 1.75 times as many backward; three times these are 2.75 x 24 s h more."""
    h, s = 1536, 1024
    workload, device = Workload(builders.model(hidden=h), 8, s), builders.device(memory_bandwidth=1e9)
    more = replace(device, passes=(("heads", 3.0),))
    found = [sum(compute.layer_seconds(one, workload, ParallelConfig())) for one in (device, more)]
    assert found[1] - found[0] == pytest.approx(2.75 * 24 * s * h / 1e9, rel=1e-9)
    named = {row.name: row for row in compute.kernel_times(more, workload, ParallelConfig())}
    assert named["heads"].forward == pytest.approx(LAUNCH + 36 * s * h / 1e9, rel=1e-12)


def test_selective_recomputation_is_free_where_the_attention_is_fused() -> None:
    assert layer(recompute="selective") == layer()


def test_selective_recomputation_runs_an_unfused_core_again() -> None:
    none, selective = (layer(attention="unfused", recompute=kind) for kind in ("none", "selective"))
    core = Attention("attention", 1, 24, 24, 64, 1024)
    again = formulas.attention_seconds(core, builders.device(), "bf16", 2, "unfused", False)
    assert selective[1] - none[1] == pytest.approx(again, rel=1e-9)


@pytest.mark.parametrize("config", [{}, {"recompute": "full"}, {"attention": "unfused", "recompute": "selective"}, {"tp": 2}])
def test_the_parts_of_a_backward_add_up_to_it(config: dict[str, Any]) -> None:
    workload, device = Workload(builders.model(hidden=1536), 8, 1024), builders.device()
    for whole, parts in ((compute.layer_seconds, compute.layer_parts), (compute.head_seconds, compute.head_parts)):
        forward, inputs, weights = parts(device, workload, ParallelConfig(**config))
        assert whole(device, workload, ParallelConfig(**config)) == (forward, inputs + weights)


def test_weight_gradients_are_one_product_of_each_and_the_accumulation() -> None:
    """24 s b h^2 FLOPs a layer (arXiv 2401.10241, table 1), 2-byte gradients read and 4-byte ones read and written."""
    h, s = 1536, 1024
    model = builders.model(hidden=h)
    device = builders.device(speed=1e12, memory_bandwidth=1e15)
    of = {kind: compute.layer_parts(device, Workload(model, 8, s), ParallelConfig(recompute=kind)) for kind in ("none", "full")}
    accumulated = LAUNCH + 10 * model.layer_parameters / 1e15
    assert of["none"][2] == pytest.approx(24 * s * h**2 / 1e12 + accumulated, rel=1e-9)
    assert of["full"][2] == of["none"][2]
    assert of["full"][1] == pytest.approx(of["none"][1] + of["none"][0], rel=1e-12)


def test_products_dominate_a_layer_at_peak_and_cost_twice_as_much_backward() -> None:
    """With free memory traffic and attention, a layer takes 24 s b h^2 FLOPs forward and twice that backward."""
    h, s = 1536, 1024
    device = replace(builders.device(speed=1e12, memory_bandwidth=1e30), attention=AttentionRates(1e30, 1e30))
    workload = Workload(builders.model(hidden=h), 8, s)
    forward, backward = compute.layer_seconds(device, workload, ParallelConfig())
    assert forward == pytest.approx(24 * s * h**2 / 1e12 + 6 * LAUNCH, rel=1e-9)
    assert backward == pytest.approx(48 * s * h**2 / 1e12 + 7 * LAUNCH, rel=1e-9)


@pytest.mark.parametrize("name", ["a100-sxm4-80gb", "h100-sxm5-80gb", "v100-sxm2-32gb"])
def test_a_layer_of_a_real_device_takes_its_time_at_peak_to_four_times_that(name: str) -> None:
    """GPT-3 layers at fp16 on one rank of eight: published utilisations of single GPUs are 30 to 60 % of peak."""
    device, workload = device_of(name), Workload(model_of("gpt-175b"), 1, 2048, "fp16")
    forward, backward = compute.layer_seconds(device, workload, ParallelConfig(tp=8))
    h, s = 12288, 2048
    flops = (72 * s * h**2 + 12 * s**2 * h) / 8
    assert 0.25 < flops / (forward + backward) / device.peak_of("fp16") < 1


@pytest.mark.parametrize("switches", [{}, {"attention": "unfused"}, {"tp": 2, "sequence_parallel": True}])
@pytest.mark.parametrize("name", ["gpt-3.6b", "llama-2-7b", "mixtral-8x7b"])
def test_kernels_add_up_to_the_layer(name: str, switches: dict[str, Any]) -> None:
    """Where the host launches fast enough."""
    device = replace(device_of("a100-sxm4-80gb"), launch=0.0)
    workload, config = Workload(model_of(name), 1, 2048), ParallelConfig(**switches)
    kernels = compute.kernel_times(device, workload, config)
    both = sum(kernel.forward for kernel in kernels), sum(kernel.backward for kernel in kernels)
    assert both == pytest.approx(compute.layer_seconds(device, workload, config), rel=1e-12)
    assert len({kernel.name for kernel in kernels}) == len(kernels)


def test_a_kernel_has_its_limit() -> None:
    workload, config = Workload(model_of("gpt-3.6b"), 1, 2048), ParallelConfig()

    def limits(**facts: Any) -> dict[str, str]:
        return {k.name: k.forward_limit for k in compute.kernel_times(builders.device(**facts), workload, config) if k.forward}

    usual = limits()
    assert (usual["qkv"], usual["attention"], usual["norm"]) == ("compute", "compute", "memory")
    assert limits(memory_bandwidth=1e9)["qkv"] == "memory"
    assert limits(memory_bandwidth=1e18)["norm"] == "launch"
    assert limits(gemm=GemmCurve(launch=1.0, compute_efficiency=1.0, memory_efficiency=1.0))["qkv"] == "launch"
