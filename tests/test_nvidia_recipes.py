"""Runs of NVIDIA's recipes of 2025 and 2026 that no number was fitted to: DGX Cloud's tables and those of Megatron-Bridge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holmes_sim import cases, validation
from holmes_sim.cases import Case
from holmes_sim.validation import Summary
from tests.more import after, more


def predicted(name: str, chosen: Callable[[str], bool]) -> Summary:
    """Errors of every second run of up to 64 devices of a file whose name is chosen."""
    found = cases.load(validation.folder() / "new_software" / f"{name}.yaml")
    runs = [case for case in found if devices(case) <= 64 and chosen(case.id)]
    return validation.summary(validation.validate(runs[::2], "default"))


def devices(case: Case) -> int:
    return case.plan.topology.fleet.devices if case.plan else 0


@pytest.mark.parametrize("precision", after(1, ["bf16", "fp8"]))
def test_recipes_of_dgx_cloud_on_h100(precision: str) -> None:
    """Llama 3.1 8B, 70B and a part of 405B, Nemotron 15B: tp 1 to 8, pp 1 and 4, cp 1 and 2, on 8 to 64 H100."""
    found = predicted("dgx_cloud", lambda name: f"-{precision}-" in name)
    assert found.n >= 10 and found.left_out == 0
    assert found.mape < 0.07 and abs(found.bias) < 0.05


@more
def test_runs_of_megatron_bridge_in_fp8_mxfp8_and_nvfp4() -> None:
    """Llama 3 8B and 70B on H100, B200, GB200 and GB300, 8 and 64 devices."""
    found = predicted("megatron_bridge", lambda name: True)
    assert found.n == 11 and found.left_out == 0
    assert found.mape < 0.08


@pytest.mark.parametrize(("name", "runs", "reductions", "gathers"), [
    ("dgx_cloud", 152, 149, 149), ("megatron_bridge", 49, 49, 44), ("mlperf", 17, 17, 17), ("mlperf_v60", 2, 2, 2),
])  # fmt: skip
def test_gradients_and_weights_are_hidden_where_the_recipes_hide_them(
    name: str, runs: int, reductions: int, gathers: int
) -> None:
    """With dp above 1; a key that a case leaves out says that nothing is hidden. Weights are not in five of Megatron-Bridge:
    70B and 405B in mxfp8 of 25.09 and 25.11, and 405B in nvfp4 on GB200 of 26.06."""
    configs = [case.plan.config for case in cases.load(validation.folder() / "new_software" / f"{name}.yaml") if case.plan]
    assert len(configs) == runs
    assert sum(one.overlap_grad_reduce for one in configs) == sum(one.dp > 1 for one in configs) == reductions
    assert sum(one.overlap_param_gather for one in configs) == gathers
