"""Two sets of real processes train as one process does: losses, weights and means of gradients."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim.running_disaggregated import MeasuredDisaggregated
from sim.disaggregation.plan import DisaggregatedPlan
from sim.engine import timeline
from sim.errors import HolmesError
from sim.formats import disaggregatedfile
from sim.plan.plan import MadeBy
from tests.more import after
from tests.two_rank_sets import MODEL, plan, stage

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("torch")  # one test process starts the fork server

from holmes_sim.torch_backend import local  # noqa: E402
from holmes_sim.torch_backend.blocks import Embedding, Head  # noqa: E402
from holmes_sim.torch_backend.buckets import BETAS, LEARNING_RATE  # noqa: E402
from holmes_sim.torch_backend.disaggregated.set_rank import SetRank  # noqa: E402
from holmes_sim.torch_backend.experts import ExpertLayer  # noqa: E402
from holmes_sim.torch_backend.fork_server import RankProcess  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from holmes_sim.torch_backend.tensor_parallel import TensorParallel  # noqa: E402
from holmes_sim.torch_backend.training_worker import sequences  # noqa: E402

STEPS = 2
SHARED = MODEL.replace("}", ", shared_ffn_hidden: 16}")
TIED = SHARED.replace("swiglu", "gelu").replace("tied_embeddings: false", "tied_embeddings: true")
SWITCH = MODEL.replace("experts_per_token: 2", "experts_per_token: 1")
CASES: dict[str, dict[str, object]] = {
    "two half-batches, experts of one layer kept": {"kept": (0, 4)},
    "two groups, all kept differently, full": {
        "attention": 2, "experts": 2, "groups": 2, "kept": (5, 2), "recompute": "full", "model": SHARED, "rounds": 2,
    },
    "more expert ranks, tied, biases": {"attention": 1, "experts": 2, "microbatches": 4, "kept": (2, 4), "model": TIED},
    "one expert a token, one microbatch at a time": {"microbatches": 1, "rounds": 2, "batch": 4, "model": SWITCH},
    "one rank of each": {"attention": 1, "experts": 1, "rounds": 2, "microbatches": 2},
}  # fmt: skip
QUICK = 3
"""Cases that `make test` tries."""


def alone(plan: DisaggregatedPlan) -> tuple[list[float], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(loss of each step, weights, Adam's first moments) of one process with torch's own autograd and Adam."""
    model, tensors, workload = plan.workload.model, TensorParallel(), plan.workload
    first, last = Embedding(model, tensors, 0), Head(model, tensors, 0, workload.tokens)
    if model.tied_embeddings:
        last.words = first.words
    blocks = [first, *(ExpertLayer(model, tensors, 0, index, "none") for index in range(model.layers)), last]
    adam = torch.optim.Adam({id(p): p for b in blocks for p in b.parameters()}.values(), lr=LEARNING_RATE, betas=BETAS)
    losses = []
    for step in range(STEPS):
        tokens = sequences(workload, 0, step, range(workload.global_batch_size))
        x = tokens[:-1]
        for block in blocks[:-1]:
            x = block(x)
        loss = last(x, tokens[1:])
        loss.backward()
        adam.step()
        adam.zero_grad()
        losses.append(float(loss.detach()))
    named = {name: weight for block in blocks for name, weight in block.named()}
    moments = {name: adam.state[weight]["exp_avg"] for name, weight in named.items()}
    return losses, {name: weight.detach() for name, weight in named.items()}, moments


def own_part(place: SetRank, name: str, whole: torch.Tensor) -> torch.Tensor:
    """What a rank holds of a weight: all of it, or its experts."""
    _, layer, kind = name.split(".") if name.startswith("layers.") else ("", "0", name)
    experts = place.experts(int(layer) + 1)
    return whole[experts.start : experts.stop] if kind.startswith("expert_") else whole


@pytest.mark.parametrize("name", after(QUICK, CASES))
def test_equals_one_process(name: str, tmp_path: Path, here: local.Local) -> None:
    whole = DisaggregatedPlan(stage(**CASES[name]), MadeBy("test", ""))  # type: ignore[arg-type]
    here.run_disaggregated(whole, RunOptions(steps=STEPS - 1, weights=str(tmp_path)))
    losses, weights, moments = alone(whole)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(len(whole.placement))]
    assert sum(result["losses"] for result in results).tolist() == pytest.approx(losses, rel=1e-5)
    seen: dict[str, int] = {}
    for rank, result in enumerate(results):
        place = SetRank(whole.stage, rank)
        for key, weight in result["weights"].items():
            expected = own_part(place, key, weights[key])
            torch.testing.assert_close(weight, expected, rtol=0, atol=1e-5, msg=f"rank {rank}: {key}")
            close = 1e-4 * float(moments[key].abs().max())
            mean = own_part(place, key, moments[key])
            torch.testing.assert_close(result["moments"][key], mean, rtol=0, atol=close, msg=f"rank {rank}: gradient of {key}")
            seen[key] = seen.get(key, 0) + weight.numel()
    copies = {key: whole.stage.groups if ".expert_" in key else len(whole.stage.attention) for key in weights}
    assert seen == {key: copies[key] * weight.numel() for key, weight in weights.items()}


def test_a_paced_run_takes_no_less_than_its_compute(tmp_path: Path, here: local.Local) -> None:
    """Compute sleeps for its seconds, and as many bytes travel between processes here."""
    whole = plan()
    output = tmp_path / "timeline.json"
    here.run_disaggregated(whole, RunOptions(steps=1, compute="paced", scale=2.0, output=str(output)))
    found = timeline.from_json(output.read_text(), "timeline.json")
    assert (found.plan_digest, found.compute, found.scale) == (disaggregatedfile.digest(whole), "paced", 2.0)
    assert {span.lane for span in found.spans} == {"compute", "send", "return", "dp", "wait"}
    prediction = whole.prediction
    assert prediction is not None
    rows = MeasuredDisaggregated(whole, prediction, found).times()
    for what, simulated, measured in rows[:3]:
        assert measured > 0.999 * simulated, what
    exchanges = Counter(span.name.split()[0] for span in found.spans if span.rank == 0 and span.group == "ep")
    assert exchanges["dispatch"] == exchanges["combine"] == 16  # two layers, four microbatches, forward and backward


def test_a_launch_of_another_size_is_refused(tmp_path: Path, here: local.Local) -> None:
    def change(process: RankProcess, rank: int) -> RankProcess:
        return replace(process, environment=process.environment | {"WORLD_SIZE": "2"}) if rank == 0 else process

    with pytest.raises(HolmesError, match="the launch has 2 ranks, but the plan 3"):
        here.run_disaggregated(plan(), RunOptions(steps=1), change)
