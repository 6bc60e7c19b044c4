"""A month with failures, as people ask for it: whole steps between checkpoints, shares that add up, the command, a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holmes_sim as hs
from holmes_sim import charts, commands, files
from holmes_sim.month import Month
from planner.request import Wishes
from sim.errors import HolmesError
from sim.formats import planfile
from sim.plan.plan import Plan

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def hybrid() -> Plan:
    wishes = Wishes(tp=2, pp=2, dp=8, microbatch_size=4, recompute="none", schedule="1f1b", cp=1)
    return commands.plan(commands.load("holmes-hybrid-4"), wishes=wishes, target="none").plan


def often(plan: Plan, **options: Any) -> Month:
    """32 devices of which one fails in 10 hours: a failure every 1,125 s."""
    return hs.goodput(plan, checkpoint="10s", restart="60s", fail=["device:10h"], days=2, seeds=range(40), **options)


def test_the_interval_is_whole_steps_near_dalys(hybrid: Plan) -> None:
    found = often(hybrid)
    assert found.run.between == pytest.approx(36000 / 32)
    assert found.run.interval % found.step_s == pytest.approx(0, abs=1e-6)
    assert abs(found.run.interval - found.daly_s) <= found.step_s / 2
    assert often(hybrid, interval="1s").run.interval == found.step_s


def test_the_month_agrees_with_the_closed_form(hybrid: Plan) -> None:
    """Within four standard errors of 40 runs; the work under way at the end is less than one interval of two days."""
    found = often(hybrid)
    spread = (sum((one - found.goodput) ** 2 for one in found.goodputs) / 39) ** 0.5
    assert abs(found.goodput - found.run.goodput) < 4 * spread / 40**0.5 + found.run.interval / (2 * 86400)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    expected = 2 * 86400 / found.run.between
    assert abs(found.failures["device"] - expected) < 4 * (expected / 40) ** 0.5
    assert found.tokens == pytest.approx(found.goodput * 2 * 86400 / found.step_s * 768 * 2048)


def test_the_command_prints_one_document(run: Make, hybrid: Plan, tmp_path: Path) -> None:
    plan, picture = tmp_path / "plan.json", tmp_path / "goodput.svg"
    files.write(plan, planfile.to_json(hybrid))
    command = ("goodput", plan, "--checkpoint", "10s", "--restart", "60s", "--fail", "device:10h", "--days", 2, "--seeds", 40)
    seen = run(*command, "--json", "--chart", picture)
    assert seen.code == 0
    assert json.loads(seen.out) == json.loads(json.dumps(often(hybrid).facts()))
    assert picture.stat().st_size > 0
    assert "MTBF 10 h each); one every 18.8 min." in run(*command).out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "60"}, "--checkpoint '60' is not a time with a unit; write for example 60s"),
        (
            {"checkpoint": "0s"},
            "--checkpoint 0s: a checkpoint that takes no time would be written after every step; give a time such as 10s",
        ),
        ({"fail": ["disk:5h"]}, "--fail 'disk:5h' is not device, node or link with its MTBF; write for example device:50000h"),
        ({"fail": ["node:5h", "node:9h"]}, "--fail 'node:9h': the MTBF of a node is given twice; give each kind once"),
        (
            {"fail": ["device:8s"], "restart": "10min"},
            "--fail: no step of 30 days is useful: there is a failure every 250 ms, a restart takes 10 min, "
            "and a step with a checkpoint 18.96 s",
        ),
    ],
)
def test_what_cannot_be_reckoned_is_one_line(hybrid: Plan, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HolmesError) as error:
        hs.goodput(hybrid, **({"checkpoint": "10s", "restart": "60s"} | options))
    assert str(error.value) == message


def test_the_picture_has_its_highest_point_at_dalys_interval(hybrid: Plan) -> None:
    found = often(hybrid)
    curve = charts.goodput(found).axes[0].lines[0]
    x, y = curve.get_xdata(), curve.get_ydata()
    best = x[y.argmax()] * 60
    assert best == pytest.approx(found.daly_s, rel=0.05)
