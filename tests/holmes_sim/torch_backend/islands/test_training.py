"""Islands of real processes train as one process does, exactly or with the outer steps of their strategy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sim.errors import NotSupported
from sim.plan.islands import IslandsPlan
from sim.sync import Sync
from sim.workload.adapter import Adapter

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("torch")  # one test process starts the fork server

from holmes_sim.torch_backend import local  # noqa: E402
from holmes_sim.torch_backend.blocks import Embedding, Head, Layer  # noqa: E402
from holmes_sim.torch_backend.buckets import BETAS, LEARNING_RATE  # noqa: E402
from holmes_sim.torch_backend.islands.measured import MeasuredPeriods  # noqa: E402
from holmes_sim.torch_backend.islands.supported import check  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from holmes_sim.torch_backend.tensor_parallel import TensorParallel  # noqa: E402
from holmes_sim.torch_backend.training_worker import samples  # noqa: E402
from tests.holmes_sim.torch_backend.islands.islands_of_one_host import Island, islands_of  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import LLAMA, alone, part, plan_of  # noqa: E402
from tests.more import after  # noqa: E402

UNLIKE: list[Island] = [((3, 2), (1,), {}), ((5,), (1, 1), {"zero_stage": 0}), ((5,), (2, 1), {})]
"""Two stages, which tie the embedding; two whole replicas; and two that shard optimizer state."""
EXACT: dict[str, tuple[list[Island], str]] = {
    "unlike layouts": (UNLIKE, ""),
    "two stages against three": ([((3, 2), (2, 1), {}), ((2, 2, 1), (1,), {})], ""),
    "tp 2": ([((3, 2), (2,), {"tp": 2, "sequence_parallel": True}), ((5,), (1,), {"tp": 2})], ""),
    "untied, zero 3": ([((5,), (2, 2), {"zero_stage": 3}), ((2, 3), (1,), {"schedule": "zb-h1"})], LLAMA),
    "copies of shards": ([((5,), (1, 1, 1, 1), {"zero_shard_size": 2}), ((5,), (2,), {})], ""),
}


def run(here: local.Local, plan: IslandsPlan, folder: Path, periods: int) -> MeasuredPeriods:
    here.run_islands(plan, RunOptions(steps=periods - 1, weights=str(folder), output=str(folder / "periods.json")))
    return MeasuredPeriods.from_json((folder / "periods.json").read_text(encoding="utf-8"))


def check_weights(plan: IslandsPlan, weights: dict[str, torch.Tensor], folder: Path) -> None:
    """All weights of all ranks are near those of one process."""
    for first, island in zip(plan.first_ranks, plan.islands, strict=True):
        seen = set()
        for rank in range(island.config.world_size):
            for name, weight in torch.load(folder / f"{first + rank}.pt")["weights"].items():
                expected = part(island, name, weights[name], weight.shape, rank)
                torch.testing.assert_close(weight, expected, rtol=0, atol=1e-5, msg=f"rank {first + rank}: {name}")
                seen.add(name)
        assert seen == set(weights)


@pytest.mark.parametrize("name", after(0, EXACT))
def test_every_step_without_compression_equals_one_process(name: str, tmp_path: Path, here: local.Local) -> None:
    islands, model = EXACT[name]
    keys = {"model": model} if model else {}
    plan = islands_of(tmp_path, Sync("every-step"), islands, **keys)
    found = run(here, plan, tmp_path, periods=3)
    losses, weights, _ = alone(plan_of(tmp_path, (5,), (sum(plan.batches),), **keys), 3)  # type: ignore[arg-type]
    assert found.losses == pytest.approx(losses, rel=1e-5)
    check_weights(plan, weights, tmp_path)
    assert len(found.periods_s) == 2
    assert 0 < found.exchange_s < found.period_s


def adapted(plan: IslandsPlan, adapter: Adapter) -> IslandsPlan:
    """The plan with adapters; all other weights are frozen."""
    workloads = [dataclasses.replace(island.workload, adapter=adapter) for island in plan.islands]
    pairs = zip(plan.islands, workloads, strict=True)
    return dataclasses.replace(plan, islands=tuple(dataclasses.replace(island, workload=own) for island, own in pairs))


@pytest.mark.parametrize(
    ("name", "adapter"),
    after(1, [("unlike layouts", Adapter(4)), *((name, Adapter(4)) for name in EXACT if name != "unlike layouts"),
              ("two stages against three", Adapter(2, ("q_proj", "down_proj"), "nf4"))]),
)  # fmt: skip
def test_adapters_that_are_exchanged_in_every_step_equal_those_of_one_process(
    name: str, adapter: Adapter, tmp_path: Path, here: local.Local
) -> None:
    islands, model = EXACT[name]
    keys = {"model": model} if model else {}
    plan = adapted(islands_of(tmp_path, Sync("every-step"), islands, **keys), adapter)
    found = run(here, plan, tmp_path, periods=3)
    one = plan_of(tmp_path, (5,), (sum(plan.batches),), **keys)  # type: ignore[arg-type]
    losses, weights, _ = alone(dataclasses.replace(one, workload=dataclasses.replace(one.workload, adapter=adapter)), 3)
    assert found.losses == pytest.approx(losses, rel=1e-5)
    check_weights(plan, weights, tmp_path)


def test_outer_steps_leave_frozen_weights_as_they_are(tmp_path: Path, here: local.Local) -> None:
    """DiLoCo of adapters: both islands have the same adapters after an exchange, which differ from the first ones."""
    islands: list[Island] = [((5,), (1,), {}), ((5,), (2,), {})]
    plan = adapted(islands_of(tmp_path, Sync("diloco", 2, compression="int8"), islands), Adapter(4))
    run(here, plan, tmp_path, periods=2)
    one, other = (torch.load(tmp_path / f"{rank}.pt")["weights"] for rank in (0, 1))
    _, first, _ = alone(dataclasses.replace(plan.islands[0], groups=()), 0)
    for name, weight in first.items():
        is_adapter = name.endswith(("_a", "_b"))
        assert torch.equal(one[name], other[name])
        assert torch.equal(one[name], weight) is not is_adapter, name


def mean_of_weights(plan: IslandsPlan, periods: int) -> dict[str, torch.Tensor]:
    """Weights of Local SGD in one process: each island trains a copy of the model with torch's Adam."""
    model, copies = plan.workload.model, []
    for island in plan.islands:
        blocks = [Embedding(model, TensorParallel(), 0)]
        blocks += [Layer(model, TensorParallel(), 0, index, "none") for index in range(model.layers)]
        blocks.append(Head(model, TensorParallel(), 0, island.workload.tokens))
        blocks[-1].words = blocks[0].words
        adam = torch.optim.Adam({id(p): p for b in blocks for p in b.parameters()}.values(), lr=LEARNING_RATE, betas=BETAS)
        copies.append((blocks, adam))
    for step in range(periods * plan.sync.inner_steps):
        for index, ((blocks, adam), island) in enumerate(zip(copies, plan.islands, strict=True)):
            for sample in range(plan.batches[index]):
                x = tokens = samples(island, 0, step, 0, sample, sum(plan.batches[:index]))
                x = tokens[:-1]
                for block in blocks[:-1]:
                    x = block(x)
                blocks[-1](x, tokens[1:]).backward()
            adam.step()
            adam.zero_grad()
        if (step + 1) % plan.sync.inner_steps == 0:
            for weights in zip(*(adam.param_groups[0]["params"] for _, adam in copies), strict=True):
                mean = sum(w.detach() * share for w, share in zip(weights, plan.weights, strict=True))
                for weight in weights:
                    weight.data.copy_(mean)
    return {name: weight.detach() for block in copies[0][0] for name, weight in block.named()}


