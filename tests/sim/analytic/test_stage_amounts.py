"""What stages move and update in a step."""

from __future__ import annotations

import pytest

from sim.analytic.stage_amounts import Amounts
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
