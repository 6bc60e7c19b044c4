"""From `require` in a topology or a file to a planning request."""

from __future__ import annotations

import pytest

from holmes_sim import commands, exporters
from holmes_sim.requirements import applied, only, request, require, text, written
from holmes_sim.whole_runs import usual_failures
from planner.limits import HOUR, Limits
from planner.request import Wishes
from planner.target import Target
from planner.training_time import TrainingTime
from sim.errors import HolmesError, OptionError, TopologyError
from sim.formats.edits import edited
from sim.formats.require_facts import RequireFacts
from sim.hardware.topology import Topology
from sim.plan.allowed import Allowed

HYBRID = commands.load("holmes-hybrid-4")
WORKLOAD = commands.workload_of(HYBRID)


def names(where: Topology) -> dict[str, int]:
    """Cluster -> number of its nodes."""
    return {cluster.name: cluster.nodes for cluster in where.fleet.clusters}


def test_a_file_is_kept_in_the_topology_beside_its_own_requirements(tmp_path):
    path = tmp_path / "need.yaml"
    path.write_text("format: holmes-sim/require/1\ntp: {max: 4}\ndevices: {max: 16}\n")
    before = require(HYBRID, {"tp": 8, "first_stage": "ib"})
    after = require(before, path)
    assert written(after) == {"tp": {"max": 4}, "first_stage": "ib", "devices": {"max": 16}}
    assert written(HYBRID) == {} and written(only(after, {})) == {} and only(HYBRID, {}) == HYBRID


def test_faults_of_a_file_have_its_lines(tmp_path):
    path = tmp_path / "need.yaml"
    path.write_text("format: holmes-sim/require/1\ntp: {max: 4}\nfirst_stage: rocee\n")
    with pytest.raises(TopologyError, match=r"need.yaml:3: first_stage: cluster 'rocee' does not exist; did you mean 'roce'\?"):
        require(HYBRID, path)
    with pytest.raises(TopologyError, match=r"require.tp: 0 must be at least 1"):
        require(HYBRID, {"tp": 0})


def test_names_that_do_not_exist_are_faults_of_the_file(tmp_path):
    path = tmp_path / "need.yaml"
    path.write_text("format: holmes-sim/require/1\ntargets: [megatron, megatro]\nnodes:\n  exclude: [ib/node9, roce, gpu1]\n")
    with pytest.raises(TopologyError) as caught:
        require(HYBRID, path)
    assert [line.removeprefix(str(tmp_path)) for line in str(caught.value).splitlines()] == [
        "/need.yaml:2: targets[1]: target 'megatro' is unknown; did you mean 'megatron'?",
        "/need.yaml:4: nodes.exclude: ib/node9: cluster ib has nodes 0 to 1 (hosts ib-node0 to ib-node1)",
        "/need.yaml:4: nodes.exclude: 'gpu1' is neither a node such as ib/node0 nor a host of holmes-hybrid-4; "
        "known: ib, ib-node0, ib-node1, roce, roce-node0, roce-node1",
    ]


def test_names_in_a_topology_have_its_lines(tmp_path):
    path = tmp_path / "topo.yaml"
    text = (commands.topologies_folder() / "holmes-hybrid-4.yaml").read_text()
    path.write_text(text.rstrip() + "\nrequire:\n  targets: [megatro]\n  nodes: {exclude: [roces]}\n")
    line = len(path.read_text().splitlines())
    with pytest.raises(TopologyError) as caught:
        commands.load(path)
    assert [one.removeprefix(f"{path}:") for one in str(caught.value).splitlines()] == [
        f"{line - 1}: require.targets[0]: target 'megatro' is unknown; did you mean 'megatron'?",
        f"{line}: require.nodes.exclude: 'roces' is neither a node such as ib/node0 nor a host of holmes-hybrid-4; "
        "did you mean 'roce'?",
    ]
    path.write_text(text.rstrip() + "\nrequire: {targets: [megatron], nodes: {exclude: [roce/node1]}}\n")
    assert written(commands.load(path))["targets"] == ["megatron"]


def test_limits_of_a_request():
    where = edited(HYBRID, {"clusters.ib.node.devices.price": "2 USD/h", "clusters.roce.node.devices.price": "1 USD/h"})
    given = {
        "tp": {"max": 4}, "recompute": ["none", "full"], "devices": {"max": 16}, "rent": {"max": "36 USD/h"},
        "cost": {"max": "0.2 USD/Mtoken"},
        "first_stage": "ib", "last_stage": "roce", "clusters": {"roce": {"tp": [1, 2]}},
        "stages": [{"stage": 1, "cluster": "ib"}],
    }  # fmt: skip
    assert request(require(where, given), WORKLOAD).limits == Limits(
        (("tp", Allowed(most=4)), ("recompute", Allowed(("none", "full")))),
        (("roce", (("tp", Allowed((1, 2))),)),), 16, pytest.approx(36 / HOUR), pytest.approx(0.2e-6),
        "ib", "roce", ((1, "ib"),),
    )  # fmt: skip


