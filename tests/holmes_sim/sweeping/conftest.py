"""Studies of four devices, whose scenarios take hundredths of a second each, in the process of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

QUICK = """format: holmes-sim/study/1
name: quick
topology: lab/lab-hybrid-nics
plan: {tp: 1, microbatch_size: 1, recompute: none, schedule: 1f1b, strategy: megatron}
"""
"""The head of a study: what follows are its keys."""


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a quick study with the keys that are given. Its scenarios take less time than the start of a worker."""
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)

    def written(keys: str) -> Path:
        path = tmp_path / "study.yaml"
        path.write_text(QUICK + keys)
        return path

    return written
