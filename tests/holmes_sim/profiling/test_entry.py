"""The files of a profile are literal, and `plan` and `simulate` take them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from holmes_sim.profiling import entry
from holmes_sim.profiling.links import Link, Point
from holmes_sim.profiling.links import LinkMeasurement as Read
from holmes_sim.profiling.results import DeviceProfile, LinkProfile, ProfileResult
from holmes_sim.profiling.timings import Timings
from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.formats import planfile, topology
from sim.formats.catalog_facts import DeviceFacts, LinkFacts
from sim.formats.documents import check, parse
from sim.formats.topology_facts import NodeFacts
from sim.hardware.cluster import Device as Place
from sim.hardware.device_spec import AttentionRates, GemmCurve
from sim.kernels import compute
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.workload.kernels import Attention
from sim.workload.model import Model

pytest.importorskip("torch")

from holmes_sim.profiling.ceilings import Ceilings
from holmes_sim.profiling.layers import LayerTimings
from holmes_sim.profiling.machine import Machine

MODEL = Model("tiny", 3, 64, 4, 4, 256, 512, learned_positions=32)
HERE = Machine("cpu", "Some CPU", "cpu", 2, 8 * 2**30)
TOP = Ceilings(
    "fp32", 1e11, 2e10, 1e10, GemmCurve(2e-6, 0.5, 0.4, 0.0, (128, 256)), 0.125, AttentionRates(0.3, 0.25, 512.25, 1024.0),
    Attention("attention", 1, 8, 8, 64, 1024), 0.6, (), 0.015,
)  # fmt: skip
LINK = LinkProfile(
    "mine-link",
    Link(2e-6, 4e-6, {"all_reduce": 1e10, "all_gather": 8e9}, 0.04, True),
    (Read("all_reduce.txt", (Point("all_reduce", 2, 1024.0, 1e-5),), 1, ("Some CPU",)),),
)


def pair(forward: float, backward: float) -> tuple[Timings, Timings]:
    return Timings((forward,)), Timings((backward,))


def row(tp: int, size: int, by: float) -> LayerTimings:
    update = Timings((0.5,))
    return LayerTimings(
        MODEL, 32, tp, size, pair(by, 2 * by), pair(by / 8, by / 4), pair(by / 2, by), update, MODEL.parameters // 2
    )


ROWS = row(1, 1, 0.25), row(1, 2, 0.5), row(2, 1, 0.125)
DEVICE = DeviceProfile("mine", HERE, "torch 2.13.0+cpu, 2 threads", "2026-11-22", TOP, ROWS)
TOLD = "measured 2026-11-22: Some CPU, torch 2.13.0+cpu, 2 threads"


def test_the_device_is_an_entry_of_the_catalogue() -> None:
    facts = entry.device_facts(DEVICE)
    sources = facts.pop("sources")
    assert facts == {
        "name": "mine",
        "vendor": "cpu",
        "compute_units": 2,
        "peak": {"fp32": "100 GFLOP/s"},
        "memory": "8 GiB",
        "memory_bandwidth": "20 GB/s",
        "host_bandwidth": "10 GB/s",
        "gemm": {
            "launch": "2 us",
            "compute_efficiency": 0.5,
            "memory_efficiency": 0.4,
            "wave_exponent": 0.0,
            "tile": [128, 256],
        },
        "attention": {"forward_efficiency": 0.3, "backward_efficiency": 0.25, "half_length": 512, "backward_half_length": 1024},
        "elementwise_efficiency": 0.6,
    }
    assert set(sources) == set(facts) - {"name", "vendor"}
    assert sources["attention"] == f"{TOLD}; causal, 8 heads of 64, 1024 tokens and fewer"
    assert sources["gemm"] == f"{TOLD}; fit of 0 products, mean error 12%"
    text = entry.files(ProfileResult(DEVICE, None))["mine.yaml"]
    assert check(parse("mine.yaml", text), DeviceFacts).isolated().peak == (("fp32", 1e11),)


def test_a_row_of_the_profile() -> None:
    written = entry.profile_facts(DEVICE)
    assert {key: written[key] for key in ("format", "precision", "collectives", "in_place")} == {
        "format": "holmes-sim/profile/1", "precision": "fp32", "collectives": "apart", "in_place": ["mine"]
    }  # fmt: skip
    assert written["source"]["date"] == "2026-11-22"
    assert written["layer_profiles"][2] == {
        "model": "tiny", "gpu": "mine", "tp": 2, "micro_batch": 1, "layer_forward_s": 0.125, "layer_backward_s": 0.25,
        "embedding_forward_s": 0.015625, "embedding_backward_s": 0.03125, "head_forward_s": 0.0625, "head_backward_s": 0.125,
        "layer_update_s": 0.5, "spread": 0.0,
    }  # fmt: skip


def test_a_device_of_the_catalogue_is_not_listed_in_place() -> None:
    named = DeviceProfile("l40s", HERE, "torch", "2026-11-22", TOP, (row(1, 1, 0.25),))
    assert "in_place" not in entry.profile_facts(named)


def written(folder: Path, joined: LinkProfile | None = None) -> topology.Topology:
    for name, text in entry.files(ProfileResult(DEVICE, joined)).items():
        (folder / name).write_text(text, encoding="utf-8")
    return topology.load(folder / "mine-topology.yaml")


def plan_of(found: topology.Topology, config: ParallelConfig) -> Plan:
    assert found.workload is not None
    places = tuple(Place("here", 0, index) for index in range(config.world_size))
    groups = groups_of(found.fleet, config, places)
    return Plan(found, found.workload, config, (Stage(0, MODEL.layers),), places, groups, MadeBy("test", ""))


def test_one_device_takes_the_seconds_of_its_rows(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path), ParallelConfig(microbatch_size=2, num_microbatches=(4,)))
    microbatch = 3 * 1.5 + 0.0625 + 0.125 + 0.25 + 0.5
    update = 0.5 * 2 * sum((MODEL.layers * MODEL.layer_parameters, MODEL.embedding_parameters, 2 * MODEL.hidden))
    assert simulate(plan).step_s == pytest.approx(4 * microbatch + update / MODEL.parameters, rel=1e-4)


def test_the_rows_come_back_from_plan_json(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, LINK), ParallelConfig(tp=2, num_microbatches=(8,), sequence_parallel=True))
    (tmp_path / "plan.json").write_text(planfile.to_json(plan))
    assert planfile.load(tmp_path / "plan.json").fleet == plan.fleet


def test_collectives_that_are_apart_are_added(tmp_path: Path) -> None:
    found = written(tmp_path, LINK)
    plan = plan_of(found, ParallelConfig(tp=2, num_microbatches=(8,), sequence_parallel=True))
    device = plan.fleet.spec(plan.placement[0])
    assert compute.layer_seconds(device, plan.workload, plan.config) == (0.125, 0.25)
    assert not compute.includes_collectives(device, plan.workload, plan.config)
    inside = (tmp_path / "mine-profile.yaml").read_text().replace("collectives: apart", "collectives: inside")
    (tmp_path / "mine-profile.yaml").write_text(inside)
    other = plan_of(topology.load(tmp_path / "mine-topology.yaml"), plan.config)
    kinds = [{span.group for span in simulate(one).spans if span.kind == "collective"} for one in (plan, other)]
    assert ["tp" in kind for kind in kinds] == [True, False]
    assert plan_costs.step_seconds(plan) > plan_costs.step_seconds(other)


def test_a_link_stands_in_place_of_an_interconnect() -> None:
    facts = entry.link_facts(LINK)
    assert (facts["bandwidth"], facts["latency"], facts["overhead"]) == ("10 GB/s", "2 us", "4 us")
    assert facts["efficiency"] == {
        "all_reduce": 1.0, "all_gather": 0.8, "reduce_scatter": 0.8, "all_to_all": 0.8, "send_recv": 0.8
    }  # fmt: skip
    assert "all_to_all, reduce_scatter, send_recv guess" in facts["sources"]["efficiency"]
    read = check(parse("link.yaml", entry.files(ProfileResult(None, LINK))["mine-link.yaml"]), LinkFacts)
    assert read.isolated().bandwidth == 1e10


def test_a_link_between_hosts_is_written_as_a_nic() -> None:
    across = LinkProfile(LINK.name, LINK.link, (Read("x", LINK.points, 2, ("GPU",)),))
    facts = entry.nic_facts(across)
    assert facts["nics"] == [{"type": "which it is", "bandwidth": "80 Gbit/s", "efficiency": 1.0}]
    assert facts["measured"]["rates"] == {"all_reduce": "10 GB/s", "all_gather": "8 GB/s"}
    assert NodeFacts.model_validate({"devices": {"type": "l40s", "count": 1}, "intra_node": "pcie4", "nics": facts["nics"]})
