"""Plans run in the lab: what is predicted is what the links allow, and the ranks' messages go over the shaped ones."""

from __future__ import annotations

import dataclasses
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holmes_sim import commands, lab, running
from holmes_sim.cli import application
from holmes_sim.lab.traffic import traffic_of
from holmes_sim.torch_backend import host_memory
from holmes_sim.torch_backend.run_options import RunOptions
from planner.api import row
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim.errors import HolmesError
from sim.formats import pipelinesfile, planfile
from sim.plan.plan import Plan
from tests.holmes_sim.test_lab import refusal
from tests.more import after, more
from tests.sim.formats.test_pipelinesfile import BY_HAND

REFUSED = refusal() or ("" if find_spec("torch") else "torch is not installed")
SCALE = 8.0
"""Links are slower and compute takes longer by this factor. Only too fast would be wrong, so it may be small."""
PERMITTED = pytest.mark.skipif(bool(REFUSED), reason=f"THE LAB IS NOT TESTED HERE: {REFUSED}")


def plan_of(name: str, strategy: str, batch: int = 32, **pins: int) -> Plan:
    topology = commands.load(f"lab/{name}")
    workload = dataclasses.replace(commands.workload_of(topology), global_batch_size=batch)
    question = Request(topology, workload, Wishes(tp=1, **pins))
    found = row(question, strategy, PlanningContext(question, lambda text: None)).plan
    assert found is not None
    return found


@more
@PERMITTED
@pytest.mark.parametrize(
    ("name", "batch", "pins"),
    after(
        1,
        [
            ("lab-hybrid-nics", 32, {"dp": 4, "microbatch_size": 8}),  # one ring over InfiniBand, RoCE and the Ethernet between
            ("lab-slow-trunk", 16, {"pp": 4, "microbatch_size": 4}),  # messages over the trunk
        ],
        last=1,
    ),
)
def test_no_step_is_faster_than_its_links(name: str, batch: int, pins: dict[str, int]) -> None:
    """What waits the model's seconds and sends the program's bytes over links of the model's rates cannot be much faster.

    A group that went round the shaped links would be: a quarter of the step is waiting for them."""
    plan = plan_of(name, "megatron", batch, **pins)
    compared = running.run_in_lab(plan, RunOptions(steps=1, compute="paced", scale=SCALE)).compared
    assert compared.step.simulated is not None
    assert compared.step.measured is not None
    assert compared.measured.scale == SCALE
    assert compared.step.measured >= 0.97 * compared.step.simulated
    exposed = next(line for line in compared.seconds if line.name == "exposed")
    assert exposed.simulated is not None
    assert exposed.simulated >= 0.25 * compared.step.simulated
    assert len(compared.measured.alike) == plan.config.world_size


