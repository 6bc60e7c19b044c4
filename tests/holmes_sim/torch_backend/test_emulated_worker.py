"""An emulated rank runs the collectives of the program over the groups of its plan."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holmes_sim.torch_backend import emulated_worker
from holmes_sim.torch_backend.emulated_worker import EmulatedWorker
from holmes_sim.torch_backend.executor import beside_products
from holmes_sim.torch_backend.groups import groups_of
from sim.plan.program import Action
from tests import builders as make

SHARDED = make.plan(make.fleet(make.cluster(nodes=1, devices=4)), dp=4, microbatches=1, zero_shard_size=2)


def test_blocks_of_ranks_and_those_with_equal_shards_are_groups():
    found = [[(group.kind, group.ranks) for group in groups_of(SHARDED, rank)] for rank in range(4)]
    assert found == [
        [("dp", (0, 1)), ("copies", (0, 2))],
        [("dp", (0, 1)), ("copies", (1, 3))],
        [("dp", (2, 3)), ("copies", (0, 2))],
        [("dp", (2, 3)), ("copies", (1, 3))],
    ]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("reduce_scatter", [("reduce_scatter", "block", 16), ("all_reduce", "copies", 8)]),
        ("all_gather", [("all_gather", "block", 16)]),
    ],
)
def test_gradients_are_summed_in_blocks_and_then_over_copies(monkeypatch, operation, expected):
    """64 bytes over a block of two: 16 values, 8 of which a rank owns."""
    seen = []

    def record(name, at):
        return lambda *given: seen.append((name, given[-1].name, given[at].numel()))

    for name, at in (("all_reduce", 0), ("all_gather", 0), ("reduce_scatter", 1)):
        monkeypatch.setattr(emulated_worker, name, record(name, at))
    groups = {"dp": SimpleNamespace(name="block", size=lambda: 2), "copies": SimpleNamespace(name="copies", size=lambda: 2)}
    worker = EmulatedWorker(SHARDED, 0, groups)
    (work,) = worker.collectives(Action("collective", 0, group="dp", operation=operation, nbytes=64.0))
    work()
    assert seen == expected


def test_a_tied_embedding_is_summed_with_every_peer(monkeypatch):
    """A rank with tp 1 shares parts of the embedding with both ranks of a stage with tp 2."""
    plan = make.plan(make.fleet(make.cluster(devices=4)), 2, 2, stage_tp=(1, 2), shape={"tied_embeddings": True})
    seen = []
    monkeypatch.setattr(emulated_worker, "all_reduce", lambda value, group: seen.append((group.name, value.numel())))
    groups = {name: SimpleNamespace(name=name, size=lambda: 2) for name in ("pp", "pp 1", "embedding", "embedding 1")}
    (work,) = EmulatedWorker(plan, 0, groups).collectives(
        Action("collective", group="embedding", operation="all_reduce", nbytes=64.0)
    )
    work()
    assert seen == [("embedding", 16), ("embedding 1", 16)]


def test_collectives_beside_products_start_before_the_sleep_and_end_after_it() -> None:
    """An emulated worker starts and awaits them; a training worker runs them inside its layers."""
    plan = make.plan(make.fleet(make.cluster(nodes=1, devices=2)), tp=2, sequence_parallel=True)
    gather = Action("gather", group="tp", operation="mlp in F", nbytes=64.0, times=0.5)
    found = list(beside_products((Action("F"), gather, Action("optimizer")), EmulatedWorker(plan, 0, {})))
    started = gather._replace(kind="start", operation="all_gather")
    assert found == [Action("F"), started, gather, started._replace(kind="wait"), Action("optimizer")]
    assert list(beside_products((gather, Action("B")), object())) == [Action("B")]  # type: ignore[arg-type]
