"""Scripts that use the package: work in several processes needs no guard around the main module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from math import sqrt
from holmes_sim.processes import PARALLEL_FROM, each
print(sum(each(sqrt, [4.0] * (2 * PARALLEL_FROM))))
"""


def test_a_script_without_a_guard_may_use_several_processes(tmp_path: Path) -> None:
    """With processes that run the main module again, this would end with an error or start processes without end."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "80.0\n", "")
