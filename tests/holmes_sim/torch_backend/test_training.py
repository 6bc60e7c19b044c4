"""Loss and weights after some steps of a plan equal those of one process that trains the same model on the same data."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.formats import planfile

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import local  # noqa: E402
from holmes_sim.torch_backend.buckets import PRECISIONS  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import GPT, LLAMA, STEPS, alone, check_equal, plan_of  # noqa: E402
from tests.more import after  # noqa: E402

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "one process": ((5,), (3,), {}),
    "pp 4, uneven, gpipe": ((1, 2, 1, 1), (5,), {"schedule": "gpipe"}),
    "pp 4, uneven, 1f1b": ((2, 1, 1, 1), (5,), {"schedule": "1f1b"}),
    "pp 3, 1f1b-deepspeed": ((2, 2, 1), (4,), {"schedule": "1f1b-deepspeed"}),
    "pp 3, zb-h1, dp 2": ((1, 3, 1), (4, 4), {"schedule": "zb-h1"}),
    "pp 4, zb-h2": ((1, 2, 1, 1), (7,), {"schedule": "zb-h2"}),
    "pp 2, interleaved, dp 2": ((1, 2, 1, 1), (4, 2), {"schedule": "interleaved", "vpp": 2}),
    "one rank, interleaved, untied, dp 3": ((2, 3), (1, 1, 1), {"model": LLAMA, "schedule": "interleaved", "vpp": 2}),
    "dp 3, uneven microbatches": ((5,), (3, 2, 1), {"microbatch_size": 2}),
    "pp 2, dp 3, uneven, zero 0": ((3, 2), (3, 2, 1), {"zero_stage": 0}),
    "dp 2, zero 2": ((2, 3), (3, 3), {"zero_stage": 2}),
    "dp 2, zero 2, nothing overlapped": ((2, 3), (3, 3), {"zero_stage": 2, "overlap_grad_reduce": False}),
    "dp 2, zero 3, pp 2": ((3, 2), (3, 3), {"zero_stage": 3}),
    "dp 2, zero 3, nothing overlapped": ((2, 3), (3, 3), {"zero_stage": 3, "overlap_grad_reduce": False}),
    "dp 2, nothing overlapped": ((3, 2), (3, 2), {"overlap_grad_reduce": False, "overlap_param_gather": False}),
    "tp 2, sequence parallel": ((5,), (3,), {"tp": 2, "sequence_parallel": True}),
    "tp 2, pp 2, dp 2, full": ((3, 2), (3, 2), {"tp": 2, "sequence_parallel": True, "recompute": "full"}),
    "tp 2, pp 2, dp 2, zb-h1, selective": (
        (3, 2),
        (3, 2),
        {"tp": 2, "sequence_parallel": True, "schedule": "zb-h1", "recompute": "selective"},
    ),
    "tp 2, pp 2, dp 2, tied by shards": ((3, 2), (3, 2), {"tp": 2, "tied_shards": True}),
    "pp 2, dp 2, two layers and one recomputed": ((3, 2), (3, 2), {"recompute": "full", "recompute_layers": (2, 1)}),
    "tp 1 and 2, cp 2, sequence parallel, zb-h1": (
        (2, 3),
        (3,),
        {"model": LLAMA, "tp": 2, "stage_tp": (1, 2), "sequence_parallel": True, "cp": 2, "schedule": "zb-h1"},
    ),
    "tp 2 and 1, cp 2, whole sequences, tied": ((2, 3), (3,), {"tp": 2, "stage_tp": (2, 1), "cp": 2, "zero_stage": 0}),
    "cp 2, dp 1 and 2, zb-h1": (
        (2, 3),
        (3,),
        {"model": LLAMA, "cp": 2, "stage_dp": (1, 2), "microbatch_size": 2, "schedule": "zb-h1"},
    ),
    "cp 1 and 2, dp 4 and 2, untied": (
        (2, 3),
        (2, 1),
        {"model": LLAMA, "stage_cp": (1, 2), "stage_dp": (4, 2), "microbatch_size": 2},
    ),
    "cp 2 and 1, dp 1 and 2, tp 2": (
        (2, 3),
        (2,),
        {
            "model": LLAMA,
            "tp": 2,
            "sequence_parallel": True,
            "stage_cp": (2, 1),
            "stage_dp": (1, 2),
            "microbatch_size": 2,
            "zero_stage": 2,
        },
    ),
    "norms, MLP and both recomputed, tp 2, zb-h1": (
        (2, 1, 2),
        (3,),
        {
            "tp": 2,
            "sequence_parallel": True,
            "schedule": "zb-h1",
            "recompute": "selective",
            "stage_recompute": ("layernorm", "mlp", "layernorm+mlp+core_attn"),
        },
    ),
    "pp 2, dp 4, shards over 2": ((3, 2), (2, 1, 1, 2), {"zero_shard_size": 2}),
    "dp 4, zero 3 over 2": ((5,), (2, 2, 2, 2), {"zero_stage": 3, "zero_shard_size": 2}),
    "pp 2, dp 4, zero 2 over 2, tied by shards": (
        (3, 2),
        (2, 2, 2, 2),
        {"zero_stage": 2, "zero_shard_size": 2, "tied_shards": True},
    ),
    "tp 1, 2 and 1, dp 2, tied by shards": (
        (2, 1, 2),
        (3, 2),
        {"tp": 2, "stage_tp": (1, 2, 1), "sequence_parallel": True, "tied_shards": True},
    ),
    "tp 2 and 1, untied, dp 2": ((3, 2), (3, 2), {"model": LLAMA, "tp": 2, "stage_tp": (2, 1), "sequence_parallel": True}),
    "tp 1 and 4, whole sequences": ((3, 2), (3,), {"tp": 4, "stage_tp": (1, 4)}),
    "tp 1, 4 and 2, zb-h1": ((1, 3, 1), (4,), {"tp": 4, "stage_tp": (1, 4, 2), "sequence_parallel": True, "schedule": "zb-h1"}),
    "tp 1 and 2, untied, interleaved, dp 2": (
        (1, 2, 1, 1),
        (4, 2),
        {"model": LLAMA, "tp": 2, "stage_tp": (1, 2), "sequence_parallel": True, "schedule": "interleaved", "vpp": 2},
    ),
    "dp 1 and 2, zb-h1": ((3, 2), (3,), {"model": LLAMA, "stage_dp": (1, 2), "microbatch_size": 2, "schedule": "zb-h1"}),
    "dp 2, 1 and 2, tied by shards": ((2, 1, 2), (3,), {"stage_dp": (2, 1, 2), "microbatch_size": 2, "tied_shards": True}),
    "dp 4 and 2, shards over 2": (
        (3, 2),
        (2, 1),
        {"model": LLAMA, "stage_dp": (4, 2), "microbatch_size": 2, "zero_shard_size": 2},
    ),
    "tp 2 and 1, dp 1 and 4, untied, zero 3": (
        (3, 2),
        (3,),
        {
            "model": LLAMA,
            "tp": 2,
            "stage_tp": (2, 1),
            "stage_dp": (1, 4),
            "microbatch_size": 4,
            "sequence_parallel": True,
            "zero_stage": 3,
        },
    ),
    "tp 2, dp 2 and 1, whole sequences": ((3, 2), (2,), {"model": LLAMA, "tp": 2, "stage_dp": (2, 1), "microbatch_size": 2}),
    "tp 1 and 2, dp 2 and 1, interleaved": (
        (1, 2, 1, 1),
        (4,),
        {
            "model": LLAMA,
            "tp": 2,
            "stage_tp": (1, 2),
            "stage_dp": (2, 1),
            "microbatch_size": 2,
            "schedule": "interleaved",
            "vpp": 2,
        },
    ),
    "pp 2, dp 2, optimizer on the host": ((3, 2), (2, 1), {"offload": ("optimizer",)}),
    "zero 3, 1 and 2, hosts of two stages": (
        (2, 1, 2),
        (3, 3),
        {
            "model": LLAMA,
            "zero_stage": 3,
            "stage_zero": (3, 1, 2),
            "offload": ("optimizer", "activations"),
            "stage_offload": ("none", "optimizer", "activations"),
        },
    ),
    "zero 1 and 3, tied, zb-h1, optimizer on the host of the last stage": (
        (3, 2),
        (3, 3),
        {
            "zero_stage": 3,
            "stage_zero": (1, 3),
            "schedule": "zb-h1",
            "offload": ("optimizer",),
            "stage_offload": ("none", "optimizer"),
        },
    ),
    "zero 0 and 1, tp 1 and 2, dp 4 and 2": (
        (3, 2),
        (2, 1),
        {
            "model": LLAMA,
            "tp": 2,
            "stage_tp": (1, 2),
            "stage_dp": (4, 2),
            "microbatch_size": 2,
            "sequence_parallel": True,
            "stage_zero": (0, 1),
        },
    ),
    "selective, none and two layers recomputed, tp 2, 1 and 2, zb-h1": (
        (1, 1, 3),
        (3,),
        {
            "model": LLAMA,
            "tp": 2,
            "stage_tp": (2, 1, 2),
            "sequence_parallel": True,
            "schedule": "zb-h1",
            "recompute": "full",
            "recompute_layers": (0, 0, 2),
            "stage_recompute": ("selective", "none", "full"),
        },
    ),
    "pp 2, dp 2, activations on the host": ((3, 2), (3, 2), {"offload": ("activations",)}),
    "tp 2, pp 2, zb-h1, full, activations and optimizer on the host": (
        (3, 2),
        (3,),
        {
            "model": LLAMA,
            "tp": 2,
            "sequence_parallel": True,
            "schedule": "zb-h1",
            "recompute": "full",
            "offload": ("optimizer", "activations"),
        },
    ),
    "pp 2, interleaved, selective, activations on the host": (
        (1, 2, 1, 1),
        (4,),
        {"schedule": "interleaved", "vpp": 2, "recompute": "selective", "offload": ("activations",)},
    ),
    "cp 2": ((5,), (3,), {"cp": 2}),
    "cp 2 by all_gather": ((5,), (3,), {"cp": 2, "cp_algo": "all_gather"}),
    "cp 4, untied, zb-h1, selective": (
        (3, 2),
        (3,),
        {"model": LLAMA, "cp": 4, "schedule": "zb-h1", "recompute": "selective"},
    ),
    "cp 2, tp 2, pp 2, full": (
        (3, 2),
        (3,),
        {"model": LLAMA, "cp": 2, "tp": 2, "sequence_parallel": True, "recompute": "full", "microbatch_size": 2},
    ),
    "cp 2, pp 2, dp 2, zero 3": ((3, 2), (3, 3), {"cp": 2, "zero_stage": 3}),
    "cp 2, 1 and 4, untied, zb-h1, zero 3": (
        (2, 1, 2),
        (3,),
        {"model": LLAMA, "stage_cp": (2, 1, 4), "schedule": "zb-h1", "zero_stage": 3},
    ),
    "cp 1 and 2, tp 2, whole sequences, interleaved": (
        (1, 2, 1, 1),
        (4,),
        {"model": LLAMA, "stage_cp": (1, 2), "tp": 2, "schedule": "interleaved", "vpp": 2},
    ),
    "cp 2 and 1, tp 2, full": (
        (3, 2),
        (3,),
        {"model": LLAMA, "stage_cp": (2, 1), "tp": 2, "sequence_parallel": True, "recompute": "full"},
    ),
    "cp 1 and 2, tp 4 and 2, untied": (
        (3, 2),
        (3,),
        {
            "model": LLAMA.replace("kv_heads: 2", "kv_heads: 4"),
            "stage_cp": (1, 2),
            "tp": 4,
            "stage_tp": (4, 2),
            "sequence_parallel": True,
        },
    ),
    "cp 2, 1 and 2, tp 1, 4 and 1, whole sequences, zb-h1": (
        (2, 2, 1),
        (3,),
        {"stage_cp": (2, 1, 2), "tp": 4, "stage_tp": (1, 4, 1), "schedule": "zb-h1"},
    ),
    "cp 1, 2 and 1, dp 2, tied by shards": ((2, 1, 2), (2, 1), {"stage_cp": (1, 2, 1), "tied_shards": True}),
    "cp 2, pp 2, dp 2, interleaved, tied by shards": (
        (1, 2, 1, 1),
        (4, 2),
        {"cp": 2, "schedule": "interleaved", "vpp": 2, "tied_shards": True},
    ),
    "microbatches of 1 and 2, tied, dp 2": ((3, 2), (3, 2), {"microbatch_size": 2, "stage_microbatch_size": (1, 2)}),
    "microbatches of 4, 1 and 2, tp 2, whole sequences, untied": (
        (2, 1, 2),
        (3,),
        {"model": LLAMA, "tp": 2, "microbatch_size": 4, "stage_microbatch_size": (4, 1, 2)},
    ),
    "microbatches of 2 and 1, gpipe, zero 3, full": (
        (3, 2),
        (2, 2),
        {
            "microbatch_size": 2,
            "stage_microbatch_size": (2, 1),
            "schedule": "gpipe",
            "zero_stage": 3,
            "recompute": "full",
        },
    ),
    "microbatches of 1 and 4, tp 1 and 2, cp 1 and 2, activations on the host": (
        (3, 2),
        (2,),
        {
            "model": LLAMA,
            "tp": 2,
            "stage_tp": (1, 2),
            "sequence_parallel": True,
            "stage_cp": (2, 1),
            "microbatch_size": 4,
            "stage_microbatch_size": (1, 4),
            "offload": ("activations",),
        },
    ),
    "llama": ((3, 2), (3, 2), {"model": LLAMA, "tp": 2, "sequence_parallel": True}),
}


FIRST = (
    "pp 4, uneven, 1f1b", "pp 3, zb-h1, dp 2", "pp 2, interleaved, dp 2", "dp 3, uneven microbatches", "dp 2, zero 2",
    "tp 2 and 1, dp 1 and 4, untied, zero 3", "zero 3, 1 and 2, hosts of two stages",
    "selective, none and two layers recomputed, tp 2, 1 and 2, zb-h1",
    "dp 2, 1 and 2, tied by shards", "cp 2, 1 and 4, untied, zb-h1, zero 3",
    "pp 2, dp 2, two layers and one recomputed", "pp 2, dp 4, shards over 2",
    "microbatches of 4, 1 and 2, tp 2, whole sequences, untied",
)  # fmt: skip
"""One case of each feature, which `make test` tries; unlike pipelines have those with nothing overlapped and cp."""


@pytest.mark.parametrize("name", after(len(FIRST), sorted(CASES, key=lambda name: name not in FIRST), last=20))
def test_equals_one_process(name: str, tmp_path: Path, here: local.Local) -> None:
    layers, microbatches, config = CASES[name]
    plan = plan_of(tmp_path, layers, microbatches, **config)  # type: ignore[arg-type]
    check_equal(plan, here, tmp_path)


@pytest.mark.parametrize(
    ("name", "precision"),
    after(
        1,
        [
            ("one rank, interleaved, untied, dp 3", "fp16"),
            ("pp 3, zb-h1, dp 2", "bf16"),
            ("tp 2, pp 2, dp 2, full", "bf16"),
        ],
    ),
)
def test_half_precision_loses_what_fp32_does_to_its_digits(
    name: str, precision: str, tmp_path: Path, here: local.Local
) -> None:
    layers, microbatches, config = CASES[name]
    plan = plan_of(tmp_path, layers, microbatches, precision=precision, **config)  # type: ignore[arg-type]
    here.run(plan, RunOptions(steps=STEPS - 1, weights=str(tmp_path)))
    losses, _, _ = alone(plan, STEPS)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(plan.config.world_size)]
    firsts = [result for rank, result in enumerate(ranks) if plan.config.coordinates(rank)[0] == 0]
    assert {weight.dtype for result in ranks for weight in result["weights"].values()} == {PRECISIONS[precision]}
    assert sum(result["losses"] for result in firsts).tolist() == pytest.approx(losses, rel=5e-3)


def test_weights_of_all_stages_are_those_of_the_model(tmp_path: Path) -> None:
    """The model that is trained has as many parameters as the one that is simulated."""
    for text in (GPT, LLAMA):
        plan = plan_of(tmp_path, (5,), (1,), model=text)
        model = plan.workload.model
        _, weights, _ = alone(plan, 0)
        tied = model.vocab * model.hidden if model.tied_embeddings else 0
        assert sum(weight.numel() for weight in weights.values()) - tied == model.parameters


def test_plan_survives_the_file(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, (3, 2), (3, 2))
    (tmp_path / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
    assert planfile.digest(planfile.load(tmp_path / "plan.json")) == planfile.digest(plan)
