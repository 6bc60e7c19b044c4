"""The verification of a machine: its parts run on a CPU, its verdict follows from the errors, a failed part is told."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

torch = pytest.importorskip("torch")

from holmes_sim import cli, printing, verifying  # noqa: E402
from holmes_sim.measurement import MemoryLine  # noqa: E402
from holmes_sim.profiling.machine import Machine  # noqa: E402
from holmes_sim.profiling.results import DeviceProfile  # noqa: E402
from holmes_sim.verifying import Step, Verification  # noqa: E402
from sim.errors import HolmesError  # noqa: E402
from sim.hardware.device_spec import AttentionRates, GemmCurve  # noqa: E402
from sim.units import GIBI  # noqa: E402
from sim.workload.kernels import Attention  # noqa: E402
from tests.holmes_sim.profiling.quick import measure_little  # noqa: E402

H100 = Machine("cuda", "NVIDIA H100 80GB HBM3", "nvidia", 132, 79.18 * 2**30)


def found(*steps: Step, faults: tuple[str, ...] = ()) -> Verification:
    from holmes_sim.profiling.ceilings import Ceilings

    top = Ceilings(
        "bf16", 743.7e12, 2.955e12, 55e9, GemmCurve(2.406e-6, 1.0, 1.0), 0.21, AttentionRates(0.9, 0.82, 556.0, 1203.0),
        Attention("attention", 1, 32, 32, 128, 16384), 0.863, (), 0.006,
    )  # fmt: skip
    device = DeviceProfile("h100", H100, "torch 2.11.0", "2026-11-26", top)
    return Verification(device, 1, "h100-sxm5-80gb", steps, None, "NCCL 2.28.9", faults)


def step(measured: float, profiled: float, catalogued: float | None = 0.29, spread: float = 0.05) -> Step:
    return Step("verify-0.4b", 1, "tp 1 pp 1 dp 1 mb 4 1f1b", profiled, catalogued, measured, spread)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (found(step(0.311, 0.306)), "Confirmed: every step is predicted from the profile within 8%."),
        (found(step(0.311, 0.28)), "Not confirmed; outside 8%: verify-0.4b."),
        (found(step(0.311, 0.306), faults=("links: no",)), "Not confirmed; not all parts ran."),
        (found(step(0.311, 0.306, spread=0.4)), "Not a valid measurement: the steps of verify-0.4b differ by over 25%"),
    ],
)
def test_the_verdict(given: Verification, verdict: str) -> None:
    screen = Console(file=io.StringIO(), width=200)
    screen.print(printing.verified(given))
    assert verdict in screen.file.getvalue()
    assert given.confirmed == verdict.startswith("Confirmed")


def test_the_report_has_both_errors() -> None:
    facts = found(step(0.4, 0.38, 0.5)).facts()
    assert facts["format"] == "holmes-sim/verification/1"
    (row,) = facts["steps"]
    assert (row["profiled_error"], row["catalogued_error"]) == pytest.approx((-0.05, 0.25))
    assert facts["measured"]["device"]["attention"]["backward_half_length"] == 1203
    json.dumps(facts)


@pytest.mark.parametrize(
    ("memory", "names"),
    [
        (79.18, ["verify-0.1b", "verify-0.4b", "verify-1.4b"]),
        (140.0, ["verify-0.4b", "verify-1.4b", "verify-3.1b"]),
        (16.0, ["verify-0.1b", "verify-0.4b"]),
        (1.0, ["verify-0.1b"]),
    ],
)
def test_models_fit_the_memory(memory: float, names: list[str]) -> None:
    seq_len, models = verifying.chosen(replace(H100, memory=memory * 2**30))
    assert seq_len == 2048
    assert [model.name for model in models] == names


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(HolmesError, match="--gpu: torch finds no GPU here; without --gpu the CPU is verified"):
        verifying.verify(gpu=True)


def test_the_command_runs_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_little(monkeypatch)
    monkeypatch.setattr("holmes_sim.verifying.STEPS", 1)
    monkeypatch.setattr("holmes_sim.verifying.SECONDS", 1.0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    _, models = verifying.MODELS[False]
    monkeypatch.setattr("holmes_sim.verifying.MODELS", {False: (16, (replace(models[0], layers=1),))})
    monkeypatch.setattr("sys.argv", ["holmes-sim", "verify", "-o", str(tmp_path / "report.json")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, None)
    report = json.loads((tmp_path / "report.json").read_text())
    assert [row["model"] for row in report["steps"]] == ["verify-1m"]
    assert report["steps"][0]["measured_s"] > 0
    assert report["faults"] == []
    assert "from profile" in capsys.readouterr().out


def test_a_part_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given = found()

    def broken(*_: object) -> Step:
        raise RuntimeError("CUDA out of memory\nmore")

    monkeypatch.setattr("holmes_sim.profiling.machine.at_hand", lambda: replace(H100, torch_device="cpu"))
    monkeypatch.setattr("holmes_sim.profiles.measure_device", lambda *_: given.device)
    monkeypatch.setattr("holmes_sim.verifying._on_one", broken)
    done = verifying.verify()
    assert done.faults == tuple(f"{name}: CUDA out of memory" for name in ("verify-1m", "verify-3m", "verify-8m"))
    assert done.catalogued == "h100-sxm5-80gb"
    assert done.steps == ()


def test_the_memory_of_each_model_stands_beside_its_prediction() -> None:
    lines = (
        MemoryLine(0, "allocated", 41.0 * GIBI, 40.98 * GIBI), MemoryLine(0, "reserved", 41.0 * GIBI, 48.02 * GIBI),
        MemoryLine(0, "outside", 2e9, 0.75 * GIBI),
    )  # fmt: skip
    given = found(replace(step(0.311, 0.306), memory=lines))
    screen = Console(file=io.StringIO(), width=200)
    screen.print(printing.verified(given))
    (row,) = [line for line in screen.file.getvalue().splitlines() if "40.98" in line]
    assert row.split() == ["verify-0.4b", "41.00", "40.98", "41.00", "48.02", "1.86", "0.75"]
    assert given.facts()["steps"][0]["memory"][1]["measured_bytes"] == 48.02 * GIBI
