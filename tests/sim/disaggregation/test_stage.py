"""What a stage with two sets of ranks may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.errors import NotModelled, PlanError
from sim.hardware.cluster import Device
from sim.workload.routing import Routing
from tests.sim.disaggregation.builders import machines, stage


def test_numbers_of_a_stage():
    found = stage(machines(4, 2), batch=24, groups=2, microbatches=3, kept=(0, 4))
    assert (found.attention_ranks, found.expert_ranks, found.microbatch_size) == (2, 1, 2)
    assert [[str(device) for device in group] for group in found.by_group] == [
        ["new/node0/dev0", "new/node1/dev0", "old/node0/dev0"],
        ["new/node2/dev0", "new/node3/dev0", "old/node1/dev0"],
    ]
    assert (found.config.dp, found.config.microbatch_size, found.config.num_microbatches) == (4, 2, (3, 3, 3, 3))
    assert str(found) == (
        "attention on 4 devices of new, experts on 2 of old, in 2 groups, 1 x 3 microbatches of 2, "
        "2 experts a layer kept beside attention"
    )
    again = stage(batch=12, rounds=3, recompute="full")
    assert str(again) == "attention on 1 devices of new, experts on 1 of old, 3 x 2 microbatches of 2, all recomputed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 3}, "attention: 4 ranks are not 3 equal groups"),
        ({"microbatches": 5}, "microbatches: 4 attention ranks x 5 microbatches x 1 rounds do not divide global_batch_size 24"),
        ({"kept": (4,)}, "kept: 1 numbers; 2 layers need one each"),
        (
            {"kept": (0, 2)},
            "kept: 2 of 8 experts cannot be kept: 4 attention ranks of a group share them equally, and 2 expert ranks the",
        ),
        ({"kept": (0, 8)}, "kept: 8 of 8 experts cannot be kept: "),
    ],
)
def test_numbers_that_do_not_divide_each_other(options, message):
    with pytest.raises(PlanError) as caught:
        stage(machines(4, 2), batch=24, **options)
    assert str(caught.value).startswith(message)


def test_models_without_such_a_stage():
    with pytest.raises(NotModelled, match="need equal layers with experts"):
        stage(shape={"experts": 0, "experts_per_token": 0})
    with pytest.raises(NotModelled, match="need equal layers with experts"):
        stage(shape={"dense_layers": 1, "dense_ffn_hidden": 96})
    with pytest.raises(NotModelled, match="'selective' is not modelled here; none or full"):
        stage(recompute="selective")


def test_a_device_is_in_one_set():
    fleet = machines(2, 2)
    whole = stage(fleet, batch=4)
    with pytest.raises(PlanError, match="experts\\[0\\]: new/node0/dev0 is already attention\\[0\\]"):
        type(whole)(whole.topology, whole.workload, whole.attention, whole.attention)


def test_devices_exist_and_have_the_precision():
    whole = stage()
    with pytest.raises(PlanError, match=r"^experts\[0\]: device old/node3/dev0 does not exist: cluster old has 1 nodes"):
        replace(whole, experts=(Device("old", 3, 0),))
    with pytest.raises(PlanError, match=r"^attention\[0\]: device chip-new has no fp8 peak"):
        replace(whole, workload=replace(whole.workload, precision="fp8"))


def test_what_is_not_modelled_is_named():
    whole = stage()
    with pytest.raises(NotModelled, match=r"^workload\.routing: uneven experts"):
        replace(whole, workload=replace(whole.workload, routing=Routing(1.3)))
    with pytest.raises(PlanError, match="groups, microbatches and rounds: at least 1 each"):
        replace(whole, groups=0)
