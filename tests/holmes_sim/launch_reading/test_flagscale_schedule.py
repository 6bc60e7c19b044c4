"""DualPipeV in a launch of FlagScale: layers of its stages, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from holmes_sim import launch_readers
from holmes_sim.launch_reading.given import Given
from holmes_sim.launch_reading.job import Job
from sim.errors import HolmesError

LAUNCH = """\
--num-layers 16 --hidden-size 1024 --ffn-hidden-size 4096 --num-attention-heads 16 --swiglu --position-embedding-type rope
--untie-embeddings-and-output-weights --vocab-size 32000 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --bf16
--num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall --expert-model-parallel-size 2 --moe-grouped-gemm
--use-dualpipev --pipeline-model-parallel-size 4
"""


def job(tmp_path: Path, more: str, launch: str = LAUNCH) -> Job:
    path = tmp_path / "launch.sh"
    path.write_text(launch + more, encoding="utf-8")
    return launch_readers.read(path, Given({}, None))


@pytest.mark.parametrize(
    ("more", "layers"),
    [
        ("--moe-fb-overlap", (2, 2, 2, 2, 2, 2, 2, 2)),
        (
            "--moe-fb-overlap --decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 6",
            (1, 2, 2, 3, 3, 2, 2, 1),
        ),
    ],
)  # fmt: skip
def test_each_rank_has_two_stages_along_a_v(tmp_path: Path, more: str, layers: tuple[int, ...]) -> None:
    found = job(tmp_path, more)
    assert (found.target, found.layers, found.config["schedule"], found.config["vpp"]) == ("flagscale", layers, "dualpipev", 2)
    assert not found.not_modelled
    assert not any("dualpipev" in text for text in found.assumed)


def test_pairs_without_overlap_are_said(tmp_path: Path) -> None:
    text = "--use-dualpipev without --moe-fb-overlap: exchanges of tokens are taken to run beside the other pass of a pair"
    assert text in job(tmp_path, "").assumed


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("size 4", "size 1", "its pipeline has two ranks or more; --pipeline-model-parallel-size 2"),
        ("size 4", "size 16", "a rank halves its layers, which 1 layers cannot be; an even number on each rank"),
        ("size 4", "size 3", "a rank halves its layers, which 5.33333 layers cannot be; an even number on each rank"),
        ("size 4", "size 4 --num-layers-per-virtual-pipeline-stage 2", "each rank has two stages, not vpp 2; no flags of"),
    ],
)  # fmt: skip
def test_other_stages_are_refused_with_the_line(tmp_path: Path, old: str, new: str, text: str) -> None:
    with pytest.raises(HolmesError, match=rf"launch.sh:4: --use-dualpipev: {text}"):
        job(tmp_path, "", LAUNCH.replace(f"parallel-{old}\n", f"parallel-{new}\n"))
