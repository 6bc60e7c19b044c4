"""Weights in 4 bits: their codes, bytes and errors."""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist

import pytest

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import nf4  # noqa: E402
from sim.workload.adapter import BASE_BYTES  # noqa: E402


def test_levels_are_quantiles_of_a_normal_distribution() -> None:
    """Eight above zero, seven below, and zero itself, the outermost at the quantile 0.9677 (arXiv 2305.14314, section 3)."""
    end, normal = 0.9677083, NormalDist()

    def half(number: int) -> list[float]:
        return [normal.inv_cdf(end + (0.5 - end) * index / number) for index in range(number)]

    values = sorted([*half(8), 0.0, *(-one for one in half(7))])
    assert len(values) == 16
    assert [value / max(values) for value in values] == pytest.approx(nf4.LEVELS, abs=1e-6)


def test_bytes_are_those_that_plans_count() -> None:
    weight = torch.randn(256, 512)
    assert nf4.narrowed(weight).nbytes == pytest.approx(BASE_BYTES["nf4"] * weight.numel(), abs=4)  # and a mean


@pytest.mark.parametrize("shape", [(256, 512), (3, 7), (1, 64)])
def test_a_weight_is_near_to_what_it_was(shape: tuple[int, int]) -> None:
    """Half of the widest step between levels, and 1/16 of the range of scales, which are in 8 bits."""
    weight = torch.empty(shape).normal_(0, 0.02, generator=torch.Generator().manual_seed(1))
    again = nf4.narrowed(weight).widened(torch.float32)
    assert again.shape == weight.shape
    widest = max(high - low for low, high in pairwise(nf4.LEVELS)) / 2
    assert float((again - weight).abs().max()) <= (widest + 1 / 16) * float(weight.abs().max())
    assert torch.equal(nf4.narrowed(torch.zeros(shape)).widened(torch.float32), torch.zeros(shape))


def test_a_level_is_kept() -> None:
    """One block: its scale is the mean of scales, which is not quantised."""
    weight = 0.5 * torch.tensor(nf4.LEVELS * 4).view(8, 8)
    torch.testing.assert_close(nf4.narrowed(weight).widened(torch.float32), weight)


def test_the_gradient_of_the_input_is_that_of_the_weight_at_full_width() -> None:
    narrow = nf4.narrowed(torch.randn(8, 16))
    x = torch.randn(4, 16, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    nf4.frozen_linear(x, narrow, None).square().sum().backward()
    torch.nn.functional.linear(other, narrow.widened(torch.float32)).square().sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