def test_local_steps_of_unlike_layouts_equal_copies_in_one_process(tmp_path: Path, here: local.Local) -> None:
    plan = islands_of(tmp_path, Sync("local-sgd", inner_steps=2), UNLIKE)
    found = run(here, plan, tmp_path, periods=2)
    assert len(found.losses) == 4
    check_weights(plan, mean_of_weights(plan, 2), tmp_path)


@pytest.mark.parametrize(
    ("sync", "second", "fault"),
    [
        (Sync("diloco"), ((5,), (2,), {"tp": 2}), r"islands\[1\].config.tp 2 \(as in islands\[0\], 1, for every layer\)"),
        (Sync("diloco", compression="powersgd=2"), ((5,), (1, 1), {}), r"powersgd with islands\[1\].config.zero_stage 1 \(0: "),
        (
            Sync("streaming-diloco", inner_steps=4, fragments=2, compression="powersgd=2"),
            ((5,), (2,), {}),
            r"powersgd with 2 fragments \(1: it needs whole matrices\)",
        ),
        (Sync("diloco", aggregation="krum", compression="powersgd=2"), ((5,), (2,), {}), "powersgd with aggregation krum"),
    ],
)
def test_what_cannot_be_executed_is_refused_by_name(sync: Sync, second: Island, fault: str, tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match=fault):
        check(islands_of(tmp_path, sync, [((5,), (2,), {}), second]))


