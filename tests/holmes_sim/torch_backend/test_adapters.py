"""Training adapters under plans equals training them in one process; frozen weights stay as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import buckets, frozen_weights, local, supported  # noqa: E402
from holmes_sim.torch_backend.training_worker import TrainingWorker  # noqa: E402
from sim.kernels import payloads  # noqa: E402
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
            (LLAMA, Adapter(4), (3, 2), (2, 1), {"tp": 2, "sequence_parallel": True}),
            (LLAMA, Adapter(4, base_precision="nf4"), (3, 2), (2, 1), {"recompute": "full", "microbatch_size": 2}),
            (GPT, Adapter(4), (5,), (2, 2), {"tp": 2, "recompute": "full", "zero_stage": 3}),
            (LLAMA, Adapter(4), (3, 2), (1, 1, 1, 1), {"zero_stage": 3, "zero_shard_size": 2}),
            (LLAMA, Adapter(2, ("v_proj", "o_proj", "up_proj", "down_proj")), (2, 3), (2,), {"stage_tp": (2, 1), "tp": 2}),
            (LLAMA, Adapter(4), (3, 2), (2,), {"cp": 2, "tp": 2, "sequence_parallel": True}),
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


def gathered(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """(name of a dtype, values) that rank 0 of a plan gathers over its replicas, all of its weights once."""
    found: dict[str, int] = {}

    def record(whole: torch.Tensor, own: torch.Tensor, group: object) -> None:
        assert torch.equal(whole.chunk(2)[0], own), "rank 0 of two sends the first shard"
        found[str(whole.dtype)] = found.get(str(whole.dtype), 0) + whole.numel()

    for module in (buckets, frozen_weights):
        monkeypatch.setattr(module, "all_gather", record)
    worker = TrainingWorker(plan, 0, {}, lambda kind, name, nbytes, do: None)
    for bucket in worker.every:
        for work in bucket.gathering("dp", [None]):  # type: ignore[list-item]
            work()
    return found


@pytest.mark.parametrize("text", [LLAMA, GPT])
def test_zero_3_gathers_as_many_bytes_of_frozen_weights_as_are_counted(text, tmp_path, monkeypatch) -> None:
    plan = adapted(plan_of(tmp_path, (5,), (2, 2), model=text, zero_stage=3), Adapter(4))
    ((_, nbytes),) = payloads.parameter_bytes(plan.workload, plan.config, 5, first=True, last=True)
    assert 4 * gathered(plan, monkeypatch)["torch.float32"] == pytest.approx(nbytes, rel=1e-3)  # padding of the last shard
    trained = 5 * Adapter(4).layer_parameters(plan.workload.model)
    sharded = replace(plan, config=replace(plan.config, zero_stage=1))
    assert gathered(sharded, monkeypatch) == {"torch.float32": trained}


def test_refusals(tmp_path: Path) -> None:
    wide = adapted(plan_of(tmp_path, (3, 2), (3, 3), model=LLAMA, tp=2, zero_stage=3), Adapter(4, base_precision="nf4"))
    assert list(supported.unsupported(wide)) == [
        "adapter.base_precision nf4 with tp 2 (tp 1: ranks would cut blocks of codes)",
        "adapter.base_precision nf4 with zero_stage 3 (codes are not sharded; --zero-stage 1)",
    ]
    empty = adapted(plan_of(tmp_path, (0, 5), (3,), model=LLAMA), Adapter(4))
    assert list(supported.unsupported(empty)) == ["adapter with stages[0] without layers (each stage has adapters)"]
