"""Tables of a whole training run have units that fit: hours below a day, kWh below a MWh."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from holmes_sim import printing
from holmes_sim.whole_runs import WholeRun

TEXTS = [
    (1e8, (0.142, 0.125, 0.25), 0.00438, ("100 M tokens", "hours  3.41, 80 % range 3 to 6", "4.38 kWh")),
    (2e12, (103.4, 98.2, 145.0), 31.96, ("2 T tokens", "days  103, 80 % range 98.2 to 145", "31.96 MWh")),
]


@pytest.mark.parametrize(("tokens", "days", "mwh", "texts"), TEXTS)
def test_units_fit(tokens: float, days: tuple[float, float, float], mwh: float, texts: tuple[str, ...]) -> None:
    run = WholeRun(tokens, days, 24 * days[0], None, mwh, 0.99, 60.0, 300.0)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(printing.whole_run(run))
    lines = " ".join(console.export_text().split())
    assert all(" ".join(text.split()) in lines for text in texts), lines