def test_islands_of_another_tp_that_exchange_nothing_are_executed(tmp_path: Path) -> None:
    plan = islands_of(tmp_path, Sync("independent"), [((5,), (2,), {}), ((5,), (2,), {"tp": 2})])
    check(plan)
    with pytest.raises(NotSupported, match="tp 2"):
        check(dataclasses.replace(plan, sync=Sync("every-step")))


MIXTURE = (
    "{layers: 5, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 48, vocab: 64, mlp: swiglu, tied_embeddings: false, "
    "experts: 4, experts_per_token: 2}"
)
BLOCKING: dict[str, tuple[Sync, list[Island], str]] = {
    "powersgd of two whole replicas": (
        Sync("every-step", compression="powersgd=4"),
        [((3, 2), (1, 1), {"zero_stage": 0}), ((5,), (2,), {})],
        "",
    ),
    "top-k of unlike layouts": (Sync("diloco", inner_steps=2, compression="top-k=5%"), UNLIKE, ""),
    "int8 of copies of norms": (
        Sync("local-sgd", inner_steps=2, compression="int8"),
        [((5,), (1,), {"tp": 2, "sequence_parallel": True})] * 2,
        "",
    ),
    "krum of three": (Sync("diloco", inner_steps=1, aggregation="krum"), UNLIKE, ""),
    "median": (Sync("every-step", aggregation="median", compression="int4"), UNLIKE, ""),
    "experts": (Sync("diloco", inner_steps=2), [((5,), (1, 1), {"ep": 2}), ((2, 3), (1, 1), {"ep": 2})], MIXTURE),
}


@pytest.mark.parametrize("name", after(0, BLOCKING))
def test_islands_have_equal_weights_after_an_exchange(name: str, tmp_path: Path, here: local.Local) -> None:
    """Bit by bit, whatever the compressor and the aggregation; so are the copies of a weight inside an island."""
    sync, islands, model = BLOCKING[name]
    plan = islands_of(tmp_path, sync, islands, **({"model": model} if model else {}))
    run(here, plan, tmp_path, periods=2)
    seen: dict[tuple[str, tuple[int, ...], int], torch.Tensor] = {}
    for first, island in zip(plan.first_ranks, plan.islands, strict=True):
        for rank in range(island.config.world_size):
            for weight_name, weight in torch.load(tmp_path / f"{first + rank}.pt")["weights"].items():
                shared = "head" if weight_name == "head.words" and not model else weight_name
                is_cut = island.config.tp == 2 or "expert" in weight_name
                key = shared, tuple(weight.shape), rank % 2 if is_cut else 0
                assert torch.equal(seen.setdefault(key, weight), weight), f"rank {first + rank}: {weight_name}"
    assert len(seen) > len(plan.islands)
