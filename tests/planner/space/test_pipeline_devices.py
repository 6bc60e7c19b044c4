"""Devices of pipelines with mixed stages that a launch target takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import commands, exporters, targets
from planner.placement.ranks import assemble
from planner.request import Request, Wishes
from planner.search.mixed import mixed_placements
from planner.space.device_slots import Run, devices
from planner.space.mixed_schedules import variants_of_mixed
from planner.space.pipeline_devices import pipelines, takes_pipelines
from sim.errors import NoRoute, NotDefined, NotModelled, PlanError
from tests import builders
from tests.planner.builders import on_two_clusters

REFUSED = {"deepspeed": ("groups pp over",), "holmes": ("pipeline rank", "stages on")}
"""Target -> how what it refuses of the devices of pipelines begins."""


def question(name: str, target: str) -> Request:
    topology = commands.load(name)
    return Request(topology, topology.workload, Wishes(), target=exporters.target(target))


def test_a_pipeline_inside_a_node_is_told_from_one_of_two_nodes():
    """Two nodes of four devices, stages of two replicas: stages 0 and 1 share a node, stages 1 and 2 do not."""
    one = builders.cluster("c", nodes=2, devices=4)
    stages = [(Run(one, first, 2),) for first in (0, 2, 4)]
    nodes = [[device.node for device in found] for found in pipelines(stages[:2], 1)]
    assert nodes == [[0, 0], [0, 0]]
    assert [[device.node for device in found] for found in pipelines(stages, 1)] == [[0, 0, 1]]


def test_without_a_target_all_pipelines_are_taken():
    free = on_two_clusters()
    stages = [(Run(cluster, 0, 1),) for cluster in free.topology.fleet.clusters]
    assert takes_pipelines(free, 1, stages)
    assert takes_pipelines(replace(free, target=targets.any_framework()), 1, stages)


@pytest.mark.parametrize("target", REFUSED)
@pytest.mark.parametrize(
    ("name", "some"), [("holmes-uneven-8", 3), ("holmes-hybrid-4", 3), ("holmes-three-environments-12", 31)]
)
def test_what_is_left_out_is_what_the_export_refuses(name, some, target):
    """Every third (31st) placement: those that are left out are those whose plans the target refuses for their pipelines."""
    asked = question(name, target)
    free = replace(asked, target=None)
    seen = {True: 0, False: 0}
    for shape, stages in list(mixed_placements(free))[::some]:
        layers, held = free.workload.model.layers, devices(stages, shape.tp)
        split = [layers // len(stages)] * len(stages)
        split[0] += layers - sum(split)
        variant = next(variants_of_mixed(free, shape), None)
        if variant is None or layers < len(stages):
            continue
        total = free.workload.global_batch_size // shape.microbatch_size
        if total % shape.dp:
            continue
        try:
            plan = assemble(free, variant, tuple(split), held, "by hand", (total // shape.dp,) * shape.dp)
        except (NoRoute, NotDefined, NotModelled, PlanError):
            continue
        refused = any(text.startswith(REFUSED[target]) for text in exporters.unsupported(target, plan))
        assert takes_pipelines(asked, shape.tp, stages) is not refused, (shape, stages)
        seen[refused] += 1
    assert seen[True] > 0, seen
    assert seen[False] > 0 or target == "holmes", "Holmes has no stage on two fabrics, and each of these clusters has its own"
