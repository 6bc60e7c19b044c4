"""Idle devices of a plan, and why clusters are idle."""

from __future__ import annotations

from dataclasses import replace

from holmes_sim.idle import idle_clusters, idle_devices, idle_nodes
from sim.hardware.cluster import Trunk
from sim.plan.certificate import Axis, Certificate
from sim.plan.prediction import Prediction
from tests.builders import cluster, device, fleet, nic, plan

ETHERNET = (nic("ethernet", 1e9),)


def test_a_plan_on_all_devices_has_no_idle_ones():
    whole = plan(fleet(cluster()))
    assert idle_devices(whole) == ""
    assert idle_devices(plan(fleet(cluster(devices=2)))) == "1 of 2 devices is idle."
    assert list(idle_clusters(whole)) == []


def test_clusters_without_a_link_to_the_plan_are_named():
    """b has no link, c no NIC of the type of its link, d is joined and idle for another reason."""
    links = (Trunk(("a", "c"), "ethernet", 1e9, 0.0), Trunk(("a", "d"), "ethernet", 1e9, 0.0))
    of = plan(fleet(*(cluster(name, nics=ETHERNET) for name in "abd"), cluster("c", nics=(nic("roce"),)), trunks=links))
    assert {device.cluster for device in of.placement} == {"a"}
    assert idle_devices(of) == "3 of 4 devices are idle."
    assert list(idle_clusters(of)) == [
        "b, c are idle: no link of a common NIC type leads to a (`links` of the topology).",
        "d is idle: no plan that uses it was found to be faster.",
    ]


def test_devices_without_the_precision_are_idle():
    """The ideal device has bf16, fp16 and fp32."""
    old = device("old", peak=(("fp16", 1e14),))
    of = plan(fleet(cluster("a"), replace(cluster("b"), node=replace(cluster("b").node, device=old))))
    assert of.workload.precision == "bf16"
    assert list(idle_clusters(of)) == ["b is idle: old has no bf16; with --set workload.precision=fp16 plans may use it."]
    oldest = device("oldest", peak=(("fp32", 1e14),))
    of = plan(fleet(cluster("a"), replace(cluster("b"), node=replace(cluster("b").node, device=oldest))))
    assert list(idle_clusters(of)) == ["b is idle: oldest has no bf16."]


def test_rdma_that_joins_no_vendors_is_the_reason():
    """Both clusters have RoCE NICs and a link of that type; with a unified communicator a plan could use it."""
    nics = (nic("roce"),)
    other = replace(cluster("b", nics=nics), node=replace(cluster("b", nics=nics).node, device=device("mi", vendor="amd")))
    where = fleet(cluster("a", nics=nics), other, trunks=(Trunk(("a", "b"), "roce", 1e9, 0.0),))
    assert list(idle_clusters(plan(where))) == [
        "b is idle: RDMA joins no devices of different vendors (amd here): it needs Ethernet NICs and a link of type ethernet, "
        "or a library that joins them (`communicator: unified` of the topology)."
    ]
    assert list(idle_clusters(plan(replace(where, communicator="unified")))) == [
        "b is idle: no plan that uses it was found to be faster."
    ]


def test_a_thin_link_to_a_cluster_that_holds_the_model_points_to_islands():
    """The model has 4 bytes of gradients a parameter; the step takes 1 s."""
    joined = [cluster(name, nics=ETHERNET) for name in "abc"]
    small = replace(joined[2].node, device=device("small", memory=8.0))
    clusters = (*joined[:2], replace(joined[2], node=small))

    def told(bandwidth: float, *space: Axis) -> list[str]:
        links = tuple(Trunk(("a", name), "ethernet", bandwidth, 0.0) for name in "bc")
        of = plan(fleet(*clusters, trunks=links))
        predicted = Prediction(1.0, 8.0, 0.0, 0.0, 0.0, (), 0.0, 0.0, 1.0)
        proof = Certificate("feasible", 1.0, 1.0, 0.0, "closed form", False, space=space)
        return list(idle_clusters(replace(of, prediction=predicted, certificate=proof)))

    parameters = plan(fleet(*clusters)).workload.model.parameters
    slower = "no plan that uses {} was found to be faster"
    islands = "`plan --sync any` finds islands that exchange less (docs/thin-links.md)"
    assert told(4 * parameters / 0.09) == [f"b, c are idle: {slower.format('any of them')}."]
    thin, small_one = told(4 * parameters / 0.11)
    assert thin.startswith(f"b is idle: {slower.format('it')}; to send the gradients of a step over its link of ")
    assert thin.endswith(f" takes 110 ms: {islands}.")
    assert small_one == f"c is idle: {slower.format('it')}."
    assert told(4 * parameters / 0.11, Axis("required", ("devices at most 1",))) == told(4 * parameters / 0.09)


