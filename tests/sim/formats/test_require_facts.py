"""Requirements in a topology or a file: values and ranges as they are read, and one line for each fault."""

from __future__ import annotations

import jsonschema
import pytest

from sim.errors import TopologyError
from sim.formats.documents import check, parse
from sim.formats.require_facts import RequireFacts, RequireFile, faults
from sim.plan.allowed import Allowed

HEAD = "format: holmes-sim/require/1\n"


def read(text: str) -> RequireFile:
    document = parse("need.yaml", HEAD + text)
    return check(document, RequireFile, faults(document.value, ["ib", "roce"]))


def test_all_that_can_be_required():
    found = read(
        """
tp: {max: 8}
pp: {min: 2, max: 12}
dp: 4
microbatch_size: [1, 2]
zero_stage: {max: 1}
schedule: [1f1b, interleaved]
recompute: none
devices: {max: 64}
rent: {max: 180 USD/h}
cost: {max: 0.15 USD/Mtoken}
memory_headroom: 0.1
nodes: {exclude: [ib/node3, "gpu[01-02]", roce]}
first_stage: ib
last_stage: roce
stages: [{stage: 2, cluster: ib}, {stage: -2, cluster: roce}]
targets: [megatron, flagscale]
clusters:
  roce: {tp: 4, recompute: [none, full]}
"""
    )
    assert (found.tp, found.pp, found.dp) == (Allowed(most=8), Allowed(least=2, most=12), Allowed((4,)))
    assert (found.microbatch_size, found.zero_stage) == (Allowed((1, 2)), Allowed(most=1))
    assert (found.schedule, found.recompute) == (Allowed(("1f1b", "interleaved")), Allowed(("none",)))
    assert found.devices is not None and found.devices.max == 64
    assert found.cost is not None and found.cost.max == pytest.approx(0.15e-6)
    assert found.rent is not None and found.rent.max == pytest.approx(0.05)
    assert found.nodes is not None and found.nodes.exclude == ["ib/node3", "gpu01", "gpu02", "roce"]
    assert (found.first_stage, found.last_stage, found.targets) == ("ib", "roce", ["megatron", "flagscale"])
    assert [(one.stage, one.cluster) for one in found.stages] == [(2, "ib"), (-2, "roce")]
    assert (found.clusters["roce"].tp, found.clusters["roce"].recompute) == (Allowed((4,)), Allowed(("none", "full")))
    assert found.cp is None and found.memory_headroom == 0.1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("tp: eight", "2: tp: 'eight' is not a whole number; write a number, a list of numbers, or min and max"),
        ("tp: 0", "2: tp: 0 must be at least 1"),
        ("zero_stage: [1, 4]", "2: zero_stage: 4 must be at most 3"),
        ("tp: []", "2: tp: a list of allowed numbers needs at least one"),
        ("pp: {most: 4}", "2: pp: a range has min, max or both, not most"),
        ("pp: {}", "2: pp: a range has min, max or both"),
        ("pp: {min: 8, max: 4}", "2: pp: min 8 is above max 4"),
        ("schedule: 1f1", "2: schedule: schedule '1f1' is unknown; did you mean '1f1b' or '1f1b-deepspeed'?"),
        ("recompute: [none, all]", "2: recompute: recompute 'all' is unknown; known: full, none, selective"),
        ("recompute: []", "2: recompute: a list of allowed values of recompute needs at least one"),
        ("device: {max: 8}", "2: device: unknown key; did you mean 'devices'?"),
        ("cost: {max: 0.15}", "2: cost.max: 0.15 is not a cost: the unit is missing; write for example '0.15 USD/Mtoken'"),
        ("devices: {max: 0}", "2: devices.max: 0 must be at least 1"),
        (
            "nodes: {exclude: [a], only: [b]}",
            "2: nodes: write either exclude or only, with a list of clusters, nodes and hosts",
        ),
        (
            "nodes: {exclude: []}",
            "2: nodes.exclude: clusters, nodes such as ib/node3, or hosts such as gpu[001-004] are expected here, not []",
        ),
        ("nodes: {only: ['gpu[3-1]']}", "2: nodes.only: 'gpu[3-1]': [3-1] must ascend and have at most 1,048,576 hosts"),
        ("first_stage: ibb", "2: first_stage: cluster 'ibb' does not exist; did you mean 'ib'?"),
        (
            "stages: [{stage: 1, cluster: ib}, {stage: 2, cluster: rocee}]",
            "2: stages[1].cluster: cluster 'rocee' does not exist; did you mean 'roce'?",
        ),
        ("stages: [{cluster: ib}]", "2: stages[0].stage: this key is missing"),
        ("clusters: {rocee: {tp: 1}}", "2: clusters.rocee: cluster 'rocee' does not exist; did you mean 'roce'?"),
    ],
)
def test_each_fault_is_one_line(text, fault):
    with pytest.raises(TopologyError) as caught:
        read(text)
    assert str(caught.value) == f"need.yaml:{fault}"


def test_what_was_read_can_be_read_again():
    found = read("tp: {max: 8}\nschedule: 1f1b\n")
    again = RequireFacts.model_validate({"tp": found.tp, "schedule": found.schedule})
    assert (again.tp, again.schedule) == (found.tp, found.schedule)


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ({"tp": 8}, True),
        ({"tp": [4, 8]}, True),
        ({"tp": {"max": 8}}, True),
        ({"tp": {}}, False),
        ({"tp": "8"}, False),
        ({"recompute": "some"}, False),
        ({"recompute": []}, False),
        ({"zero_stage": 4}, False),
        ({"schedule": ["1f1b"]}, True),
    ],
)
def test_the_schema_accepts_what_is_read(value, valid):
    validator = jsonschema.Draft202012Validator(RequireFile.model_json_schema())
    assert validator.is_valid({"format": "holmes-sim/require/1"} | value) is valid
