"""The fastest stage with two sets of ranks, on machines where it can be told."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from planner.disaggregation import search
from planner.disaggregation.search import Found, best, sides, starts, with_kept_experts
from planner.time_limit import TimeLimit
from sim.disaggregation import memory
from sim.disaggregation.costs import step_seconds
from sim.disaggregation.simulation import simulated_step
from sim.disaggregation.stage import DisaggregatedStage
from sim.hardware.cluster import Device, Trunk
from sim.hardware.topology import Topology
from sim.workload.workload import Workload
from tests import builders as make
from tests.planner.builders import request

SHAPE = {"experts": 8, "experts_per_token": 2, "ffn_hidden": 192, "mlp": "swiglu"}


def asked(
    new: int = 2, old: int = 2, batch: int = 8, speeds: tuple[float, float] = (4e12, 1e12), **shape: object
) -> tuple[Topology, Workload]:
    """Clusters `new` and `old` whose devices reach `speeds` FLOP/s, one device and one fast NIC a node."""
    nics = (make.nic(bandwidth=1e12),)
    clusters = [
        make.cluster(name, nodes, nics=nics, spec=make.device(f"chip-{name}", speed, 1e12))
        for name, nodes, speed in zip(("new", "old"), (new, old), speeds, strict=True)
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("new", "old"), "infiniband", 1e13, 0.0),))
    whole = request(machines, make.model(2, 192, **(SHAPE | shape)), batch, seq_len=256)
    return whole.topology, whole.workload


def every(topology: Topology, workload: Workload) -> list[DisaggregatedStage]:
    """All stages of the stated space that fit, by brute force over chunks of kept experts."""
    found = []
    for attention, experts in sides(topology, workload):
        for start in starts(topology, workload, attention, experts):
            options = [
                number for number in range(8) if number % start.attention_ranks == 0 == (8 - number) % start.expert_ranks
            ]
            found += [replace(start, kept=kept) for kept in itertools.product(options, repeat=2)]
    return [stage for stage in found if memory.fits(stage)]


def test_each_type_is_tried_for_attention():
    topology, workload = asked(1, 2)
    new, old = (Device("new", 0, 0),), (Device("old", 0, 0), Device("old", 1, 0))
    assert list(sides(topology, workload)) == [(new, old), (old, new)]
    same, _ = asked(speeds=(1e12, 1e12))
    one = replace(same, fleet=make.fleet(*same.fleet.clusters[:1]))
    assert list(sides(one, workload)) == [], "one type of device has nothing to divide"


def test_devices_that_lack_the_precision_are_not_used():
    topology, workload = asked()
    assert list(sides(topology, replace(workload, precision="fp8"))) == []


def test_groups_microbatches_and_recomputation():
    topology, workload = asked(2, 2, batch=8)
    new, old = next(iter(sides(topology, workload)))
    found = {
        (one.groups, one.microbatches, one.microbatch_size, one.rounds, one.recompute)
        for one in starts(topology, workload, new, old)
    }
    assert found == {
        (groups, microbatches, size, 4 // microbatches // size, recompute)
        for groups in (1, 2)
        for microbatches, size in ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1))
        for recompute in ("none", "full")
    }


def test_groups_are_small(monkeypatch):
    monkeypatch.setattr(search, "MOST_RANKS", 3)
    topology, workload = asked(2, 2)
    new, old = next(iter(sides(topology, workload)))
    assert {one.groups for one in starts(topology, workload, new, old)} == {2}


@pytest.mark.parametrize("speeds", [(4e12, 1e12), (1e12, 4e12), (2e12, 1e12)])
def test_it_is_as_fast_as_any_stage_that_spreads_experts_evenly(speeds):
    topology, workload = asked(2, 1, batch=4, speeds=speeds)
    found = best(topology, workload)
    assert found is not None
    assert found.step == simulated_step(found.stage)
    fastest = min(map(step_seconds, every(topology, workload)))
    own = step_seconds(found.stage)
    assert fastest <= own <= 1.02 * fastest, "layers may keep unlike numbers of experts in any order"


def test_slow_experts_move_beside_attention():
    """Expert ranks with a tenth of the speed leave most experts to the attention ranks; equal ones leave fewer."""
    slow, equal = (best(*asked(speeds=speeds)) for speeds in ((1e12, 1e11), (1.001e12, 1e12)))
    assert slow is not None and equal is not None
    assert [str(device) for device in slow.stage.attention] == ["new/node0/dev0", "new/node1/dev0"]
    assert sum(slow.stage.kept) > sum(equal.stage.kept)


def test_kept_experts_are_spread_over_layers():
    topology, workload = asked(2, 2)
    new, old = next(iter(sides(topology, workload)))
    start = DisaggregatedStage(topology, workload, new, old)
    assert [search._keeping(start, chunks).kept for chunks in range(7)] == [
        (0, 0),
        (0, 2),
        (2, 2),
        (2, 4),
        (4, 4),
        (4, 6),
        (6, 6),
    ]


def test_what_is_not_faster_is_not_found():
    topology, workload = asked()
    new, old = next(iter(sides(topology, workload)))
    start = DisaggregatedStage(topology, workload, new, old)
    own = with_kept_experts(start)
    assert own is not None
    assert with_kept_experts(start, Found(start, own.step)) is None
    assert with_kept_experts(start, Found(start, 1.01 * own.step)) == own


def test_nothing_fits_or_no_time_is_left(monkeypatch):
    topology, workload = asked()
    assert best(topology, workload, limit=TimeLimit(0.0)) is None
    monkeypatch.setattr(memory, "expert_rank_bytes", lambda stage: 1e15)
    assert best(topology, workload) is None


def test_models_and_fleets_without_such_a_stage():
    dense = {"experts": 0, "experts_per_token": 0}
    assert best(*asked(**dense)) is None
    topology, workload = asked()
    apart = replace(topology, fleet=replace(topology.fleet, trunks=()))
    assert best(apart, workload) is None, "nothing joins the two clusters"


def test_large_fleets_are_left_out(monkeypatch):
    monkeypatch.setattr(search, "MOST_DEVICES", 3)
    assert best(*asked(2, 1)) is not None
    assert best(*asked(2, 2)) is None


def test_rounds_beyond_the_first_are_extrapolated(monkeypatch):
    """The step of 16 rounds is within a thousandth of that evaluated in full."""
    topology, workload = asked(2, 2, batch=64)
    new, old = next(iter(sides(topology, workload)))
    start = DisaggregatedStage(topology, workload, new, old, 1, 2, 16)
    found = with_kept_experts(start)
    assert found is not None
    assert found.step == pytest.approx(step_seconds(found.stage), rel=1e-3)
