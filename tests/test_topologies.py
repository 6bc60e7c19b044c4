"""Shipped topologies are planned and simulated, and what it promises is what its plan file gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import commands
from holmes_sim.results import Planned
from planner.placement.simulation import fits, step
from planner.request import Wishes
from sim.formats import planfile
from tests import clocks

TIME_LIMIT = 0.5
"""Seconds of the counted clock, that is 50 looks at it: enough for a plan that no baseline beats."""
FREE = ("holmes-hybrid-4", "mixed-h100-a100-v100")
"""Planned with nothing pinned, as are those of other planners; the rest with few shapes, so that all take seconds."""
PINNED = {
    "hethub-768": Wishes(tp=8, dp=24, microbatch_size=2, recompute="none"),
    "dgx-a100-128": Wishes(tp=8, dp=32, microbatch_size=2, recompute="none"),
    "holmes-39b-4": Wishes(tp=8, recompute="none"),
    "two-sites-trunk": Wishes(tp=2, microbatch_size=2, recompute="none"),
}
"""The layouts that are planned; where none is given that of Holmes, Table 1: tp 1, microbatches of 4."""
LARGE = ("hethub-768", "dgx-a100-128")
"""Planned and simulated with an eighth of their batch."""
PEERS = ("peers/dtfm-0-datacenter", "peers/galvatron-8", "peers/sailor-two-32")
"""The inputs of other planners that are planned here; all of them are read in tests/sim/formats/test_topology.py."""
OURS = tuple(name for name in commands.shipped_topologies() if "/" not in name)
BETWEEN = tuple(name for name in OURS if name.startswith("holmes-") and name.endswith("-6"))
"""Not planned: those of four and eight nodes of the same kinds are."""
HOLMES = ("holmes-39b-4", *(name for name in commands.shipped_topologies() if name.startswith("holmes-hybrid-")))


def planned(name: str) -> Planned:
    topology, wishes = commands.load(name), Wishes()
    if name not in FREE + PEERS:
        wishes = PINNED.get(name, Wishes(tp=1, microbatch_size=4, recompute="none"))
    workload = topology.workload
    assert workload is not None
    if name in LARGE:
        workload = replace(workload, global_batch_size=workload.global_batch_size // 8)
    return commands.plan(replace(topology, workload=workload), wishes=wishes, time_limit=TIME_LIMIT)


@pytest.mark.parametrize("name", [*(name for name in OURS if name not in BETWEEN), *PEERS])
def test_a_shipped_topology(name, monkeypatch):
    clocks.count_looks(monkeypatch)
    answer = planned(name)
    plan = answer.plan
    read = planfile.from_text("plan.json", planfile.to_json(plan))
    assert read == plan, "the file holds the whole plan"
    assert planfile.to_json(read) == planfile.to_json(plan)
    assert commands.simulate(read).prediction == plan.prediction, "the plan holds the prediction that a simulation gives"
    assert fits(plan)
    assert all(
        peak <= plan.fleet.spec(device).memory
        for pp_rank, peak in enumerate(plan.prediction.peak_memory_bytes)
        for device in [plan.placement[plan.config.rank(0, 0, pp_rank)]]
    )
    assert 0 < plan.prediction.upper_bound_fraction <= 1
    assert plan.made_by.strategy == "certified"
    certificate = plan.certificate
    assert 0 <= certificate.lower_bound_s <= certificate.objective_s == plan.prediction.step_s
    assert certificate.gap == pytest.approx(1 - certificate.lower_bound_s / certificate.objective_s)
    assert {row.name for row in answer.baselines} == {"megatron", "holmes"}
    for row in answer.baselines:
        if row.plan is None:
            assert row.reason
        else:
            assert step(row.plan) >= step(plan) * (1 - 1e-12), f"{row.name} is faster"
    if name in HOLMES:
        only_the_pipeline_crosses_clusters(answer)


def only_the_pipeline_crosses_clusters(answer: Planned) -> None:
    """Holmes' automatic NIC selection: RDMA for every data-parallel group, the slow link for the pipeline alone."""
    plan = answer.plan
    for group in plan.groups:
        clusters = {plan.placement[rank].cluster for rank in group.ranks}
        if group.kind == "dp":
            assert group.nic in ("infiniband", "roce", "intra_node")
        if len(clusters) > 1:
            assert (group.kind, group.nic, group.transport) == ("pp", "ethernet", "tcp")


def test_the_catalogue_of_topologies_is_not_empty():
    assert len(OURS) >= 10
    assert {"holmes-hybrid-4", "holmes-39b-4", "hethub-768", "two-sites-trunk"} <= set(commands.shipped_topologies())


def test_the_inputs_of_other_planners_are_shipped_under_peers():
    """DT-FM's worldwide case by its name: eight cities, a link for each pair, the rate of a pair for each of their 8 peers."""
    assert set(PEERS) <= set(commands.shipped_topologies())
    fleet = commands.load("peers/dtfm-4-worldwide").fleet
    assert [(c.name, c.nodes * c.node.count) for c in fleet.clusters][:3] == [("oregon", 8), ("virginia", 8), ("ohio", 8)]
    assert len(fleet.clusters) == 8 and len(fleet.trunks) == 28
    [trunk] = [trunk for trunk in fleet.trunks if set(trunk.between) == {"tokyo", "london"}]
    assert trunk.bandwidth == pytest.approx(8 * 0.366e9 / 8) and trunk.latency == 0.21


def test_a_peers_topology_may_bring_its_profile():
    fleet = commands.load("peers/sailor-three-128").fleet
    assert {c.node.device.name: c.nodes * c.node.count for c in fleet.clusters} == {
        "a100-sxm4-40gb": 32, "gh200-96gb": 32, "v100-sxm2-16gb": 64,
    }  # fmt: skip
    assert all(c.node.device.profile is not None for c in fleet.clusters)
