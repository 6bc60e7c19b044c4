"""Runs of the seventh batch: how their steps follow from what is published, and the facts of their software."""

from __future__ import annotations

import pytest

from holmes_sim import validation
from sim.formats import catalog
from sim.plan.reached_places import reached
from tests.published_runs import check_file, config, runs

KEMPNER, QLORA, LSAI = "new_software/kempnerforge", "new_software/fsdp_qlora", "new_software/lsai"
EXPERTS, AUTOMODEL = "mixtures/kempnerforge_moe", "mixtures/automodel_moe"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (KEMPNER, 20), (QLORA, 16), ("new_software/deepspeed_hf", 6), (LSAI, 4), ("new_software/nemo_gke", 2),
        ("new_software/torchtitan_elsewhere", 5), (EXPERTS, 4), ("mixtures/nemo_gke_moe", 1), (AUTOMODEL, 6),
    ],
)  # fmt: skip
def test_every_run_can_be_simulated_with_facts_of_its_software(name: str, number: int) -> None:
    check_file(name, number)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("kempner-7b-h200-g1", 3.13), ("kempner-7b-h200-g2-fsdp2", 3.50), ("kempner-7b-h200-g2-tp2", 2.49),
        ("kempner-7b-h200-g4-fsdp4", 3.36), ("kempner-7b-h200-g4-tp4", 1.30), ("kempner-7b-h200-g4-tp2-fsdp2", 2.52),
        ("kempner-7b-h200-g8-tp4-fsdp2", 1.48), ("kempner-13b-h200-g8-fsdp8", 14.81),
        ("kempner-13b-h200-g8-tp4-fsdp2", 4.79), ("kempner-7b-h200-g16-tp4-fsdp4", 1.58),
        ("kempner-13b-h200-g16-tp4-fsdp4", 4.87), ("kempner-7b-h200-g32-tp4-fsdp8", 1.68),
        ("kempner-13b-h200-g32-tp4-fsdp8", 5.03), ("kempner-70b-h200-g32-tp4-fsdp8", 14.85),
        ("kempner-7b-h200-g4-fsdp4-mb8", 13.49), ("kempner-7b-h200-g12-tp4-fsdp3", 5.86),
        ("kempner-7b-h200-g32-fsdp32", 7.05), ("kempner-13b-h200-g32-tp4-pp2-fsdp4", 4.99),
        ("kempner-29b-h200-g32-tp4-pp2-fsdp4", 5.78), ("kempner-70b-h200-g32-tp4-pp4-fsdp2", 4.29),
    ],
)  # fmt: skip
def test_seconds_of_kempnerforge_agree_with_its_tokens_per_second(name: str, seconds: float) -> None:
    """Both tables (5666d0d1) have the step to two digits beside the tokens of all devices, from which the cases have it."""
    assert runs(KEMPNER)[name].measured_s == pytest.approx(seconds, abs=0.0051)


def test_pipelines_of_kempnerforge_have_no_sequence_parallelism_and_sums_of_their_own() -> None:
    found = {name: config(case) for name, case in runs(KEMPNER).items()}
    pipelines = {name for name, facts in found.items() if facts.pp > 1}
    assert len(pipelines) == 3
    for name, facts in found.items():
        assert facts.sequence_parallel == (facts.tp > 1 and name not in pipelines)
        assert facts.separate_qkv == facts.separate_gate == facts.whole_messages == (name in pipelines)
        assert facts.separate_scatters == (facts.tp > 1 and name not in pipelines)


@pytest.mark.parametrize("name", [KEMPNER, EXPERTS, "new_software/modalities"])
def test_nodes_of_four_are_meshes(name: str) -> None:
    """Boards of four Hopper or Ampere modules have no switch: a third of a device's links goes to each of its peers."""
    for case in runs(name).values():
        assert case.plan is not None
        for cluster in case.plan.fleet.clusters:
            link = cluster.node.intra_node
            if cluster.node.count == 1:
                continue
            assert link.pair_bandwidth == pytest.approx(link.bandwidth / 3), case.id


