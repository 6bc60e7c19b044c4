"""What is measured is there, positive and of the right shape; how long anything takes is nobody's promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from holmes_sim import cli, profiles  # noqa: E402
from holmes_sim.profiling import ceilings, layers, machine, probe  # noqa: E402
from holmes_sim.profiling.layers import LocalTensorParallel, Stage  # noqa: E402
from sim.errors import HolmesError  # noqa: E402
from sim.formats import topology  # noqa: E402
from sim.hardware.link_spec import OPERATIONS  # noqa: E402
from sim.workload.model import Model  # noqa: E402
from tests.holmes_sim.profiling.quick import measure_little  # noqa: E402

GPT = Model("gpt", 2, 32, 4, 4, 64, 64, learned_positions=16)
LLAMA = Model("llama", 6, 32, 4, 2, 48, 64, mlp="swiglu", tied_embeddings=False)


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of tiny products wait for each other longer than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("model", "tp"), [(GPT, 1), (LLAMA, 1), (LLAMA, 2)])
def test_every_part_of_a_model_is_timed(model: Model, tp: int) -> None:
    here = machine.at_hand()
    for found in layers.measure(model, 16, tp, (1, 2), "fp32", here, 0.0):
        spreads = (*found.layer, *found.embedding, *found.head, found.update)
        assert all(len(spread.seconds) == machine.FEWEST and spread.minimum > 0 for spread in spreads)
        assert found.updated >= model.parameters // tp


def test_a_stage_has_few_layers_and_updates_all_values() -> None:
    stage = Stage(LLAMA, 16, 1, 1, "bf16", machine.at_hand())
    assert len(stage.blocks) == layers.LAYERS + 2
    assert stage.updated == LLAMA.parameters
    assert {segment.flat.dtype for segment in stage.bucket.segments} == {torch.bfloat16}


def test_a_rank_apart_meets_nobody() -> None:
    tensors = LocalTensorParallel(2)
    part = torch.arange(4.0).reshape(2, 2)
    assert tensors.all_gather(part).tolist() == [[0, 1], [2, 3], [0, 1], [2, 3]]
    assert tensors.reduce_scatter(part).tolist() == [[0, 1]]
    assert tensors.all_reduce(part) is part


@pytest.mark.parametrize(
    ("model", "tp", "message"),
    [
        (LLAMA, 4, "tp 4 does not divide kv_heads of llama, 2"),
        (Model("moe", 2, 32, 4, 4, 64, 64, mlp="swiglu", experts=4, experts_per_token=2), 1, "model moe has experts"),
    ],
)
def test_what_cannot_be_cut_is_reported(model: Model, tp: int, message: str) -> None:
    with pytest.raises(HolmesError, match=message):
        layers.check(model, 16, tp)


def test_processes_of_this_machine_are_probed() -> None:
    found = probe.probe(2, (1024, 4096))
    assert [(point.operation, point.nbytes) for point in found.points] == [
        (operation, nbytes) for operation in OPERATIONS for nbytes in (1024.0, 4096.0)
    ]
    assert all(point.seconds > 0 and point.ranks == 2 for point in found.points)


def test_a_probe_needs_two() -> None:
    with pytest.raises(HolmesError, match="--probe 1: collectives need two processes or more"):
        probe.probe(1)


def test_a_curve_through_shares_by_length() -> None:
    """cuDNN's causal forward on an H100 (docs/profile.md): shares of 989 TFLOP/s at 1,024 to 16,384 tokens."""
    lengths, shares = (1024, 2048, 4096, 8192, 16384), (0.380, 0.491, 0.562, 0.612, 0.632)
    level, half = ceilings.rate_by_length(lengths, shares)
    assert [level * s / (s + half) for s in lengths] == pytest.approx(shares, rel=0.03)
    assert ceilings.rate_by_length((100, 300), (0.2, 0.3)) == pytest.approx((0.4, 100.0))  # 0.4 s / (s + 100)
    assert ceilings.rate_by_length((100, 300), (0.3, 0.3)) == pytest.approx((0.3, 0.0))


def test_numbers() -> None:
    assert profiles.numbers("4,1, 2,1", "--tp") == (1, 2, 4)
    with pytest.raises(HolmesError, match=r"--tp '1;2': expected positive integers, such as 1,2,4"):
        profiles.numbers("1;2", "--tp")


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr("sys.argv", ["holmes-sim", "profile", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, None)


def test_the_command_writes_what_plan_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_little(monkeypatch)
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 64, "n_positions": 16}
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    shape = ("--model", tmp_path / "tiny.json", "--seq-len", 16, "--microbatch-sizes", "1,2", "--name", "mine")
    command(monkeypatch, *shape, "-o", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "mine-profile.yaml", "mine-topology.yaml", "mine.yaml"
    ]  # fmt: skip
    assert "mine: " in capsys.readouterr().out
    found = topology.load(tmp_path / "out" / "mine-topology.yaml")
    profile = found.fleet.clusters[0].node.device.profile
    assert profile is not None
    assert [(row.tp, row.microbatch_size) for row in profile.rows] == [(1, 2), (1, 1)]
    assert found.workload is not None
    assert found.workload.model.name == "tiny"


def test_links_alone_need_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = "#  Rank  {0} Group  0 Pid  11 on left device  {0} [0x06] A100\n"
    rows = "{} 2 float sum -1 {} 0.0 0.0 0 24.4 0.0 0.0 0\n"
    text = rank.format(0) + rank.format(1) + rows.format(8, 20) + rows.format(8000000, 1020)
    (tmp_path / "all_reduce.txt").write_text(text)
    command(monkeypatch, "--nccl-tests", tmp_path / "all_reduce.txt", "--json")
    output = json.loads(capsys.readouterr().out)
    assert list(output) == ["format", "link"]
    assert output["link"]["bandwidth"] == "8 GB/s"
