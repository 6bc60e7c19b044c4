"""A plan file, written once by the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.holmes_sim.cli.arguments import HYBRID


@pytest.fixture(scope="session")
def plan_file(tmp_path_factory) -> Path:
    """A plan of holmes-hybrid-4, written by the command line."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    done = subprocess.run(
        [sys.executable, "-m", "holmes_sim.cli", *HYBRID, "-o", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return path