def test_each_rank_of_kempnerforge_computes_the_loss_of_all_logits() -> None:
    """In bf16: log_softmax 4, gradients of the loss 2 and of log_softmax 6 bytes, and 4 to join the logits of all ranks."""
    found = {case.id: dict(validation.stack_of(case, "default")[1].passes)["loss"] for case in runs(KEMPNER).values()}
    assert found["kempner-7b-h200-g1"] == pytest.approx(12 / 49.5, abs=0.005)
    assert found["kempner-7b-h200-g2-tp2"] == pytest.approx(2 * 16 / 49.5, abs=0.005)
    assert found["kempner-7b-h200-g4-tp4"] == pytest.approx(4 * 16 / 49.5, abs=0.005)
    assert found["kempner-13b-h200-g32-tp4-pp2-fsdp4"] == pytest.approx(4 * 12 / 49.5, abs=0.005)


def test_ranks_of_an_ep_group_of_kempnerforge_count_no_tokens() -> None:
    """Why rows with ep are left out: 24,200 tokens a second for 5.4 s are 32 sequences of 4,096 tokens, 8 for each of the four
    dp_shard ranks, so the two ranks of an ep group have the same ones."""
    assert pytest.approx(4 * 8, rel=0.01) == 24_200 * 5.4 / 4_096
    for case in runs(EXPERTS).values():
        assert config(case).ep == 1


@pytest.mark.parametrize(
    ("name", "seconds", "steps"),
    [
        ("qlora-7b-rtx-3090-g2-lora-ddp-mb4", 881, 128), ("qlora-7b-rtx-4090-g2-lora-ddp-mb4", 437, 128),
        ("qlora-34b-rtx-3090-g2-qlora-fsdp-mb2", 5_041, 256), ("qlora-70b-a100-g8-qlora-fsdp-mb4", 672, 32),
        ("qlora-70b-h100-g4-qlora-fsdp-mb8", 667, 32),
    ],
)  # fmt: skip
def test_a_run_of_fsdp_qlora_is_1024_samples(name: str, seconds: int, steps: int) -> None:
    case = runs(QLORA)[name]
    assert case.plan is not None
    assert case.plan.workload.global_batch_size * steps == 1_024
    assert case.measured_s == pytest.approx(seconds / steps, rel=1e-4)


def test_adapters_of_fsdp_qlora_leave_out_the_projection_of_attention() -> None:
    """lora_target_modules "all" of its train.py (05ed9f2a), rank 64 of Llama 2 7B: three of h by h, two of h by f, one back."""
    h, f, r = 4_096, 11_008, 64
    case = runs(QLORA)["qlora-7b-rtx-4090-g2-lora-ddp-mb4"]
    assert case.plan is not None and case.plan.workload.adapter is not None
    model, adapter = case.plan.workload.model, case.plan.workload.adapter
    assert adapter.layer_parameters(model) == r * (3 * 2 * h + 3 * (h + f))


def test_products_of_rtx_3090_are_those_of_a_table() -> None:
    """mag-/gpu_benchmark has 78.0 TFLOP/s at best; a fitted curve has 0.91 of the best product (RTX 4090: 178.5, 0.98 of its
    peak of 165.2). zzc0721/torch-performance-test-data has about 76."""
    for name, best, peak in (("rtx-3090", 78.0, 71.0), ("rtx-4090", 178.5, 165.2)):
        curve = catalog.device_facts(name).gemm
        assert curve.compute_efficiency * peak == pytest.approx(0.91 * best, rel=0.01)


def test_each_token_of_automodel_reaches_one_node() -> None:
    """FakeBalancedGate (NVIDIA-NeMo/Automodel b32dc1fb) gives token t the experts k t to k t + k - 1, modulo their number."""
    for name, case in runs(AUTOMODEL).items():
        assert case.plan is not None
        model, ep = case.plan.workload.model, config(case).ep
        chosen, places = model.experts_per_token, max(ep // 8, 1)
        per_node = model.experts // places
        of_token = [range(t * chosen, (t + 1) * chosen) for t in range(model.experts // chosen)]
        assert {len({expert // per_node for expert in experts}) for experts in of_token} == {1}, name
        assert reached(places, model.experts, chosen, model.n_group, model.topk_group) == pytest.approx(1), name
