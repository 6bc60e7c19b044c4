"""Where the search tries plans that recompute modules of layers with experts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import exporters
from planner.limits import Limits
from planner.request import Wishes
from planner.space.tried_modules import may_recompute_modules
from sim.plan.allowed import Allowed
from tests.planner.builders import on_one_cluster
from tests.planner.search.mixtures import question


@pytest.mark.parametrize(
    ("asked", "tried"),
    [
        (question(), True),
        (replace(question(), target=exporters.target("slurm")), True),
        (replace(question(), target=exporters.target("megatron")), False),
        (question(Wishes(recompute="full")), False),
        (question(Wishes(offload="activations")), False),
        (replace(question(), limits=Limits(dimensions=(("recompute", Allowed(values=("none", "full"))),))), False),
        (on_one_cluster(nodes=2, devices=2), False),
    ],
)
def test_where_it_is_tried(asked, tried):
    """For mixtures of experts, where recomputation is free and stages may be unlike."""
    assert may_recompute_modules(asked) is tried
