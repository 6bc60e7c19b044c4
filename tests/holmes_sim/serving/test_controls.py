"""Controls of a topology: what they show, and the topology after a form."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from holmes_sim import commands
from holmes_sim.serving.controls import controls, differences, edited
from sim.errors import OptionError, TopologyError
from sim.formats import topology as topologies
from sim.formats.edits import edited as with_edits


@pytest.fixture(scope="module")
def hybrid():
    return commands.load("holmes-hybrid-4")


def facts(topology, form):
    return topologies.written(edited(topology, form))


def test_every_cluster_link_and_the_workload_have_controls(hybrid):
    found = {
        place: [(c.path.removeprefix(f"{place}."), c.kind, c.value) for c in group] for place, group in controls(hybrid).items()
    }
    assert list(found) == ["clusters.ib", "clusters.roce", "links[0]", "workload"]
    assert found["clusters.ib"] == [
        ("nodes", "count", "2"),
        ("node.devices.type", "choice", "a100-sxm4-80gb"),
        ("node.nics[0].type", "choice", "infiniband"),
        ("node.nics[0].bandwidth", "choice", "200 Gbit/s"),
        ("node.nics[0].count", "count", "4"),
        ("node.nics[1].type", "choice", "ethernet"),
        ("node.nics[1].bandwidth", "choice", "25 Gbit/s"),
        ("node.nics[1].count", "count", "1"),
    ]
    assert found["links[0]"] == [("bandwidth", "slider", "27")]
    assert found["workload"] == [
        ("model", "choice", "gpt-3.6b"),
        ("global_batch_size", "count", "768"),
        ("seq_len", "count", "2048"),
        ("require.offload", "choice", "none"),
    ]


def test_offload_is_a_requirement_of_the_file(hybrid):
    found = edited(hybrid, {"require.offload": "optimizer"})
    assert topologies.written(found)["require"] == {"offload": "optimizer"}
    assert list(differences(hybrid, found)) == [("require.offload", "none", "optimizer")]
    with pytest.raises(OptionError, match=r"require.offload: 'parameters' is not one of the choices"):
        edited(hybrid, {"require.offload": "parameters"})


def test_the_steps_of_a_slider_are_from_a_tenth_to_800_gbit(hybrid):
    steps = controls(hybrid)["links[0]"][0].choices
    assert (steps[0], steps[10], steps[27], steps[-1], len(steps)) == ("0.1 Gbit/s", "1 Gbit/s", "50 Gbit/s", "800 Gbit/s", 40)


def test_a_slider_keeps_a_rate_between_its_steps(hybrid):
    odd = with_edits(hybrid, {"links[0].bandwidth": "5.5 GB/s"})  # 44 Gbit/s
    control = controls(odd)["links[0]"][0]
    assert (control.value, control.choices[26]) == ("26", "5.5 GB/s")
    assert edited(odd, {control.path: "26"}) is odd
    assert facts(odd, {control.path: "0"})["links"][0]["bandwidth"] == "0.1 Gbit/s"


def test_a_form_changes_the_keys_of_its_controls(hybrid):
    form = {"clusters.ib.nodes": "3", "clusters.roce.node.nics[0].bandwidth": "400 Gbit/s", "links[0].bandwidth": "39",
            "workload.model": "gpt-7.5b", "workload.seq_len": "4096"}  # fmt: skip
    expected = topologies.written(hybrid)
    expected["clusters"]["ib"]["nodes"] = 3
    expected["clusters"]["roce"]["node"]["nics"][0]["bandwidth"] = "400 Gbit/s"
    expected["links"][0]["bandwidth"] = "800 Gbit/s"
    expected["workload"] |= {"model": "gpt-7.5b", "seq_len": 4096}
    assert facts(hybrid, form) == expected


def test_an_unchanged_form_is_the_same_topology(hybrid):
    assert edited(hybrid, {c.path: c.value for group in controls(hybrid).values() for c in group}) is hybrid


def test_fields_without_a_control_change_nothing(hybrid):
    assert edited(hybrid, {"stack": "/etc/passwd", "name": "other", "clusters.ib.node.intra_node": "nvlink5"}) is hybrid


def test_another_device_has_its_usual_interconnect_and_no_price_of_the_old_one(hybrid):
    priced = with_edits(hybrid, {"clusters.ib.node.devices.price": "2 USD/h"})
    node = facts(priced, {"clusters.ib.node.devices.type": "h100-sxm5-80gb"})["clusters"]["ib"]["node"]
    assert (node["devices"], node["intra_node"]) == ({"type": "h100-sxm5-80gb", "count": 8}, "nvlink4")


def test_another_nic_type_has_no_names_of_the_old_one(hybrid):
    at = "clusters.roce.node.nics[0]"
    named = with_edits(hybrid, {f"{at}.names": ["mlx5_0", "mlx5_1"], f"{at}.gid_index": 3})
    nic = facts(named, {f"{at}.type": "infiniband"})["clusters"]["roce"]["node"]["nics"][0]
    assert nic == {"type": "infiniband", "bandwidth": "200 Gbit/s", "count": 2}


def test_more_nodes_have_no_host_names(hybrid):
    named = with_edits(hybrid, {"clusters.ib.hosts": ["a", "b"]})
    cluster = facts(named, {"clusters.ib.nodes": "3"})["clusters"]["ib"]
    assert (cluster["nodes"], "hosts" in cluster) == (3, False)


def test_a_workload_can_be_written_where_there_is_none(hybrid):
    bare = replace(hybrid, workload=None)
    form = {"workload.model": "gpt-3.6b", "workload.global_batch_size": "8", "workload.seq_len": "1024"}
    assert edited(bare, form).workload.seq_len == 1024
    with pytest.raises(TopologyError, match=r"workload\.seq_len"):
        edited(bare, {"workload.model": "gpt-3.6b", "workload.global_batch_size": "8"})


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("clusters.ib.nodes", "0", "clusters.ib.nodes: '0' is not a whole number from 1 to 10000"),
        ("clusters.ib.nodes", "²", "clusters.ib.nodes: '²' is not a whole number from 1 to 10000"),
        ("clusters.ib.nodes", "10001", "clusters.ib.nodes: '10001' is not a whole number from 1 to 10000"),
        ("links[0].bandwidth", "40", "links[0].bandwidth: '40' is not a step of the slider, 0 to 39"),
        ("workload.model", "/etc/passwd", "workload.model: '/etc/passwd' is not one of the choices"),
    ],
)
def test_other_values_are_refused(hybrid, field, text, said):
    with pytest.raises(OptionError) as caught:
        edited(hybrid, {field: text})
    assert str(caught.value) == said


def test_a_nic_that_a_link_needs_cannot_go(hybrid):
    with pytest.raises(TopologyError, match="have no ethernet NIC, which this link needs"):
        edited(hybrid, {"clusters.ib.node.nics[1].type": "roce"})


def test_differences_of_two_topologies(hybrid):
    other = edited(hybrid, {"clusters.ib.nodes": "3", "links[0].bandwidth": "30"})
    assert list(differences(hybrid, other)) == [
        ("clusters.ib.nodes", "2", "3"),
        ("links[0].bandwidth", "50 Gbit/s", "100 Gbit/s"),
    ]
    alone = with_edits(hybrid, {"links": None})
    assert list(differences(hybrid, alone)) == [("links[0].bandwidth", "50 Gbit/s", "–")]


def test_facts_in_place_are_kept_unless_another_name_is_chosen(topology):
    model = controls(topology)["workload"][0]
    assert (model.value, model.choices[0]) == ("lab-gpt", "lab-gpt")
    assert edited(topology, {model.path: "lab-gpt"}) is topology
    assert facts(topology, {model.path: "gpt-1.7b"})["workload"]["model"] == "gpt-1.7b"


def test_nodes_of_a_domain_are_added_together(hybrid):
    rack = {"clusters.ib.nvlink_domain": 16, "clusters.ib.nodes": 2}
    assert json.loads(json.dumps([c.step for c in controls(with_edits(hybrid, rack))["clusters.ib"]]))[0] == 2
