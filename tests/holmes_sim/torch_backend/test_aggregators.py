"""Aggregations of islands with torch: against their definitions, and with islands that are wrong."""

from __future__ import annotations

import pytest
import torch

from holmes_sim.torch_backend import aggregators
from sim import aggregation
from sim.aggregation import flag, krum

ROBUST = sorted(set(aggregation.names()) - {"mean"})


def drawn(islands: int, values: int, noise: float = 0.5) -> torch.Tensor:
    """Values of islands: a common part, and noise of their own."""
    stream = torch.Generator().manual_seed(islands)
    return torch.randn(values, generator=stream) + noise * torch.randn(islands, values, generator=stream)


def aggregated(name: str, values: torch.Tensor, parts: int = 3) -> torch.Tensor:
    """The result for values in so many links, as ranks of an island hold them."""
    found = aggregators.get(name).aggregate(list(values.tensor_split(parts, 1)), lambda value: value)
    return torch.cat(found)


def test_every_robust_aggregation_can_be_executed():
    assert list(aggregators.REGISTRY.names) == ROBUST


@pytest.mark.parametrize("name", ROBUST)
def test_equal_islands_give_their_own_values(name):
    values = drawn(1, 50).repeat(5, 1)
    assert aggregated(name, values) == pytest.approx(values[0].numpy(), abs=1e-5)


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("wrong", [-10.0, 1e4])
def test_one_wrong_island_of_five_hardly_changes_the_result(name, wrong):
    values = drawn(5, 400)
    right = values[:4].mean(0)
    values[4] = wrong * right
    found = aggregated(name, values)
    assert torch.cosine_similarity(found, right, dim=0) > 0.8
    assert 0.4 < found.norm() / right.norm() < 1.5
    assert (values.mean(0) - right).norm() > 2 * right.norm()


def test_multi_krum_is_the_mean_of_the_best():
    values = torch.tensor([[0.0], [0.1], [0.2], [0.4], [9.0], [50.0], [51.0]])  # f = 2, three others count, three are averaged
    assert krum.tolerated(7) == 2
    assert aggregated("multi-krum", values, 1).item() == pytest.approx(0.1)
    assert aggregated("krum", values, 1).item() == pytest.approx(0.2)


def test_flag_projects_onto_the_largest_singular_vectors():
    values = drawn(6, 40, noise=2.0)
    norms = values.norm(dim=1)
    scaled = (values / norms[:, None]).T
    left = torch.linalg.svd(scaled, full_matrices=False)[0][:, : flag.rank(6)]
    projected = left @ left.T @ scaled
    expected = projected.mean(1) * norms.median()
    assert aggregated("flag", values) == pytest.approx(expected.numpy(), abs=1e-5)


def test_flag_takes_islands_without_values():
    values = torch.zeros(3, 10)
    assert aggregated("flag", values).tolist() == [0.0] * 10
    values[0] = 1.0
    assert aggregated("flag", values).isfinite().all()