@more
@PERMITTED
def test_the_command_says_what_was_predicted_and_measured(tmp_path: Path) -> None:
    plan = plan_of("lab-slow-dp", "certified", pp=1, dp=2, microbatch_size=8)
    (tmp_path / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
    timeline = tmp_path / "timeline.json"
    arguments = ["lab", str(tmp_path / "plan.json"), "--steps", "1", "--scale", str(SCALE), "-o", str(timeline), "--json"]
    result = CliRunner().invoke(application(), arguments)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert set(told) == {
        "format", "predicted", "measured", "error", "scale", "compute", "computed_on", "seconds", "memory", "notes", "cores"
    }  # fmt: skip
    assert (told["scale"], told["compute"]) == (SCALE, "paced")
    assert told["error"] == pytest.approx(told["predicted"]["step_s"] / told["measured"]["step_s"] - 1)
    assert json.loads(timeline.read_text(encoding="utf-8"))["metadata"]["origin"] == "measured"


@more
@PERMITTED
def test_a_rank_that_fails_ends_the_lab() -> None:
    plan = plan_of("lab-slow-dp", "certified", pp=1, dp=2, microbatch_size=8)
    with pytest.raises(HolmesError, match="nosuch"):
        running.run_in_lab(plan, RunOptions(steps=1, compute="paced", scale=SCALE, output="/nosuch/timeline.json"))


@more
@PERMITTED
def test_unlike_pipelines_are_not_faster_than_their_links(tmp_path: Path) -> None:
    """Two stages beside one of two ranks: each slice of the gradients goes over Ethernet between two hosts."""
    (tmp_path / "plan.yaml").write_text(BY_HAND, encoding="utf-8")
    chart = tmp_path / "lab.png"
    arguments = ["lab", str(tmp_path / "plan.yaml"), "--steps", "1", "--scale", str(SCALE), "--chart", str(chart), "--json"]
    result = CliRunner().invoke(application(), arguments)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["measured"]["step_s"] >= 0.97 * told["predicted"]["step_s"]
    assert chart.stat().st_size > 0


def test_the_links_of_unlike_pipelines() -> None:
    """Stages on one host send inside it; a rank of each host sums each slice of a section, over Ethernet."""
    plan = pipelinesfile.from_text("plan.yaml", BY_HAND)
    groups = {(group.kind, group.ranks, group.nic) for group in traffic_of(plan).groups}
    sums = {("dp", (stage, rank), "ethernet") for stage in (0, 1) for rank in (2, 3)}
    assert groups == {("pp", (0, 1), "intra_node"), ("tp", (2, 3), "intra_node")} | sums
    wired = lab.as_wired(plan, has_latency=False)
    nics = [nic for cluster in wired.fleet.clusters for nic in cluster.node.nics if nic.kind == "ethernet"]
    assert {nic.spec.latency for nic in nics} == {0.0}
    assert running.slowed(plan, 10.0).fleet.trunks[0].bandwidth == plan.fleet.trunks[0].bandwidth / 10.0


def test_slow_links_are_slow_everywhere() -> None:
    fleet = commands.load("lab/lab-slow-trunk").fleet
    plan = plan_of("lab-slow-trunk", "megatron", pp=4)
    slow = running.slowed(plan, 10.0).fleet
    for cluster, slower_one in zip(fleet.clusters, slow.clusters, strict=True):
        for nic, slower in zip(cluster.node.nics, slower_one.node.nics, strict=True):
            assert slower.bandwidth == nic.bandwidth / 10.0
            assert slower.spec.latency == nic.spec.latency * 10.0
    assert [t.bandwidth for t in slow.trunks] == [t.bandwidth / 10.0 for t in fleet.trunks]
    assert [t.latency for t in slow.trunks] == [t.latency * 10.0 for t in fleet.trunks]


def test_more_nics_than_a_bridge_has_ports_are_refused() -> None:
    topology = commands.load("dgx-a100-128")
    question = Request(topology, commands.workload_of(topology), Wishes())
    found = row(question, "megatron", PlanningContext(question, lambda text: None)).plan
    assert found is not None
    with pytest.raises(HolmesError, match="the plan uses 1024 NICs of one fabric; a lab has at most 1023"):
        running.run_in_lab(found, RunOptions(compute="paced", scale=0.0))


def test_ranks_that_the_memory_cannot_hold_are_refused_before_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks of some megabytes each on a machine with one megabyte, in paced and in real compute."""
    plan = pipelinesfile.from_text("plan.yaml", BY_HAND)
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 1e6)
    for compute in ("paced", "real"):
        with pytest.raises(HolmesError, match=r"of 4 ranks take 0\.\d+ GiB at least, and this machine has 0\.000931 GiB"):
            running.run_in_lab(plan, RunOptions(compute=compute, scale=SCALE))


def test_a_scale_of_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(BY_HAND, encoding="utf-8")
    result = CliRunner().invoke(application(), ["lab", str(tmp_path / "plan.yaml"), "--scale", "0"])
    assert result.exit_code == 2
    assert "--scale" in result.output
