"""Sources that a test writes into its own folder."""

from __future__ import annotations

import pytest

from tests.holmes_sim.importing.sources import H100, SAMPLES


@pytest.fixture
def put(tmp_path):
    """A function that writes a source and returns its path."""

    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


@pytest.fixture
def h100(put) -> str:
    """Output of `nvidia-smi -L; nvidia-smi topo -m` on a node of eight H100."""
    return put("h100.txt", "\n".join(H100) + "\n" + (SAMPLES / "nvidia_smi-h100.txt").read_text())
