"""Bytes of optimizers for each parameter, by hand, and what they leave of a card's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from holmes_sim import commands, exporters, requirements
from holmes_sim.launching import megatron_bridge, megatron_flags
from planner.search.fitting import fitting
from sim.errors import TopologyError
from sim.formats import planfile
from sim.formats.edits import edited
from sim.kernels.compute import optimizer_seconds, pass_seconds
from sim.kernels.memory import state_bytes
from sim.plan.parallel_config import ParallelConfig
from sim.workload.optimizers import OPTIMIZERS
from sim.workload.workload import Workload
from tests import builders, features

BASE = builders.plan(builders.fleet(builders.cluster())).workload
CONFIG = ParallelConfig(zero_stage=1)


@pytest.mark.parametrize(
    ("name", "kept", "moved"),
    [
        ("adam", 2 + 4 + 12, 2 * 4 + 3 * 8 + 2),  # gradient read twice; fp32 weight and two moments read and written
        ("adam-bf16-moments", 2 + 4 + 8, 2 * 4 + 8 + 2 * 4 + 2),
        ("adam-8bit", 2 + 4 + 6 + 8 / 2048, 2 * 4 + 8 + 2 * (2 + 8 / 2048) + 2),
        ("adam-bf16", 2 + 4 + 4, 2 * 4 + 2 * 4 + 2 * 2),
    ],
)
def test_bytes_of_a_parameter(name: str, kept: float, moved: float) -> None:
    workload = replace(BASE, optimizer=name)
    assert state_bytes(1e6, workload, CONFIG) == pytest.approx(1e6 * kept)
    ideal = builders.device()
    assert optimizer_seconds(ideal, 1e9, 0.0, name) == pytest.approx(pass_seconds(1e9 * moved, ideal))


def test_fp32_weights_are_their_own_master_copy() -> None:
    workload = replace(BASE, precision="fp32")
    assert state_bytes(1.0, workload, CONFIG) == 4 + 4 + 8
    assert state_bytes(1.0, replace(workload, optimizer="adam-8bit"), CONFIG) == pytest.approx(4 + 4 + 2 + 8 / 2048)


def test_an_unknown_optimizer_is_one_line() -> None:
    with pytest.raises(ValueError, match="optimizer 'sgd' is unknown; known: adam, adam-bf16-moments, adam-8bit, adam-bf16"):
        Workload(BASE.model, 8, 128, optimizer="sgd")
    topology = commands.load("lab/lab-slow-dp")
    with pytest.raises(TopologyError, match="optimizer 'sgd' is unknown"):
        edited(topology, {"workload.optimizer": "sgd"})


def test_a_plan_keeps_its_optimizer(tmp_path) -> None:
    topology = edited(commands.load("lab/lab-slow-dp"), {"workload.optimizer": "adam-8bit"})
    plan = fitting(requirements.request(topology, commands.workload_of(topology), target="none"))
    assert plan is not None and plan.workload.optimizer == "adam-8bit"
    (tmp_path / "plan.json").write_text(planfile.to_json(plan))
    assert commands.read_plan(tmp_path / "plan.json").workload.optimizer == "adam-8bit"


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "adam"])
def test_only_megatron_lm_and_flagscale_write_another_optimizer(name: str) -> None:
    plan = features.plan_of(features.FEATURES[0])
    workload = replace(plan.workload, optimizer=name)
    for framework in exporters.frameworks():
        faults = list(exporters.get(framework).unsupported_layout(plan.config, workload))
        able = framework in ("megatron", "flagscale") and name == "adam-bf16-moments"
        assert any(fault.startswith(f"optimizer {name}") for fault in faults) is not able


def test_megatron_lm_gets_its_flags_and_megatron_bridge_is_told_missing() -> None:
    plan = features.plan_of(features.FEATURES[0])
    sharded = replace(plan, config=replace(plan.config, zero_stage=1))
    flags = {"use-precision-aware-optimizer": True, "exp-avg-dtype": "bf16", "exp-avg-sq-dtype": "bf16"}
    small = replace(sharded, workload=replace(plan.workload, optimizer="adam-bf16-moments"))
    assert megatron_flags.optimizer(small).items() >= flags.items()
    assert not flags.keys() & megatron_flags.optimizer(sharded).keys()
    assert megatron_bridge.missing(sharded) is None
    assert megatron_bridge.missing(small) == (
        "no overrides of Megatron-Bridge are written for optimizer adam-bf16-moments: its recipe has Adam."
    )


class Moved(TorchDispatchMode):
    """Counts the bytes that torch's foreach kernels read and write, each tensor once for each kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if "_foreach" in str(func):
            read = {leaf.data_ptr(): leaf.nbytes for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
            in_place = func._schema.name.endswith("_")
            written = tree_leaves(args[0] if in_place else result)
            self.nbytes += sum(read.values()) + sum(leaf.nbytes for leaf in written if leaf.numel() > 1)
        return result


@pytest.mark.parametrize(("dtype", "name", "nbytes"), [(torch.bfloat16, "adam-bf16", 42), (torch.float32, "adam", 84)])
def test_an_adam_that_is_not_fused_moves_what_torchs_kernels_do(dtype: torch.dtype, name: str, nbytes: int) -> None:
    """The second step of torch's AdamW on one tensor, and the norm of its gradient: 8 kernels and one."""
    values = 1 << 16
    parameter = torch.nn.Parameter(torch.ones(values, dtype=dtype))
    adam = torch.optim.AdamW([parameter], foreach=True)
    parameter.grad = torch.ones_like(parameter)
    adam.step()
    with Moved() as counted:
        torch.nn.utils.get_total_norm([parameter.grad], foreach=True)
        adam.step()
    assert counted.nbytes / values == pytest.approx(nbytes, rel=1e-3)
    assert OPTIMIZERS[name].unfused_bytes == nbytes
    device = builders.device()
    seconds = optimizer_seconds(replace(device, unfused_optimizer=True), 1e9, 0.0, name)
    assert seconds == pytest.approx(pass_seconds(1e9 * nbytes, device))