def test_nics_that_are_thinner_than_a_link_are_what_gradients_wait_for():
    """Three nodes of a have a NIC of 1 GB/s each, one of b has one of 0.5 GB/s; the link between them would carry 100 GB/s."""
    slow = cluster("b", nics=(nic("ethernet", 5e8),))
    where = fleet(cluster("a", nodes=3, nics=ETHERNET), slow, trunks=(Trunk(("a", "b"), "ethernet", 1e11, 0.0),))
    of = plan(where, seq_len=64)
    seconds = 4 * of.workload.model.parameters / 5e8
    of = replace(of, prediction=Prediction(9 * seconds, 8.0, 0.0, 0.0, 0.0, (), 0.0, 0.0, 1.0))
    (told,) = list(idle_clusters(of))
    assert "to send the gradients of a step over the ethernet NICs at its link of 4 Gbit/s takes" in told


def test_idle_nodes_of_a_cluster_with_a_thin_network_point_to_islands():
    """The model has 4 bytes of gradients a parameter; the step takes 1 s, on one of three nodes."""
    parameters = plan(fleet(cluster("a"))).workload.model.parameters

    def told(rate: float, **facts: object) -> list[str]:
        of = plan(fleet(cluster("a", nodes=3, nics=(nic("ethernet", rate),))), **facts)
        return list(idle_nodes(replace(of, prediction=Prediction(1.0, 8.0, 0.0, 0.0, 0.0, (), 0.0, 0.0, 1.0))))

    assert told(4 * parameters / 0.09) == []
    (thin,) = told(4 * parameters / 0.11)
    assert thin.startswith("2 of 3 nodes of a are idle: to send the gradients of a step over the NICs of a node of ")
    assert thin.endswith(" takes 110 ms: `plan --sync any` finds islands that exchange less (docs/thin-links.md).")
    assert told(4 * parameters / 0.11, dp=3) == []


def test_devices_of_another_vendor_are_idle_for_frameworks():
    """The certificate's target decides; a unified communicator joins the vendors."""
    other = replace(
        cluster("b", nics=ETHERNET), node=replace(cluster("b", nics=ETHERNET).node, device=device("mi", vendor="amd"))
    )
    links = (Trunk(("a", "b"), "ethernet", 1e12, 0.0),)
    where = fleet(cluster("a", nics=ETHERNET), other, trunks=links)

    def told(target: str, communicator: str = "vendor") -> list[str]:
        of, space = plan(replace(where, communicator=communicator)), (Axis("target", (target,)),) if target else ()
        proof = Certificate("feasible", 1.0, 1.0, 0.0, "closed form", False, space=space)
        return list(idle_clusters(replace(of, certificate=proof)))

    reason = "one plan on devices of amd and acme, unless one library joins them (`communicator: unified` of the topology)."
    assert told("any") == [f"b is idle: no training framework can run {reason}"]
    assert told("torchtitan") == [f"b is idle: torchtitan cannot run {reason}"]
    assert told("at least 4 frameworks") == [f"b is idle: fewer than 4 frameworks can run {reason}"]
    assert told("") == ["b is idle: no plan that uses it was found to be faster."]
    assert told("any", "unified")[0].startswith("b is idle: no plan that uses it and that some framework can run ")
