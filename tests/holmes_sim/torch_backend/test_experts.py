"""Models with routed experts: losses and weights of every division of the experts equal those of one process."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.engine import timeline
from sim.errors import NotSupported
from sim.kernels import lowering
from sim.plan.plan import Plan
from tests.more import after

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import emulated_worker, experts, local, supported  # noqa: E402
from holmes_sim.torch_backend.emulated_worker import EmulatedWorker  # noqa: E402
from holmes_sim.torch_backend.experts import ExpertLayer  # noqa: E402
from holmes_sim.torch_backend.groups import groups_of  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from holmes_sim.torch_backend.tensor_parallel import TensorParallel  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import alone, check_equal, plan_of  # noqa: E402

QWEN = (
    "{layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 24, vocab: 64, mlp: swiglu, tied_embeddings: false, "
    "experts: 8, experts_per_token: 2}"
)
MANY = QWEN.replace("experts: 8", "experts: 16")
SHARED = QWEN.replace("}", ", shared_ffn_hidden: 16}")
BIASED = SHARED.replace("swiglu", "gelu")
SWITCH = QWEN.replace("experts_per_token: 2", "experts_per_token: 1")

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "ep 2": ((2,), (2, 2), {"model": MANY, "ep": 2}),
    "ep 4 over tp 2 and dp 2": ((2,), (2, 2), {"tp": 2, "sequence_parallel": True, "ep": 4, "etp": 1}),
    "etp 2 as tp": ((2,), (2,), {"model": BIASED, "tp": 2, "sequence_parallel": True}),
    "ep 2 over tp and 4 over tp and dp, zb-h1": (
        (1, 1),
        (2, 2),
        {"tp": 2, "sequence_parallel": True, "ep": 2, "stage_ep": (2, 4), "etp": 1, "schedule": "zb-h1"},
    ),
    "ep 2, full, shared": ((2,), (2, 2), {"model": SHARED, "ep": 2, "recompute": "full"}),
    "pp 2, ep 2, zb-h1, experts or norms and activations recomputed": (
        (1, 1),
        (3, 3),
        {"model": BIASED, "ep": 2, "schedule": "zb-h1",
         "recompute": "selective", "stage_recompute": ("moe", "layernorm+moe_act")},
    ),
    "tp 1 and 2, ep 2 and etp 1 of both, zb-h1": (
        (1, 1),
        (2, 2),
        {"tp": 2, "stage_tp": (1, 2), "sequence_parallel": True, "ep": 2, "etp": 1, "schedule": "zb-h1"},
    ),
    "tp 2 and 1, ep 2, etp as tp, zero 3": (
        (1, 1),
        (2, 2),
        {"model": BIASED, "tp": 2, "stage_tp": (2, 1), "sequence_parallel": True, "ep": 2, "zero_stage": 3},
    ),
    "tp 2 and 1, ep 4 and 2": (
        (1, 1),
        (2, 2),
        {"tp": 2, "stage_tp": (2, 1), "sequence_parallel": True, "ep": 4, "stage_ep": (4, 2), "etp": 1},
    ),
    "tp 2 and 1, cp 2, ep 2": ((1, 1), (2,), {"tp": 2, "stage_tp": (2, 1), "sequence_parallel": True, "cp": 2, "ep": 2}),
    "dp 4 and 2, ep 2": ((1, 1), (2, 2), {"stage_dp": (4, 2), "microbatch_size": 2, "ep": 2}),
    "dp 1 and 4, ep 1 and 2, zb-h1": (
        (1, 1),
        (3,),
        {"stage_dp": (1, 4), "microbatch_size": 4, "stage_ep": (1, 2), "schedule": "zb-h1"},
    ),
    "tp 2 and 1, dp 1 and 4, ep 2 of both, zero 3": (
        (1, 1),
        (2,),
        {
            "tp": 2, "stage_tp": (2, 1), "stage_dp": (1, 4), "microbatch_size": 4, "sequence_parallel": True, "ep": 2, "etp": 1,
            "zero_stage": 3,
        },
    ),
    "cp 2 and 1, ep 2 and 1, dp 2, zb-h1": (
        (1, 1),
        (2, 2),
        {"stage_cp": (2, 1), "ep": 2, "stage_ep": (2, 1), "schedule": "zb-h1"},
    ),
    "ZeRO 3 and 1, Adam on one stage's hosts, cp 2, ep 2, interleaved": (
        (1, 1, 1, 1),
        (2, 2),
        {
            "model": QWEN.replace("layers: 2", "layers: 4"), "cp": 2, "ep": 2, "schedule": "interleaved", "vpp": 2,
            "zero_stage": 3, "stage_zero": (3, 1), "offload": ("optimizer",), "stage_offload": ("none", "optimizer"),
        },
    ),
    "cp 2, ep 2": ((2,), (2,), {"cp": 2, "ep": 2}),
    "pp 2, cp 2, tp 2, ep 4 over both, zb-h1": (
        (1, 1),
        (2,),
        {"model": BIASED, "cp": 2, "tp": 2, "sequence_parallel": True, "ep": 4, "etp": 1, "schedule": "zb-h1"},
    ),
    "cp 2, experts as dense weights": ((2,), (2, 1), {"model": SHARED, "cp": 2}),
    "etp 2 of tp 1, ep 2, biases": ((2,), (1, 1, 1, 1), {"model": BIASED, "ep": 2, "etp": 2}),
    "ep 2 over tp 2, edp 2, zero 2": (
        (2,),
        (2, 2),
        {"tp": 2, "sequence_parallel": True, "ep": 2, "etp": 1, "zero_stage": 2},
    ),
    "experts as dense weights, dp 2": ((2,), (2, 1), {"model": SHARED}),
    "tp 2, whole sequences, ep 2, biases": ((2,), (2, 2), {"model": BIASED, "tp": 2, "ep": 2}),
    "tp 4, etp 2, ep 2, dp 2": ((2,), (1, 1), {"model": QWEN.replace("kv_heads: 2", "kv_heads: 4"), "tp": 4,
                                              "sequence_parallel": True, "ep": 2, "etp": 2}),
    "ep 2, edp 2, zero 3": ((2,), (2, 2, 2, 2), {"ep": 2, "zero_stage": 3}),
    "one expert a token, nothing overlapped": (
        (2,),
        (1, 1, 1, 1),
        {"model": SWITCH, "ep": 2, "overlap_grad_reduce": False, "overlap_param_gather": False},
    ),
    "pp 2, interleaved, ep 2, full": (
        (1, 1, 1, 1),
        (2, 2),
        {"model": QWEN.replace("layers: 2", "layers: 4"), "ep": 2, "schedule": "interleaved", "vpp": 2, "recompute": "full"},
    ),
    "pp 2, ep 2, zb-h1, activations on the host": (
        (1, 1),
        (3, 3),
        {"model": SHARED, "ep": 2, "schedule": "zb-h1", "offload": ("activations",)},
    ),
    "pp 2, ep 2, zb-h1": ((1, 1), (3, 3), {"ep": 2, "schedule": "zb-h1"}),
    "etp 2 and 1 of tp 2, ep 1 and 2, zero 3": (
        (1, 1),
        (2, 2),
        {"tp": 2, "sequence_parallel": True, "stage_ep": (1, 2), "stage_etp": (2, 1), "zero_stage": 3},
    ),
    "tp 1 and 2, experts as dense weights": ((1, 1), (2, 2), {"tp": 2, "stage_tp": (1, 2), "sequence_parallel": True}),
    "pp 2, tp 2, ep 2 over tp, zb-h1, full": (
        (1, 1),
        (2,),
        {"tp": 2, "sequence_parallel": True, "ep": 2, "etp": 1, "schedule": "zb-h1", "recompute": "full"},
    ),
}  # fmt: skip
QUICK = 5
"""Cases that `make test` tries."""


def case(folder: Path, name: str) -> Plan:
    layers, microbatches, config = CASES[name]
    return plan_of(folder, layers, microbatches, **({"model": QWEN} | config))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", after(QUICK, CASES))
def test_equals_one_process(name: str, tmp_path: Path, here: local.Local) -> None:
    check_equal(case(tmp_path, name), here, tmp_path)


@pytest.mark.parametrize("model", [QWEN, SWITCH, BIASED])
def test_layer_equals_a_loop_over_tokens_and_experts(model: str, tmp_path: Path) -> None:
    """Values and gradients. Attention gives zero here, because its last product and bias are zero."""
    shape = plan_of(tmp_path, (2,), (1,), model=model).workload.model
    layer = ExpertLayer(shape, TensorParallel(), 0, 0, "none")
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.mul_(0 if name.startswith("projection") else 10 if weight.dim() > 1 else 1)
    x = torch.randn(5, 2, shape.hidden, generator=torch.Generator().manual_seed(1), requires_grad=True)
    weights = dict(layer.named_parameters())

    def mlp(token: torch.Tensor, names: tuple[str, ...], expert: int | tuple[()]) -> torch.Tensor:
        up, down, up_bias, down_bias = (weights[name][expert] if name in weights else 0 for name in names)
        return layer.activated(up @ token + up_bias) @ down.T + down_bias  # type: ignore[union-attr, operator]

    def processed(token: torch.Tensor) -> torch.Tensor:
        scores = torch.exp(weights["router"] @ token)
        order = sorted(range(shape.experts), key=scores.tolist().__getitem__, reverse=True)
        best = order[: shape.experts_per_token]
        total = scores.sum() if len(best) == 1 else scores[best].sum()
        names = "expert_up", "expert_down", "expert_up_bias", "expert_down_bias"
        routed = sum(scores[expert] / total * mlp(token, names, expert) for expert in best)
        return routed + mlp(token, ("up", "down", "up_bias", "down_bias"), ()) if shape.shared_ffn_hidden else routed

    normed = layer.normed(x, "norm2").flatten(0, 1)
    expected = x + torch.stack([processed(token) for token in normed]).view_as(x)
    torch.testing.assert_close(layer(x), expected)
    slope = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    held = [x, *(weight for name, weight in weights.items() if not name.startswith(("qkv", "projection", "norm1")))]
    found, right = (torch.autograd.grad((y * slope).sum(), held) for y in (layer(x), expected))
    torch.testing.assert_close(found, right)


def test_some_experts_get_no_token_and_others_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the microbatches of the first case, whose losses and weights are compared above."""
    counts: list[list[int]] = []
    route = ExpertLayer.route

    def counted(layer: ExpertLayer, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gates, chosen = route(layer, tokens)
        counts.append(torch.bincount(chosen.flatten(), minlength=16).tolist())
        return gates, chosen

    monkeypatch.setattr(ExpertLayer, "route", counted)
    alone(case(tmp_path, "ep 2"), 1)
    assert all(sum(tokens) == 32 for tokens in counts)
    assert any(min(tokens) == 0 and max(tokens) > 3 for tokens in counts)
    assert any(sum(tokens[:8]) != sum(tokens[8:]) for tokens in counts)


@pytest.mark.parametrize("sizes", [[2, 0, 3], [0, 0, 0]])
def test_products_of_experts_without_tokens(sizes: list[int]) -> None:
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(sum(sizes), 4, generator=stream, requires_grad=True)
    weight = torch.randn(3, 6, 4, generator=stream, requires_grad=True)
    found = experts.grouped_linear(x, weight, sizes, TensorParallel())
    expected = torch.cat([rows @ matrix.T for rows, matrix in zip(x.split(sizes), weight, strict=True)])
    torch.testing.assert_close(found, expected)
    gradients = (torch.autograd.grad(y.square().sum(), (x, weight)) for y in (found, expected))
    torch.testing.assert_close(*gradients)


def ep_spans(plan: Plan, path: Path) -> list[Counter[str]]:
    """Number of ep and etp collectives by name, of each rank of a timeline."""
    spans = timeline.from_json(path.read_text(encoding="utf-8"), "timeline").spans
    ranks = range(plan.config.world_size)
    return [Counter(span.name for span in spans if span.rank == rank and span.lane == "ep") for rank in ranks]


def test_timeline_has_the_exchanges_of_the_program(tmp_path: Path, here: local.Local) -> None:
    """As many as the program counts; the sizes of messages are exchanged besides, once for each forward of a layer."""
    plan = case(tmp_path, "etp 2 of tp 1, ep 2, biases")
    plan = replace(plan, config=replace(plan.config, recompute="full"))
    here.run(plan, RunOptions(steps=1, output=str(tmp_path / "timeline.json")))
    program = lowering.program(plan, 0, 1)
    expected: Counter[str] = Counter({"ep sizes": 4})
    for action in program:
        if action.group in ("ep", "etp"):
            expected[str(action)] += round(action.times)
    assert expected["ep all_to_all"] == 12
    assert ep_spans(plan, tmp_path / "timeline.json") == [expected] * 4


def test_paced_ranks_exchange_the_bytes_of_the_program(tmp_path: Path, here: local.Local) -> None:
    plan = case(tmp_path, "ep 4 over tp 2 and dp 2")
    here.run(plan, RunOptions(steps=1, compute="paced", output=str(tmp_path / "timeline.json")))
    # one span for all exchanges of a forward or backward, of two microbatches
    assert ep_spans(plan, tmp_path / "timeline.json") == [Counter({"ep all_to_all": 4})] * 4


def test_an_emulated_exchange_has_as_many_bytes_as_the_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, seen = case(tmp_path, "ep 2"), []
    monkeypatch.setattr(emulated_worker, "all_to_all", lambda found, sent, group: seen.append((found.nbytes, sent.nbytes)))
    action = next(action for action in lowering.program(plan, 0, 2) if action.group == "ep")
    (work,) = EmulatedWorker(plan, 0, {"ep": SimpleNamespace(size=lambda: 2)}).collectives(action)  # type: ignore[dict-item]
    work()
    assert (action.nbytes, action.times) == (16 * 2 * 32 * 4, 4)  # tokens x experts a token x hidden x fp32; two layers
    assert seen == [(4096, 4096)] * 4


def test_ranks_build_the_groups_of_the_expert_mesh(tmp_path: Path) -> None:
    """Of 8 ranks (tp 2, dp 4), etp 1 and ep 4 divide the experts twice."""
    config = {"tp": 2, "sequence_parallel": True, "ep": 4, "etp": 1}
    plan = plan_of(tmp_path, (2,), (1, 1, 1, 1), model=QWEN, **config)
    found = {group.kind: group.ranks for group in groups_of(plan, 5)}
    assert found == {"tp": (4, 5), "ep": (4, 5, 6, 7), "dp": (1, 3, 5, 7), "edp": (1, 5)}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"dispatcher": "allgather"}, "dispatcher allgather"),
        ({"overlap_expert_communication": True}, "overlap_expert_communication"),
        ({"overlap_shared_experts": True}, "overlap_shared_experts"),
        ({"capacity_factor": 1.25}, r"capacity_factor 1.25 \(no token is dropped; plan without it\)"),
    ],
)
def test_other_exchanges_are_refused(config: dict[str, object], reason: str, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, (2,), (2, 2), model=SHARED, ep=2, **config)
    with pytest.raises(NotSupported, match=f"cannot execute this plan: {reason}"):
        supported.check(plan)


def test_half_precision_loses_what_bf16_does_to_digits(tmp_path: Path, here: local.Local) -> None:
    plan = plan_of(tmp_path, (2,), (2, 2), model=SHARED, precision="bf16", ep=2)
    here.run(plan, RunOptions(steps=1, weights=str(tmp_path)))
    losses, _, _ = alone(plan, 2)
    found = sum(torch.load(tmp_path / f"{rank}.pt")["losses"] for rank in range(2))
    assert found.tolist() == pytest.approx(losses, rel=5e-3)


@pytest.mark.parametrize("model", [QWEN, BIASED])
def test_model_has_as_many_parameters_as_the_simulated_one(model: str, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, (2,), (1,), model=model)
    _, weights, _ = alone(plan, 0)
    assert sum(weight.numel() for weight in weights.values()) == plan.workload.model.parameters
