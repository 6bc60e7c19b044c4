"""Warnings about a plan that other tests do not see: TCP between clusters, sockets inside one, experts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim.launching import environment
from holmes_sim.warnings import EXPERTS, plan_warnings
from sim.hardware.cluster import Trunk
from sim.kernels import offload
from tests import builders


def across(**facts: float):
    """A pipeline over two clusters of one device, 5 ms apart."""
    nic = builders.nic("ethernet", 12.5e9)
    trunk = Trunk(**({"between": ("a", "b"), "kind": "ethernet", "bandwidth": 12.5e9, "latency": 5e-3} | facts))
    return builders.plan(builders.fleet(*(builders.cluster(name, nics=(nic,)) for name in "ab"), trunks=(trunk,)), pp=2)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (
            {},
            "TCP between a and b is assumed to fill the link; untuned, one connection carries 3.355 Gbit/s at a latency "
            "of 5 ms (window: 4 MiB at the link plans with that).",
        ),
        (
            {"window": 4e6, "connections": 16},
            "TCP between a and b: at most 51.2 Gbit/s for each rank, by the window, loss and connections of the link.",
        ),
        ({"latency": 5e-5}, None),
        ({"bandwidth": 0.41e9}, None),  # less than the 0.419 GB/s of an untuned connection
    ],
)
def test_what_is_assumed_of_tcp(facts, text):
    found = [one.text for one in plan_warnings(across(**facts)) if one.text.startswith("TCP between")]
    assert found == ([] if text is None else [text])


def test_exports_set_the_connections_and_tell_the_windows():
    tuned = across(window=4 * 2**20, connections=16)
    assert environment.sockets(tuned) == {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}
    assert environment.sockets(across()) == {}
    assert any(line.startswith("TCP between a and b has windows of 4 MiB: ") for line in environment.assumed(tuned))
    assert any(line.startswith("TCP between a and b has windows of 119.2 MiB: ") for line in environment.assumed(across()))


def test_groups_on_sockets_and_experts():
    sockets = builders.plan(builders.fleet(builders.cluster(nodes=2, nics=(builders.nic("ethernet", 1e9),))), dp=2)
    texts = [one.text for one in plan_warnings(sockets)]
    assert any(text.startswith("TCP sockets, and copies by the host, in 1 dp group on ") for text in texts)
    assert EXPERTS not in texts
    workload = sockets.workload
    experts = replace(sockets, workload=replace(workload, model=replace(workload.model, experts=2, experts_per_token=1)))
    assert EXPERTS in [one.text for one in plan_warnings(experts)]


def offloaded(**facts):
    """A plan on one host, with optimizer state in its memory, of a small model."""
    node = replace(builders.cluster().node, **facts)
    one = replace(builders.cluster(), node=node)
    return builders.plan(builders.fleet(one), offload=("optimizer",))


THREADS = (
    "The optimizer on the hosts is predicted with all their CPUs at work. Published updates took three to six times as "
    "long where ranks had one thread or shared cores; exported launches set OMP_NUM_THREADS (nproc / ranks)."
)


def of_hosts(plan):
    return [one.text for one in plan_warnings(plan) if "Host memory" in one.text or "CPUs" in one.text]


def test_what_is_unknown_of_the_hosts_of_offloaded_state_is_told():
    state = offload.fullest_hosts(offloaded())["c"]
    takes = f"Host memory of c: optimizer state takes {state / 2**30:.4g} GiB on its fullest host"
    assert of_hosts(offloaded()) == [
        f"{takes}, and is not checked: the topology does not give clusters.c.node.host_memory.",
        "The optimizer on the CPUs of c is assumed to have 25.6 GB/s of memory bandwidth for each device, a guess; give "
        "clusters.c.node.host_memory_bandwidth.",
        THREADS,
    ]
    known = replace(builders.device(), host_memory_bandwidth=1e10)
    assert of_hosts(offloaded(device=known, host_memory=2 * state)) == [THREADS]
    assert of_hosts(offloaded(device=known, host_memory=state / 0.95)) == [
        f"{takes}, of {state / 0.95 / 2**30:.4g} GiB (95.0%).",
        THREADS,
    ]
    assert of_hosts(builders.plan(builders.fleet(builders.cluster()))) == []


def test_sequences_longer_than_the_learned_positions():
    plan = across()
    (tokens, model) = plan.workload.seq_len, plan.workload.model
    few = replace(plan, workload=replace(plan.workload, model=replace(model, learned_positions=tokens // 2)))
    enough = replace(plan, workload=replace(plan.workload, model=replace(model, learned_positions=tokens)))
    said = [one.text for one in plan_warnings(few) if "learned positions" in one.text]
    assert said == [
        f"The model has {tokens // 2} learned positions, and a sequence {tokens} tokens: Megatron-LM and FlagScale refuse "
        f"this, so plans may be limited to other frameworks. Set learned_positions to {tokens}, or to 0 for rotary ones."
    ]
    assert not any("learned positions" in one.text for one in plan_warnings(enough))
