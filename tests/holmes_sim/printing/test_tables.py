"""Numbers of tables are written so that they can be read."""

from __future__ import annotations

import pytest

from holmes_sim.printing.tables import slower_text


@pytest.mark.parametrize(("ratio", "text"), [(1.0926, "9.3%"), (9.9, "890.0%"), (10.2, "10 times"), (636.1, "636 times")])
def test_much_slower_steps_are_told_in_times(ratio: float, text: str) -> None:
    assert slower_text(ratio) == text
