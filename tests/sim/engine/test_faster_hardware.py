"""Faster NICs and devices never lengthen a step in which different flows never share a link."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.engine import simulate
from sim.hardware.cluster import Fleet
from sim.plan.plan import Plan
from tests import builders
from tests.builders import wire


def with_fleet(plan: Plan, fleet: Fleet) -> Plan:
    """The same plan on other machines."""
    return replace(plan, topology=replace(plan.topology, fleet=fleet))


def with_devices(plan: Plan, faster: float) -> Plan:
    """The same plan on devices that are `faster` times as fast in every respect but the fixed time of a kernel."""
    clusters = []
    for cluster in plan.fleet.clusters:
        device = cluster.node.device
        spec = replace(
            device,
            peak=tuple((name, rate * faster) for name, rate in device.peak),
            memory_bandwidth=device.memory_bandwidth * faster,
        )
        clusters.append(replace(cluster, node=replace(cluster.node, device=spec)))
    return with_fleet(plan, replace(plan.fleet, clusters=tuple(clusters)))


def with_nics(plan: Plan, faster: float) -> Plan:
    """The same plan with NICs of `faster` times the bandwidth."""
    clusters = []
    for cluster in plan.fleet.clusters:
        nics = tuple(replace(nic, bandwidth=nic.bandwidth * faster) for nic in cluster.node.nics)
        clusters.append(replace(cluster, node=replace(cluster.node, nics=nics)))
    return with_fleet(plan, replace(plan.fleet, clusters=tuple(clusters)))


@st.composite
def calm_plans(draw: st.DrawFn) -> Plan:
    """Plans in which different flows never share a link: one GPipe pipeline, or data parallelism across nodes alone.

    In other plans a faster NIC may let two messages overlap that did not overlap before, and delay the more urgent one: fair
    sharing has the anomalies of list scheduling (Graham, SIAM J. Appl. Math. 1969), so the law does not hold there.
    """
    tp = draw(st.sampled_from([1, 2, 4]))
    slow = {"latency": draw(st.sampled_from([0.0, 1e-5])), "overhead": draw(st.sampled_from([0.0, 2e-5]))}
    card = builders.nic(bandwidth=draw(st.sampled_from([1e7, 1e9, 1e11])), count=draw(st.integers(1, tp)), **slow)
    machines = builders.fleet(builders.cluster(nodes=8, devices=tp, nics=(card,), intra_node=wire(**slow)))
    pipeline = draw(st.booleans())
    degrees = {"pp": draw(st.integers(1, 8))} if pipeline else {"dp": draw(st.integers(1, 8))}
    layers = tuple(draw(st.lists(st.integers(1, 4), min_size=degrees.get("pp", 1), max_size=degrees.get("pp", 1))))
    return builders.plan(
        machines, tp=tp, **degrees, layers=layers, microbatches=draw(st.integers(1, 6)), schedule="gpipe",
        shape={"hidden": draw(st.sampled_from([96, 3072]))}, recompute=draw(st.sampled_from(["none", "full"])),
        zero_stage=draw(st.integers(0, 3)), sequence_parallel=tp > 1 and draw(st.booleans()),
        overlap_grad_reduce=draw(st.booleans()), overlap_param_gather=draw(st.booleans()),
    )  # fmt: skip


@given(data=st.data())
def test_nics_of_twice_the_bandwidth_never_lengthen_a_step(data: st.DataObject) -> None:
    plan = data.draw(calm_plans())
    assert simulate(with_nics(plan, 2.0)).step_s <= simulate(plan).step_s * (1 + 1e-9)


@given(data=st.data())
def test_devices_of_twice_the_speed_never_lengthen_a_step(data: st.DataObject) -> None:
    plan = data.draw(calm_plans())
    assert simulate(with_devices(plan, 2.0)).step_s <= simulate(plan).step_s * (1 + 1e-9)
