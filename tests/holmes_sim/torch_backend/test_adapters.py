"""Training adapters under plans equals training them in one process; frozen weights stay as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import local, supported  # noqa: E402
from sim.plan.plan import Plan  # noqa: E402
from sim.workload.adapter import PRODUCTS, Adapter  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import GPT, LLAMA, STEPS, alone, check_equal, plan_of  # noqa: E402
from tests.more import after  # noqa: E402


def adapted(plan: Plan, adapter: Adapter) -> Plan:
    workload = replace(plan.workload, adapter=adapter)
    return replace(plan, workload=workload, topology=replace(plan.topology, workload=workload))


@pytest.mark.parametrize(
    ("model", "adapter", "layers", "microbatches", "config"),
    after(
        1,
        [
            (LLAMA, Adapter(4), (3, 2), (3, 3), {"schedule": "zb-h1"}),
            (GPT, Adapter(2, ("q_proj", "v_proj", "down_proj")), (1, 2, 1, 1), (3,), {"recompute": "full", "zero_stage": 0}),
            (LLAMA, Adapter(4, ("k_proj", "o_proj", "gate_proj")), (1, 2, 1, 1), (4, 2), {"schedule": "interleaved", "vpp": 2}),
        ],
    ),
)
def test_equals_one_process(
    model: str, adapter: Adapter, layers: tuple[int, ...], microbatches: tuple[int, ...], config: dict[str, object],
    tmp_path: Path, here: local.Local,
) -> None:  # fmt: skip
    plan = adapted(plan_of(tmp_path, layers, microbatches, model=model, **config), adapter)
    assert list(supported.unsupported(plan)) == []
    check_equal(plan, here, tmp_path)


def test_only_adapters_are_trained_and_as_many_as_are_counted(tmp_path: Path) -> None:
    for text in (LLAMA, GPT):
        plan = adapted(plan_of(tmp_path, (5,), (1,), model=text), Adapter(4))
        (_, before, _), (_, now, _) = (alone(plan, steps) for steps in (0, STEPS))
        changed = {name: weight.numel() for name, weight in now.items() if not torch.equal(weight, before[name])}
        assert sum(changed.values()) == 5 * Adapter(4).layer_parameters(plan.workload.model)
        assert {name.split(".")[-1].rsplit("_", 1)[0] for name in changed} <= set(PRODUCTS)


def test_refusals(tmp_path: Path) -> None:
    wide = adapted(plan_of(tmp_path, (3, 2), (3, 3), model=LLAMA, tp=2, zero_stage=3), Adapter(4, base_precision="nf4"))
    assert list(supported.unsupported(wide)) == [
        "adapter.base_precision nf4 (frozen weights as wide as activations)",
        "adapter with tp 2 (tp 1)",
        "adapter with zero_stage 3 (frozen weights are not gathered; plan with --zero-stage 1)",
    ]
    empty = adapted(plan_of(tmp_path, (0, 5), (3,), model=LLAMA), Adapter(4))
    assert list(supported.unsupported(empty)) == ["adapter with stages[0] without layers (each stage has adapters)"]