def test_days_have_the_goodput_of_the_devices_that_may_be_used():
    days = {"days": {"max": 30, "tokens": "2T"}}
    every = request(require(HYBRID, days), WORKLOAD).limits.training
    assert every == TrainingTime(30.0, 2e12, usual_failures(32).goodput, "Llama 3's failures on 32 devices")
    assert str(every) == "days at most 30 for 2 T tokens, goodput 99.8% (Llama 3's failures on 32 devices)"
    some = request(require(HYBRID, days | {"devices": {"max": 8}}), WORKLOAD).limits.training
    assert some == TrainingTime(30.0, 2e12, usual_failures(8).goodput, "Llama 3's failures on 8 devices")
    given = request(require(HYBRID, {"days": days["days"] | {"goodput": 0.9}}), WORKLOAD).limits.training
    assert given == TrainingTime(30.0, 2e12, 0.9, "as required")
    with pytest.raises(TopologyError, match=r"require.days.tokens: '2' is not a number of tokens; write for example '2T'"):
        require(HYBRID, {"days": {"max": 30, "tokens": "2"}})


def test_one_allowed_value_is_a_pin_unless_another_is_pinned():
    where = require(HYBRID, {"tp": 4, "schedule": "1f1b", "pp": [2, 4]})
    assert request(where, WORKLOAD).wishes == Wishes(tp=4, schedule="1f1b")
    assert request(require(HYBRID, {"offload": "optimizer"}), WORKLOAD).wishes == Wishes(offload="optimizer")
    assert request(where, WORKLOAD, Wishes(tp=8)).wishes == Wishes(tp=8, schedule="1f1b")


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ({"exclude": ["ib/node0"]}, {"ib": 1, "roce": 2}),
        ({"exclude": ["ib-node1", "roce/node0"]}, {"ib": 1, "roce": 1}),
        ({"exclude": ["roce"]}, {"ib": 2}),
        ({"only": ["ib", "roce/node1"]}, {"ib": 2, "roce": 1}),
        ({"only": ["ib-node[0-1]"]}, {"ib": 2}),
    ],
)
def test_nodes_that_may_be_used(nodes, left):
    found = applied(require(HYBRID, {"nodes": nodes, "tp": 2}))
    assert names(found) == left
    assert written(found) == {"tp": 2}
    assert applied(found) == found


def test_what_the_topology_keeps_to_is_among_the_words_of_the_limits():
    given = {"nodes": {"exclude": ["ib/node0"]}, "memory_headroom": 0.2, "devices": {"max": 8}}
    assert list(request(require(HYBRID, given), WORKLOAD).limits.words()) == [
        "nodes without ib/node0", "memory_headroom 0.2", "devices at most 8",
    ]  # fmt: skip


def test_a_setting_may_begin_the_requirements():
    assert written(edited(HYBRID, {"require.devices.max": 8})) == {"devices": {"max": 8}}


def test_hosts_keep_their_names():
    found = applied(require(HYBRID, {"nodes": {"exclude": ["ib/node0"]}}))
    assert found.fleet.cluster("ib").hosts_of(0) == ("ib-node1",)


def test_limits_of_a_cluster_without_nodes_are_dropped():
    given = {"nodes": {"exclude": ["roce"]}, "clusters": {"roce": {"tp": 1}, "ib": {"tp": 2}}}
    assert written(applied(require(HYBRID, given))) == {"clusters": {"ib": {"tp": 2}}}


def test_headroom_is_that_of_the_topology():
    assert request(require(HYBRID, {"memory_headroom": 0.2}), WORKLOAD).topology.memory_headroom == 0.2


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"nodes": {"exclude": ["ib/node2"]}}, "require.nodes.exclude: ib/node2: cluster ib has nodes 0 to 1 "),
        ({"nodes": {"only": ["gpu1"]}}, "require.nodes.only: 'gpu1' is neither a node such as ib/node0 nor a host"),
        ({"nodes": {"exclude": ["ib", "roce"]}}, "require.nodes: no node of holmes-hybrid-4 may be used"),
        (
            {"nodes": {"only": ["ib"]}, "last_stage": "roce"},
            r"require.last_stage: no node of cluster roce may be used \(require.nodes\)",
        ),
        (
            {"nodes": {"only": ["ib"]}, "stages": [{"stage": 1, "cluster": "roce"}]},
            r"require.stages: no node of cluster roce may be used \(require.nodes\)",
        ),
        (
            {"rent": {"max": "10 USD/h"}},
            "require.rent: no price known of a100-sxm4-80gb of cluster ib; give it in the topology, "
            "clusters.ib.node.devices.price: 2.50 USD/h",
        ),
    ],
)
def test_what_cannot_be_required(given, fault):
    with pytest.raises(OptionError, match=fault):
        request(require(HYBRID, given), WORKLOAD)


