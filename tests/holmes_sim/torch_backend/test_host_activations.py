"""Activations that layers keep in host memory: what is copied, what stays, and the gradients."""

from __future__ import annotations

from contextlib import nullcontext

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


class Stream:
    """A stream without a GPU, which notes in `log` what it waits for and what it records."""

    def __init__(self, name: str, log: list[str]):
        self.name, self.log, self.events = name, log, 0

    def record_event(self) -> str:
        self.events += 1
        self.log.append(f"{self.name} records {self.events}")
        return f"{self.name} {self.events}"

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")

    def wait_stream(self, other: Stream) -> None:
        line = f"{self.name} waits for {other.name}"
        self.log += [line] if self.log[-1:] != [line] else []


def test_streams_of_a_gpu_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward of three layers: the first layer leaves while the second one computes, and is dropped after that;
    the last one is still on the device at its backward, and the others come back one layer ahead."""
    log: list[str] = []
    compute, made = Stream("compute", log), iter(("out", "back"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(next(made), log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: compute)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    away = HostActivations(HOST)
    away.on_gpu, away.out, away.back = True, torch.cuda.Stream(HOST), torch.cuda.Stream(HOST)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory=False, **facts: empty(*size, **facts))
    layers, x = [Gated(True) for _ in range(3)], torch.randn(5, WIDTH)
    at = x
    for index, layer in enumerate(layers):
        at = away.forward((0, 0, index), layer, at)
        assert len(away.leaving) == 1
    assert log == [
        "out waits for compute",
        "out records 1",
        "out waits for compute",
        "out records 2",
        "compute waits for out 1",
        "out waits for compute",
        "out records 3",
        "compute waits for out 2",
    ]
    log.clear()
    grad: Tensor | None = torch.ones(5, WIDTH)
    for index in (2, 1, 0):
        grad = away.backward((0, 0, index), grad)
    assert log == [
        "back waits for compute",
        "back waits for out 2",
        "back records 1",
        "back waits for compute",
        "back waits for out 1",
        "back records 2",
        "compute waits for back 1",
        "compute waits for back 2",
    ]
    whole = x.clone().requires_grad_()
    layers[2](layers[1](layers[0](whole))).sum().backward()
    torch.testing.assert_close(grad, whole.grad)
