"""The line of a certificate about its space."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from holmes_sim.printing.certificates import certificate, free_memory, searched, unlike_degrees, values
from sim.plan.certificate import UNLIKE, Axis, Certificate, SpaceBound
from sim.plan.parallel_config import ParallelConfig
from tests.builders import cluster, fleet, plan

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
PROOF = Certificate(
    "feasible", 2.0, 1.9, 0.05, "closed form", False,
    space=(
        Axis("tp", (1, 2, 4, 8)),
        Axis("pp", ("1 to 30",)),
        Axis("dp", (16,)),
        Axis("cp", (1,)),
        Axis("ep", (1, 2)),
        Axis("microbatch_size", SIZES),
        Axis("schedule", ("1f1b", "interleaved", "zb-h1")),
        Axis("vpp", (1, 2, 3, 4, 6)),
        Axis("zero_stage", (1, 2, 3)),
        Axis("recompute", ("none", "full")),
        Axis("layers", ("any split",)),
    ),
    outside=("schedule 1f1b-deepspeed, gpipe", "zero_stage 0", "vpp 5, 7 to 15", "unfused attention"),
)  # fmt: skip


def test_the_space_is_reported_in_a_line():
    assert searched(PROOF) == (
        "Searched: tp 1-8, pp 1-30, dp 16, ep 1 or 2, microbatch size 1-96 (13), schedules 1f1b, interleaved (vpp 2-6), zb-h1, "
        "ZeRO 1-3, recompute none or full. Outside: 1f1b-deepspeed, gpipe; ZeRO 0; vpp 5, 7-15; more in plan.json."
    )


def test_plans_along_a_v_are_named_beside_the_space():
    space = (Axis("tp", (1, 2)), Axis("along a V", ("schedule dualpipev, vpp 2, any split",)))
    assert searched(replace(PROOF, space=space, outside=())) == "Searched: tp 1 or 2, beside them schedule dualpipev."


def test_plans_that_are_tried_beside_the_proof_are_reported_in_the_line():
    space = (Axis("tp", (1, 2)),)
    tried = replace(PROOF, space=space, outside=("stage_dp (tried, without a proof)", "unfused attention"))
    assert searched(tried) == "Searched: tp 1 or 2. Outside: stage_dp (tried, without a proof); more in plan.json."
    long = "stage_dp (one dp for all stages)", "plans on devices that are idle today"
    assert searched(replace(PROOF, space=space, outside=long)) == (
        "Searched: tp 1 or 2. Outside: stage_dp (one dp for all stages); plans on devices that are idle today."
    ), "all, where none is said in a few words"


def test_what_is_proved_of_unlike_degrees_is_told_with_its_space():
    apart = SpaceBound(2.0, 1.5, "pipelines over several clusters", UNLIKE)
    assert unlike_degrees(replace(PROOF, unlike_degrees=apart)) == (
        "Unlike degrees: no plan in which clusters have degrees of their own takes less than 1.5 s: at most 25.0% of 2 s could "
        "be saved.\nTheir space: pipelines over several clusters."
    )
    assert unlike_degrees(PROOF) == ""


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"stage_dp": (1, 2), "dp": 1, "tp": 1, "microbatch_size": 2, "num_microbatches": (2,)},
            "Its stages have degrees of their own on each cluster: no such plan takes less than 1.5 s: at most 25.0% of 2 s "
            "could be saved.",
        ),
        (
            {"cp": 2},
            "Its cp 2 is not searched: nothing is proved for other plans of this kind. No plan in which clusters have degrees "
            "of their own takes less than 1.5 s: at most 25.0% of 2 s could be saved.",
        ),
        (
            {"stage_dp": (1, 2), "dp": 1, "tp": 1, "microbatch_size": 2, "num_microbatches": (2,), "offload": ("optimizer",)},
            "Offload of the optimizer is not searched (--offload): nothing is proved for other plans of this kind. No plan in "
            "which clusters have degrees of their own takes less than 1.5 s: at most 25.0% of 2 s could be saved.",
        ),
    ],
)
def test_a_plan_beside_the_space_is_told_what_is_proved_of_its_kind(config, told):
    made = SimpleNamespace(config=ParallelConfig(**{"pp": 2, "num_microbatches": (2,)} | config))
    proof = replace(PROOF, beside_space=True, unlike_degrees=SpaceBound(2.0, 1.5, "pipelines", UNLIKE))
    assert certificate(made, proof) == (
        f"Certificate: no plan of the searched space takes less than 1.9 s (closed form), 5.0% less than this plan. {told}"
    )


def test_a_pinned_space_is_reported_in_a_line():
    space = (Axis("tp", (2,)), Axis("schedule", ("1f1b",)), Axis("vpp", (1,)), Axis("zero_stage", (0,)))
    assert searched(replace(PROOF, space=space, outside=())) == "Searched: tp 2, schedule 1f1b, ZeRO 0."
    assert searched(replace(PROOF, space=space, outside=("cp 2",))) == "Searched: tp 2, schedule 1f1b, ZeRO 0. Outside: cp 2."


def test_what_is_required_is_reported_in_the_line():
    space = (Axis("tp", (1, 2)), Axis("required", ("tp at most 2", "devices at most 64")))
    assert searched(replace(PROOF, space=space, outside=())) == (
        "Searched: tp 1 or 2. Required: tp at most 2; devices at most 64."
    )


def test_a_certificate_without_a_space_says_nothing():
    assert searched(replace(PROOF, space=(), outside=())) == ""


@pytest.mark.parametrize(("reached", "ends"), [(False, "could be saved."), (True, "The time limit ended the search.")])
def test_a_certificate_says_whether_the_time_limit_ended_the_search(reached, ends):
    assert certificate(plan(fleet(cluster())), replace(PROOF, time_limit_reached=reached)).endswith(ends)


def test_values_are_text():
    assert values(Axis("dp", (1, 2, 3))) == "1, 2, 3"
    assert values(Axis("microbatch_size", SIZES)) == "1 to 96 (13 values)"
    assert values(Axis("placement", ("side by side", "evenly"))) == "side by side; evenly"


def test_a_certificate_names_the_layout_with_the_least_bound():
    of = plan(fleet(cluster()))
    assert "The least bound" not in certificate(of, PROOF)
    named = certificate(of, replace(PROOF, least_bound_layout="tp 2, dp 8"))
    assert named.endswith("at most 5.0% of the step could be saved. The least bound is that of tp 2, dp 8.")


def test_a_plan_says_how_much_memory_stays_free():
    full = plan(fleet(cluster()))
    assert free_memory(full) == ""
    kept = replace(full, topology=replace(full.topology, memory_headroom=0.08))
    assert free_memory(kept) == "Plans leave 8% of each device's memory free (--memory-headroom)."


def test_nothing_is_proved_of_compressed_messages():
    unproved = " This bound is for whole messages: nothing is proved for compressed messages between clusters."
    assert unproved not in certificate(plan(fleet(cluster(nodes=2)), pp=2), PROOF)
    assert unproved in certificate(plan(fleet(cluster(nodes=2)), pp=2, message_compression="int8"), PROOF)