def target_of(*given: str, also: str = "any") -> Target:
    found = request(require(HYBRID, {"targets": list(given)}), WORKLOAD, target=also).target
    assert found is not None
    return found


def test_nodes_of_a_cluster_and_a_number_of_frameworks_are_required():
    given = {"clusters": {"roce": {"nodes": {"min": 1}, "dp": {"max": 4}, "etp": 1}, "ib": {"nodes": 2}}, "targets": {"min": 2}}
    found = request(require(HYBRID, given), WORKLOAD)
    assert found.limits == Limits(
        on_clusters=(("roce", (("dp", Allowed(most=4)), ("etp", Allowed((1,))))),),
        nodes=(("roce", Allowed(least=1)), ("ib", Allowed((2,)))),
    )
    assert found.target is not None and found.target.name == "at least 2 frameworks"
    facts = RequireFacts.model_validate(written(require(HYBRID, given)))
    assert [text(facts, name) for name in ("clusters", "targets")] == [
        "nodes at least 1 on cluster roce, dp at most 4 on cluster roce, etp 1 on cluster roce, nodes 2 on cluster ib",
        "targets at least 2",
    ]


def test_a_cluster_has_the_nodes_that_are_required_of_it(tmp_path):
    path = tmp_path / "need.yaml"
    path.write_text("format: holmes-sim/require/1\nclusters:\n  ib: {nodes: {min: 3}}\n  roce: {nodes: [3, 4]}\n")
    with pytest.raises(TopologyError) as caught:
        require(HYBRID, path)
    assert [line.removeprefix(str(tmp_path)) for line in str(caught.value).splitlines()] == [
        "/need.yaml:3: clusters.ib.nodes: at least 3 nodes are more than the 2 of cluster ib",
        "/need.yaml:4: clusters.roce.nodes: at least 3 nodes are more than the 2 of cluster roce",
    ]
    where = require(HYBRID, {"nodes": {"exclude": ["roce"]}, "clusters": {"roce": {"nodes": {"min": 1}}}})
    with pytest.raises(
        OptionError, match=r"require.clusters.roce.nodes: no node of cluster roce may be used \(require.nodes\)"
    ):
        request(where, WORKLOAD)


@pytest.mark.parametrize(
    ("given", "fault"),
    [(3, "a list of launch targets such as \\[megatron\\], or {min: 2}, is expected here, not 3"),
     ({"max": 2}, "write targets with names, such as \\[megatron\\], or the least number of frameworks, such as {min: 2}")],
)  # fmt: skip
def test_targets_are_names_or_a_number(given, fault):
    with pytest.raises(TopologyError, match=fault):
        require(HYBRID, {"targets": given})


def test_no_more_frameworks_are_required_than_there_are(tmp_path):
    path = tmp_path / "need.yaml"
    path.write_text("format: holmes-sim/require/1\ntp: 2\ntargets: {min: 6}\n")
    line = (
        r"need.yaml:3: targets.min: 6 is more than the training frameworks megatron, torchtitan, deepspeed, flagscale, holmes"
    )
    with pytest.raises(TopologyError, match=line):
        require(HYBRID, path)


def test_several_targets_must_all_run_the_plan():
    assert target_of("megatron").name == "megatron"
    assert target_of("megatron", also="megatron").name == "megatron"
    both = target_of("megatron", also="deepspeed")
    assert both.name == "megatron and deepspeed"
    config = request(HYBRID, WORKLOAD).topology
    assert config is not None
    one, other = exporters.target("megatron"), exporters.target("deepspeed")
    assert both.excluded_vendors == tuple(dict.fromkeys((*one.excluded_vendors, *other.excluded_vendors)))
    order = ("one", "joined", "any")
    assert both.vendors == min(one.vendors, other.vendors, key=order.index)
    with pytest.raises(HolmesError, match="target 'megatrn' is unknown; did you mean 'megatron'"):
        target_of("megatrn")
