"""Activations that layers keep in host memory: what is copied, what stays, and the gradients."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from holmes_sim.torch_backend.devices import HOST  # noqa: E402
from holmes_sim.torch_backend.host_activations import HostActivations  # noqa: E402

WIDTH = 4


class Gated(nn.Module):
    """A layer that saves its input, two views of one product, and results of elementwise operations."""

    def __init__(self, again: bool):
        super().__init__()
        self.again, self.up, self.down = again, nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self._layer, x, use_reentrant=False) if self.again else self._layer(x)  # type: ignore[no-any-return]

    def _layer(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, -1)
        return x + self.down(functional.silu(gate) * value)  # type: ignore[no-any-return]


class Watched(HostActivations):
    """Remembers the size of each copy, and what was copied without keeping it."""

    def __init__(self) -> None:
        super().__init__(HOST)
        self.sizes: list[int] = []
        self.copied_from: list[StorageWeakRef] = []

    def _to_host(self, flat: Tensor) -> Tensor:
        self.sizes.append(flat.numel())
        self.copied_from.append(StorageWeakRef(flat.untyped_storage()))
        return super()._to_host(flat)


@pytest.mark.parametrize("again", [False, True], ids=["kept", "recomputed"])
def test_gradients_are_those_of_kept_activations_and_nothing_stays(again: bool) -> None:
    """Two layers, and two microbatches whose forwards come first. Of five rows, the gated layer saves its input, the product of
    twice the width, once for both views, the activated gate and the gated product; a recomputed one its input."""
    torch.manual_seed(0)
    layers, inputs = [Gated(again) for _ in range(2)], [torch.randn(5, WIDTH) for _ in range(2)]
    away, results = Watched(), []
    for microbatch, x in enumerate(inputs):
        at = x.clone()
        for index, layer in enumerate(layers):
            at = away.forward((0, microbatch, index), layer, at)
        results.append(at)
        del at
    assert away.sizes == ([5 * WIDTH] if again else [5 * WIDTH, 5 * 2 * WIDTH, 5 * WIDTH, 5 * WIDTH]) * 4
    assert all(one.expired() for one in away.copied_from)
    entered = []
    for microbatch in range(2):
        grad: Tensor | None = torch.ones(5, WIDTH)
        for index in (1, 0):
            grad = away.backward((0, microbatch, index), grad)
        entered.append(grad)
    assert not away.held
    found = [weight.grad for layer in layers for weight in layer.parameters()]
    for layer in layers:
        layer.zero_grad(set_to_none=True)
    whole = [x.clone().requires_grad_() for x in inputs]
    outs = [layers[1](layers[0](x)) for x in whole]
    sum(out.sum() for out in outs).backward()
    torch.testing.assert_close(results, [out.detach() for out in outs])
    torch.testing.assert_close(entered, [x.grad for x in whole])
    torch.testing.assert_close(found, [weight.grad for layer in layers for weight in layer.parameters()])
