"""Requirements on plans of islands: nodes, devices, rent, cost, days, layouts and targets; and what helps where none is met."""

from __future__ import annotations

import json
from typing import Any

import pytest

import holmes_sim as hs
from holmes_sim import islands, islands_conflicts, printing
from holmes_sim.conflicts import Required
from planner.islands.allowed_sync import parse
from planner.request import Wishes
from sim.errors import Infeasible, OptionError, TooLate
from sim.hardware.topology import Topology
from tests.holmes_sim.test_printing_whatifs import lines_of

LAYOUT = {"tp": 1, "pp": 1, "microbatch_size": 1, "schedule": "1f1b", "zero_stage": 1, "recompute": "none"}
"""Required layouts that are searched in a fraction of a second."""
SYNC = "streaming-diloco<=30,int8"


def where(require: dict[str, Any], **edits: object) -> Topology:
    """Two sites of four devices in two nodes each on a fast network, with prices, behind a thin trunk."""
    facts = {f"clusters.{name}.node.devices.count": 2 for name in ("east", "west")}
    facts |= {f"clusters.{name}.node.devices.price": "2 USD/h" for name in ("east", "west")}
    facts |= {f"clusters.{name}.node.nics[0].bandwidth": "4000 Gbit/s" for name in ("east", "west")}
    named = {"links[0].bandwidth": "100 Mbit/s", "workload.global_batch_size": 64, **facts, **edits}
    return hs.require(hs.edited(hs.load("lab/lab-slow-trunk"), named), LAYOUT | require)


def planned(require: dict[str, Any], sync: str = SYNC, seconds: float = 20.0, **edits: object) -> Any:
    return hs.plan_islands(where(require, **edits), sync=sync, time_limit=seconds)


@pytest.fixture(scope="module")
def free() -> Any:
    """Planned without a budget."""
    return planned({})


def devices(plan: Any) -> list[int]:
    return [len(island.placement) for island in plan.islands]


def test_devices_are_those_of_all_islands(free):
    assert devices(free.plan) == [4, 4]
    found = planned({"devices": {"max": 6}}, "streaming-diloco=30,int8")
    assert sorted(devices(found.plan)) == [2, 4]
    axes = {axis.name: axis.values for axis in found.plan.certificate.space}
    assert "devices at most 6" in axes["required"] and "tp 1" in axes["required"]
    assert " Required: " in " ".join(lines_of(printing.planned_islands(found)))


def test_rent_is_that_of_all_islands():
    dear = {"clusters.east.node.devices.price": "4 USD/h"}
    found = planned({"rent": {"max": "16 USD/h"}}, "streaming-diloco=30,int8", **dear).plan
    nodes = {(device.cluster, device.node) for island in found.islands for device in island.placement}
    assert sorted(nodes) == [("east", 0), ("west", 0), ("west", 1)], "west is cheaper"


def test_nodes_that_may_not_be_used():
    found = planned({"nodes": {"exclude": ["west/node1"]}, "memory_headroom": 0.5}).plan
    assert devices(found) == [4, 2]
    assert {island.topology.memory_headroom for island in found.islands} == {0.5}
    alone = planned({"nodes": {"only": ["east"]}})
    assert alone.answer.refused.startswith("no link joins two clusters, and the network between nodes is fast enough ")
    assert alone.answer.best.sync == "exact"


def test_a_plan_that_costs_too_much_is_left_out(free):
    """One site costs half as much as two."""
    cost = 16 / 3600 / free.answer.best.speed * 1e6
    found = planned({"cost": {"max": f"{0.99 * cost} USD/Mtoken"}})
    assert found.answer.best.sync == "exact"
    assert found.answer.refused.startswith("streaming-diloco ") and "USD/Mtoken, more than" in found.answer.refused


def test_days_count_effective_tokens(free):
    best, goodput = free.answer.best, 0.9
    days = 1e12 / best.speed / goodput / 86400
    assert best.speed < best.tokens_per_s
    with pytest.raises(TooLate) as refused:
        planned({"days": {"max": 0.99 * days, "tokens": "1T", "goodput": goodput}}, seconds=1.0)
    lines = str(refused.value).splitlines()
    assert "effective tokens/s (streaming-diloco 30, int8)" in lines[0]
    assert "; remedy: at least " in lines[1]
    assert lines[2].startswith("required: ")
    assert not any(line.startswith("without days") for line in lines)


def test_what_is_without_each_requirement(free, monkeypatch):
    """Of a search that finds a plan where megatron need not launch it."""

    def search(request: Any, allowed: Any, fault: Any) -> Any:
        if text := fault(free.plan):
            raise Infeasible(text)
        return free.answer

    monkeypatch.setattr(islands_conflicts, "plan_with_sync", search)
    here = where({"targets": ["megatron"]})
    required = Required(here, here.workload, Wishes(pp=1))
    error = islands_conflicts.explained(required, parse(SYNC), Infeasible("none"), 60.0, lambda text: None)
    lines = str(error).splitlines()
    assert lines[0] == "none"
    assert lines[1].startswith("required: tp 1; pp 1; ") and lines[1].endswith("; targets megatron; --pp 1")
    assert lines[2] == "without tp 1: megatron launches no islands; torchrun, torchtitan, prime do"
    row = free.answer.best
    assert (
        f"without targets megatron: {row.tokens_per_s:,.0f} tokens/s, {row.effective:,.0f} effective, with sync {row.short}"
        in lines
    )
    late = islands_conflicts.explained(required, parse(SYNC), Infeasible("none"), 0.0, lambda text: None)
    assert str(late).splitlines()[2] == "without tp 1: not planned: no time left"


def test_targets_that_are_required_must_launch_islands():
    here = where({"targets": ["torchrun", "megatron"]})
    with pytest.raises(Infeasible, match="megatron launches no islands; torchrun, torchtitan, prime do"):
        islands.search(here, None, "streaming-diloco=30,int8", None, 5.0)


def test_too_few_devices_are_exit_code_3(run, tmp_path):
    file = tmp_path / "need.yaml"
    file.write_text(json.dumps({"format": "holmes-sim/require/1", "devices": {"max": 1}} | LAYOUT))
    words = ("plan", "lab/lab-slow-trunk", "--sync", "diloco=30", "--require", file, "--time-limit", 3)
    seen = run(*words)
    assert (seen.code, seen.out) == (3, "")
    assert seen.err.startswith("error: no plan with --sync diloco=30: ")
    assert "error: without devices at most 1: " in seen.err


def test_a_sweep_of_trunks_shows_all_plans():
    for key, value in (("cost", {"max": "1 USD/Mtoken"}), ("days", {"max": 1, "tokens": "1T"})):
        with pytest.raises(
            OptionError, match=r"^require\.cost and require\.days choose a plan, and a sweep of trunks shows all"
        ):
            hs.trunk_bandwidths(where({key: value}))
