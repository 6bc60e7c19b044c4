"""Each module of the planner has a test file of its name, in the folder of its room."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(file.relative_to(ROOT / "planner") for file in (ROOT / "planner").rglob("*.py") if file.name != "__init__.py")


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_has_a_file_of_tests(module):
    name = f"test_{module.stem}.py"
    text = (ROOT / "tests" / "planner" / module.parent / name).read_text(encoding="utf-8")
    assert "\ndef test_" in text
