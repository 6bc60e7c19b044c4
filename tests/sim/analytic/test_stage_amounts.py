"""What stages move and update in a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic.stage_amounts import Amounts, traffic_seconds
from sim.hardware.device_spec import DeviceSpec
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload
from tests import builders

CONFIGS = {
    "zero 1": {"tp": 2, "sequence_parallel": True},
    "zero 3": {"zero_stage": 3},
    "zero 0": {"zero_stage": 0},
    "experts": {"ep": 2},
    "offload": {"offload": ("optimizer",)},
}


def amounts(layers: int, ends: tuple[bool, bool], options: dict[str, object]) -> Amounts:
    model = builders.model(8, **({"experts": 4, "experts_per_token": 2} if "ep" in options else {}))
    config = ParallelConfig(pp=2, dp=4, num_microbatches=(4,) * 4, **options)
    return Amounts.of(Workload(model, 64, 64), config, layers, *ends, (builders.device(),))


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("ends", [(True, False), (False, False), (False, True), (True, True)])
def test_amounts_are_linear_in_the_layers(ends, options):
    one, two, seven = (amounts(layers, ends, options) for layers in (1, 2, 7))
    found = one.extended(two, 6)
    assert found.parameters == pytest.approx(seven.parameters, rel=1e-12)
    assert found.optimizer == pytest.approx(seven.optimizer, rel=1e-12)
    for which in ("reduced", "gathered"):
        assert dict(getattr(found, which)) == pytest.approx(dict(getattr(seven, which)), rel=1e-12)


def test_one_layer_between_others_moves_its_parameters():
    """4-byte gradients, and 4-byte weights, of every parameter that a rank of tp 2 has."""
    found = amounts(1, (False, False), CONFIGS["zero 1"])
    assert found.parameters > 0
    assert found.reduced == (("dp", 4 * found.parameters),)
    assert found.gathered == (("dp", Workload(builders.model(8), 64, 64).bytes_per_value * found.parameters),)
    assert amounts(1, (False, False), CONFIGS["zero 0"]).gathered == ()


def traffic(
    config: ParallelConfig, device: DeviceSpec, layers: int = 2, ends: tuple[bool, bool] = (False, False)
) -> tuple[float, float]:
    return traffic_seconds(device, Workload(builders.model(8), 64, 64), config, layers, *ends)


def test_collectives_of_zero_3_move_three_bytes_of_memory_for_each_of_their_bytes():
    """A forward gathers 2 bytes a parameter, a backward 2 and reduces 4: 6 and 18 bytes at 1 TB/s."""
    config = ParallelConfig(dp=4, num_microbatches=(4,) * 4, zero_stage=3)
    parameters = Amounts.of(Workload(builders.model(8), 64, 64), config, 2, False, False, (builders.device(),)).parameters
    found = traffic(config, builders.device())
    assert found == pytest.approx((6e-12 * parameters, 18e-12 * parameters), rel=1e-12)


def test_gradients_reduced_in_bf16_move_half_as_much():
    whole, half = (
        traffic(ParallelConfig(dp=4, num_microbatches=(4,) * 4, zero_stage=3, gradient_precision=name), builders.device())
        for name in ("fp32", "bf16")
    )
    assert half[0] == whole[0]
    assert half[1] == pytest.approx(whole[1] * 2 / 3, rel=1e-12)


@pytest.mark.parametrize(
    "options", [{"zero_stage": 2}, {"zero_stage": 1}, {"zero_stage": 3, "dp": 1, "num_microbatches": (4,)}]
)
def test_only_collectives_of_sharded_weights_take_the_memory(options):
    assert traffic(ParallelConfig(**({"dp": 4, "num_microbatches": (4,) * 4} | options)), builders.device()) == (0.0, 0.0)


def test_the_wait_for_launches_hides_them():
    """A host that launches a layer in a second leaves the device idle for nearly all of it."""
    config = ParallelConfig(dp=4, num_microbatches=(4,) * 4, zero_stage=3)
    assert traffic(config, builders.device(launch=1.0)) == (0.0, 0.0)


@pytest.mark.parametrize("ends", [(True, False), (False, False), (False, True), (True, True)])
@pytest.mark.parametrize("launch", [0.0, 1.0])
def test_they_are_linear_in_the_layers(ends, launch):
    """A slow host hides those of the layers, and not those of embedding and head."""
    config = ParallelConfig(dp=4, num_microbatches=(4,) * 4, zero_stage=3)
    one, two, seven = (traffic(config, builders.device(launch=launch), layers, ends) for layers in (1, 2, 7))
    assert seven == pytest.approx(tuple(a + 6 * (b - a) for a, b in zip(one, two, strict=True)), rel=1e-9)
    assert (seven != (0.0, 0.0)) is (launch == 0.0 or any(ends))


@pytest.mark.parametrize("dp", [2, 64])
def test_they_take_as_long_on_many_ranks_as_on_two(dp):
    config = ParallelConfig(dp=dp, num_microbatches=(4,) * dp, zero_stage=3)
    assert traffic(config, builders.device()) == traffic(replace(config, dp=8, num_microbatches=(4,) * 8), builders.device())
