"""The space of a certificate: the values that the search enumerates, no more and no fewer, and what stays outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import commands
from planner.request import Request, Wishes
from planner.search.searched_space import ACROSS, axes, listed, outside
from planner.space.shape import Shape
from planner.space.shapes import overlaps, searched, variants
from planner.target import Target
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster
from tests import builders as make
from tests.planner.builders import on_one_cluster, on_two_clusters, request

PINNED = Wishes(
    tp=2, pp=1, dp=1, vpp=1, microbatch_size=2, schedule="1f1b", recompute="none", zero_stage=1, cp=1, ep=1, offload="none"
)  # fmt: skip
ENUMERATED = ("tp", "dp", "cp", "ep", "microbatch_size", "schedule", "vpp", "zero_stage")


def small_request(*clusters: Cluster, wishes: Wishes | None = None, **model: object) -> Request:
    """A request on one node of two devices, or on the clusters given, with a batch of four."""
    machines = make.fleet(*(clusters or (make.cluster("a", devices=2),)))
    return request(machines, make.model(**model), 4, wishes)


def found(question: Request) -> dict[str, tuple[str | int, ...]]:
    return {axis.name: axis.values for axis in axes(question)}


def every_shape(question: Request) -> list[Shape]:
    shapes = (variant for shape in searched(question) for variant in variants(question, shape))
    return [one for shape in shapes for one in overlaps(shape)]


# the axes


def test_some_layers_are_recomputed_without_a_pipeline_where_the_target_has_it_there_only():
    def in_pipelines(config, workload):
        return iter(["recompute_layers: in pipelines"] if config.recompute_layers and config.pp > 1 else [])

    free = on_one_cluster(layers=4, batch=4, nodes=2)
    asked = replace(free, target=Target("one", "any", (), in_pipelines, lambda plan: iter(())))
    known = {axis.name: axis.values for axis in axes(asked)}
    assert known["recompute"] == ("none", "full", "as few layers as memory requires, without a pipeline only")


def test_the_axes_of_two_devices():
    question = small_request()
    known = found(question)
    every = every_shape(question)
    assert known == {
        "tp": (1, 2),
        "pp": ("1 to 2",),
        "dp": (1, 2),
        "cp": (1,),
        "ep": (1,),
        "microbatch_size": (1, 2, 4),
        "schedule": ("1f1b", "interleaved", "zb-h1", "zb-h2"),
        "vpp": tuple(sorted({shape.vpp for shape in every})),
        "zero_stage": tuple(sorted({shape.zero_stage for shape in every})),
        "recompute": ("as few layers of each stage as memory requires",),
        "overlap_param_gather": ("on", "off"),
        "layers": ("any split",),
        "placement": (
            "whole stages on one cluster each; stages side by side; nodes filled in order",
            "a pipeline of one stage: in order or evenly on its nodes",
        ),
    }
    assert list(known) == [axis.name for axis in axes(question)]


def test_a_pinned_dimension_has_one_value():
    assert found(small_request(wishes=PINNED)) == {
        "tp": (2,),
        "pp": (1,),
        "dp": (1,),
        "cp": (1,),
        "ep": (1,),
        "microbatch_size": (2,),
        "schedule": ("1f1b",),
        "vpp": (1,),
        "zero_stage": (1,),
        "recompute": ("none",),
        "overlap_param_gather": ("on",),
        "layers": ("any split",),
        "placement": (
            "whole stages on one cluster each; stages side by side; nodes filled in order",
            "a pipeline of one stage: in order or evenly on its nodes",
        ),
    }


def test_longer_pipelines_alone_fill_their_nodes():
    places = found(small_request(wishes=Wishes(pp=2)))
    assert places["pp"] == (2,)
    assert places["placement"] == ("whole stages on one cluster each; stages side by side; nodes filled in order",)


def test_blocks_that_share_state_are_an_axis_where_they_are_pinned():
    wide = make.cluster("a", devices=4)
    assert "zero_shard_size" not in found(small_request(wide))
    assert found(small_request(wide, wishes=Wishes(zero_shard_size=2)))["zero_shard_size"] == (2,)


def test_all_that_cannot_be_has_no_axes():
    with pytest.raises(Infeasible):
        axes(small_request(wishes=Wishes(tp=5)))


@pytest.mark.parametrize("name", ["holmes-hybrid-4", "lab/lab-hybrid-nics"])
def test_the_axes_are_the_values_of_the_search(name):
    topology = commands.load(name)
    question = Request(topology, topology.workload)
    every, known = every_shape(question), found(question)
    assert known["recompute"] == ("as few layers of each stage as memory requires",)
    for axis in ENUMERATED:
        assert set(known[axis]) == {getattr(shape, axis) for shape in every}, axis
    switch = {True: "on", False: "off"}
    assert set(known["overlap_param_gather"]) == {switch[shape.overlap_param_gather] for shape in every}


def test_experts_are_an_axis():
    known = found(small_request(make.cluster("a", devices=4), experts=6, experts_per_token=2))
    assert known["ep"] == (1, 2), "of the divisors 1, 2, 3 and 6, those that divide some dp of the batch of four"


# stages across clusters


def test_several_clusters_have_an_axis_of_their_own():
    two = make.cluster("a"), make.cluster("b")
    assert found(small_request(*two))[ACROSS] == (
        "each stage on the next slots of all clusters in sequence, in any order",
        "each replica on one cluster, pp up to 8 or a divisor of the layers",
        "both under 1f1b, zb-h1, zb-h2 with ZeRO 1, recompute none or full, microbatches by the speed of a replica",
    )
    assert "stages of a cluster side by side, clusters in any order" in found(small_request(*two))["placement"][0]
    assert ACROSS not in found(small_request())
    assert ACROSS not in found(replace(small_request(*two), machines=(("a", 1),)))


def test_no_stage_lies_across_clusters_where_replicas_must_be_alike():
    two = make.cluster("a", nodes=2), make.cluster("b", nodes=2)
    assert ACROSS not in found(small_request(*two, wishes=Wishes(schedule="interleaved")))
    assert ACROSS not in found(small_request(*two, wishes=Wishes(zero_stage=3)))


def test_many_clusters_are_tried_in_some_orders():
    values = found(small_request(*(make.cluster(name) for name in "abcde")))
    assert values[ACROSS][0].endswith("in 6 orders")
    assert "clusters in the order of the cheapest borders, both ways" in values["placement"][0]


# outside


def test_what_stays_outside_is_named():
    told = outside(small_request(make.cluster("a", devices=8), layers=4))
    assert told[0] == "schedule 1f1b-deepspeed, dualpipev, gpipe, zb-latency"
    assert "recompute selective" in told
    assert any(text.split(", ")[0] in ("zero_stage 0", "zero_stage 0, 2") for text in told)
    assert "tp 3, 6" in told
    assert "cp 2, 4, 8" in told
    assert "stages of one cluster that are not consecutive in the pipeline" not in told


def test_what_is_outside_is_searched_where_it_is_pinned():
    wide = make.cluster("a", devices=8)
    assert found(small_request(wide, wishes=Wishes(tp=6)))["tp"] == (6,)
    assert found(small_request(wide, wishes=Wishes(cp=4)))["cp"] == (4,)
    assert found(small_request(wide, wishes=Wishes(schedule="gpipe")))["schedule"] == ("gpipe",)


def test_what_plan_files_can_say_and_the_search_does_not_is_outside():
    told = outside(small_request(make.cluster("a", nodes=2, devices=2), layers=4))
    assert "recomputation of chosen modules (recompute_modules, stage_recompute)" in told
    assert "the head before the last stage, and stages without layers" in told
    assert "stage_dp (one dp for all stages)" in told
    for wishes in (Wishes(pp=1), Wishes(dp=2), Wishes(microbatch_size=1)):
        told = outside(small_request(make.cluster("a", nodes=2, devices=2), layers=4, wishes=wishes))
        assert "stage_dp (one dp for all stages)" not in told


def test_plans_with_unlike_dp_are_outside_where_they_are_tried():
    """Only a search that tries them says so, and only for a fleet that may have them."""
    several = on_two_clusters()
    assert "stage_dp (tried, without a proof)" in outside(several, tried=True)
    assert "stage_dp (one dp for all stages)" in outside(several)
    assert "stage_dp (one dp for all stages)" in outside(small_request(make.cluster("a", nodes=2), layers=4), tried=True)


def test_what_is_pinned_is_not_outside():
    told = outside(small_request(make.cluster("a", devices=2), wishes=PINNED))
    assert told == (
        "other choices of nodes and of devices",
        "unfused attention",
        "tensor parallelism without sequence parallelism",
    )


def test_a_pinned_vpp_leaves_out_schedules_that_cannot_have_it():
    wide = make.cluster("a", devices=2)
    assert outside(small_request(wide, layers=4, wishes=Wishes(vpp=2)))[0] == "schedule dualpipev"
    one = next(text for text in outside(small_request(wide, layers=4, wishes=Wishes(vpp=1))) if text.startswith("schedule"))
    assert "gpipe" in one and "interleaved" not in one


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((3,), "3"),
        ((3, 4), "3, 4"),
        ((3, 5, 6, 7), "3, 5 to 7"),
        ((2, 4, 8, 16), "2, 4, 8, 16"),
        ((2, 4, 6, 8, 10, 12, 14), "2 to 14 (7 values)"),
    ],
)
def test_numbers_are_listed_in_runs(values, text):
    assert listed(values) == text
