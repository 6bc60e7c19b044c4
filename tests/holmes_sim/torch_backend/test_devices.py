"""Ranks on a GPU, without one: where their tensors lie, what they wait for, which device they take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.errors import HolmesError
from sim.formats import planfile

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import communication, devices  # noqa: E402
from holmes_sim.torch_backend.run_options import RunOptions  # noqa: E402
from tests.holmes_sim.torch_backend.one_process import plan_of  # noqa: E402
from tests.holmes_sim.torch_backend.test_training import CASES  # noqa: E402
from tests.more import more  # noqa: E402

ROOT = Path(__file__).parents[3]


THERE = ["pretended:0"]
SETTLED = {"weights": THERE, "buffers": THERE, "optimizer": THERE, "inputs": [], "settled": THERE, "steps": 2}
LLAMA = SETTLED | {"loss": [], "messages": ["receive cpu", "send pretended"]}
ALONE = SETTLED | {"loss": THERE, "messages": []}
OFFLOADED = ALONE | {"buffers": ["cpu", *THERE], "optimizer": ["cpu"]}


@more
def test_nothing_stays_on_the_cpu_but_what_is_offloaded(tmp_path: Path) -> None:
    """Devices of the tensors of rank 0 after two steps on a device that does not exist.

    torch raises where an operation gets tensors of two devices; messages alone go through the host. One process runs all
    plans, because it takes longer to import what pretends."""
    cases = (CASES["llama"], CASES["one process"], ((5,), (2,), {"offload": ("optimizer", "activations")}))
    paths = [tmp_path / f"{index}.json" for index in range(len(cases))]
    for path, (layers, microbatches, config) in zip(paths, cases, strict=True):
        plan = plan_of(tmp_path, layers, microbatches, **config)  # type: ignore[arg-type]
        path.write_text(planfile.to_json(plan), encoding="utf-8")
    command = [sys.executable, str(Path(__file__).with_name("fake_device.py")), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [LLAMA, ALONE, OFFLOADED]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A torch that sees two GPUs; which were set."""
    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [(RunOptions(), "cuda:1"), (RunOptions(device="cpu"), "cpu"), (RunOptions(compute="paced"), "cpu")],
    ids=["auto", "cpu", "paced"],
)
def test_device_of_a_rank(options: RunOptions, expected: str, two_gpus: list[int]) -> None:
    assert str(devices.device_of(options, 5, 1)) == expected
    assert two_gpus == ([1] if expected == "cuda:1" else [])


def test_a_host_with_too_few_gpus_is_refused(two_gpus: list[int]) -> None:
    with pytest.raises(HolmesError) as error:
        devices.device_of(RunOptions(), 10, 2)
    assert str(error.value) == "rank 10 should compute on cuda:2; torch sees 2 here (--device cpu computes on the CPU)"


def test_without_a_gpu_a_rank_computes_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.device_of(RunOptions(), 0, 0) == torch.device("cpu")


def test_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.kind(torch.device("cpu")) == "cpu"
    monkeypatch.setattr(torch.version, "hip", None)
    assert devices.kind(torch.device("cuda", 3)) == "cuda"
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert devices.kind(torch.device("cuda", 3)) == "rocm"


def test_it_is_this_threads_stream_that_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    stream = SimpleNamespace(synchronize=lambda: waited.append("stream"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *device: waited.append("the whole device"))
    devices.synchronize(torch.device("cuda", 0))
    devices.synchronize(torch.device("cpu"))
    assert waited == ["stream"]


class Far:
    """A tensor on another device, as far as staging asks: a copy comes to the host, and goes back."""

    def __init__(self, *values: float):
        self.device, self.values = torch.device("cuda", 0), torch.tensor(values)

    def cpu(self) -> torch.Tensor:
        return self.values.clone()

    def to(self, device: torch.device) -> torch.Tensor:
        assert device == torch.device("cpu")
        return self.values.clone()

    def copy_(self, near: torch.Tensor) -> None:
        self.values = near.clone()


def test_gloo_is_given_copies_in_the_hosts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    group = object()
    monkeypatch.setattr(communication.dist, "get_backend", lambda of: "gloo")
    monkeypatch.setattr(communication.dist, "all_reduce", lambda near, operation, of: near.mul_(2))
    monkeypatch.setattr(communication.ring, "reduce_scatter", lambda part, whole, of: part.copy_(whole[:1] * 2))
    value, part, whole = Far(1, 2), Far(0), Far(3, 4)
    communication.all_reduce(value, group)  # type: ignore[arg-type]
    communication.reduce_scatter(part, whole, group)  # type: ignore[arg-type]
    assert value.values.tolist() == [2, 4]
    assert part.values.tolist() == [6]
    for name in ("all_gather_single", "all_gather_into_tensor"):
        monkeypatch.setattr(
            communication.dist, name, lambda near, part, group: near.copy_(torch.cat([part, part])), raising=False
        )
    communication.all_gather(whole, part, group)  # type: ignore[arg-type]
    assert whole.values.tolist() == [6, 6]
