"""How busy the cores are while the lab measures."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from holmes_sim import running
from holmes_sim.lab.load import Load, Sampler, ticks
from sim.engine.engine import simulate
from tests import builders

STAT = "cpu  100 20 30 800 40 5 5 0 7 0\ncpu0 50 10 15 400 20 2 3 0 3 0\n"


def test_ticks_of_all_cores():
    """user 100 + nice 20 + system 30 + irq 5 + softirq 5 are busy; idle 800 and iowait 40 are not; guest time is in user."""
    assert ticks(STAT) == (1000, 160, 0)
    assert ticks(STAT.replace("5 5 0 7", "5 5 50 7")) == (1050, 160, 50)


def test_the_load_is_that_of_the_last_seconds():
    """Idle at first; then all of the time busy or stolen."""
    begun = time.monotonic()

    def read() -> tuple[int, int, int]:
        passed = int(1000 * (time.monotonic() - begun))
        late = max(passed - 400, 0)
        return passed, int(0.75 * late), late - int(0.75 * late)

    with Sampler(read) as sampler:
        time.sleep(0.8)
    late, whole = sampler.over(0.3), sampler.over(10.0)
    assert late.busy == pytest.approx(0.75, abs=0.02)
    assert late.stolen == pytest.approx(0.25, abs=0.02)
    assert 0 < whole.busy < 0.97 * late.busy


def test_the_ranks_have_their_part_of_the_load(monkeypatch: pytest.MonkeyPatch):
    """Two ranks of 3 and 1 CPU seconds in a step of 4 s on two cores used half of them."""
    step = builders.plan(builders.fleet(builders.cluster("a", 1, 2)), dp=2)
    measured = replace(simulate(step), step_s=4.0, steps_s=(4.0,), cpu_s=(3.0, 1.0))
    monkeypatch.setattr(running, "cores", lambda: 2)
    with Sampler(lambda: (100, 60, 0)) as sampler:
        pass
    assert running.with_ranks(sampler, measured).ranks == 0.5
    assert running.with_ranks(sampler, replace(measured, cpu_s=())).ranks is None
    assert Load(0.9, 0.0, 0.5).by_whom == ", 50% with the ranks"
    assert Load(0.9, 0.0).by_whom == ""


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(0.5, 0.1), ""),
        (
            Load(1.0, 0.0),
            "This measurement is not valid: the cores were busy 100% of the time. End other programs, or give a "
            "larger --scale.",
        ),
        (
            Load(0.8, 0.2),
            "This measurement is not valid: the cores were busy 100% of the time (20% by other virtual machines). "
            "End other programs, or give a larger --scale.",
        ),
    ],
)
def test_a_measurement_on_busy_cores_is_not_valid(load: Load, words: str):
    assert load.why_not == words
    assert load.is_valid is (words == "")
