"""Constraints of the stage programme that say what a pipeline is, on pipelines given by hand and on all of them."""

from __future__ import annotations

import itertools

import pytest

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.models.pipeline_constraints import require_pipeline
from planner.request import Request
from planner.search.evaluation import roles
from sim.hardware.cluster import Trunk
from sim.plan import schedules
from tests import builders as make
from tests.planner.builders import Stages, request, shape
from tests.planner.models.problem import accepts, solved, variables


def two_and_two(layers: int = 5, memory: float = 80e9, batch: int = 8) -> Request:
    """Clusters a and b of two nodes of one device."""
    nics = (make.nic("ethernet", 1e9),)
    clusters = [make.cluster(name, 2, nics=nics, spec=make.device(f"chip-{name}", 1e9, memory=memory)) for name in "ab"]
    trunks = (Trunk(("a", "b"), "ethernet", 1e9, 0.0),)
    return request(make.fleet(*clusters, trunks=trunks), make.model(layers), batch)


@pytest.mark.parametrize(
    ("pipeline", "accepted"),
    [
        ((("a", 2), ("a", 3)), True),
        ((("a", 2), ("b", 3)), True),
        ((("a", 1), ("a", 1), ("b", 1), ("b", 2)), True),
        ((("a", 2), ("a", 2)), False),  # four of five layers
        ((("a", 3), ("a", 3)), False),  # six of five
        ((("b", 2), ("a", 3)), False),  # against the order
        ((("a", 1), ("a", 1), ("a", 3)), False),  # three stages on two nodes
        ((("a", 1), ("b", 1), ("b", 1), ("b", 2)), False),
        ((("a", 1), ("b", 1), ("a", 3)), False),  # back to a
    ],
)
def test_which_pipelines_are_solutions(pipeline, accepted):
    assert accepts(two_and_two(), shape(), pipeline) is accepted


@pytest.mark.parametrize("pp", [2, 3])
def test_a_pinned_pp_excludes_other_lengths(pp):
    for pipeline in ((("a", 2), ("b", 3)), (("a", 2), ("a", 1), ("b", 2))):
        assert accepts(two_and_two(), shape(), pipeline, pp) is (len(pipeline) == pp)


@pytest.mark.parametrize("kept", [((0, "a"),), ((1, "a"),), ((1, "b"),), ((2, "b"),), ((-2, "a"),), ((-3, "a"), (-1, "b"))])
def test_stages_that_are_kept_on_a_cluster(kept):
    """Of all pipelines over a and b in this order."""
    for names in ("aa", "ab", "bb", "aab", "abb", "aabb"):
        pipeline = tuple((name, 1 if stage else 6 - len(names)) for stage, name in enumerate(names))
        there = all(-len(names) <= number < len(names) and names[number] == name for number, name in kept)
        assert accepts(two_and_two(), shape(), pipeline, kept=kept) is there, names


def test_memory_is_that_of_the_microbatches_in_flight():
    """Every pipeline over a and b of which the devices hold two layers and two microbatches, and no more."""
    roomy = two_and_two()
    (option, _) = node_classes(PlanningContext(roomy), shape())
    tight = two_and_two(memory=option.memory.bytes_at("first", 2, 2))
    known = {o.cluster.name: o for o in node_classes(PlanningContext(tight), shape())}
    found = {True: 0, False: 0}
    for pp in (2, 3, 4):
        names = {2: [("a", "a"), ("a", "b")], 3: [("a", "a", "b"), ("a", "b", "b")], 4: [("a", "a", "b", "b")]}[pp]
        for some, cuts in itertools.product(names, itertools.combinations(range(1, 5), pp - 1)):
            sizes = [b - a for a, b in itertools.pairwise((0, *cuts, 5))]
            pipeline: Stages = tuple(zip(some, sizes, strict=True))
            fits = all(
                known[name].memory.most_layers(role, schedules.in_flight("1f1b", pp_rank, pp, 8, 1)) >= layers
                for pp_rank, (role, (name, layers)) in enumerate(zip(roles(pp), pipeline, strict=True))
            )
            assert accepts(tight, shape(), pipeline) is fits, pipeline
            found[fits] += 1
    assert min(found.values()) > 0


def test_the_chain_marks_the_sizes_up_to_the_largest_middle_stage():
    """Middle stages of 2 and 1 layers: z is 1 up to 2."""
    machines = make.fleet(make.cluster("a", 4, spec=make.device(speed=1e9)))
    _, stages = variables(request(machines, make.model(5)), shape())
    require_pipeline(stages, (4, 4))
    for group, wanted in ((stages.first, {1: 1}), (stages.middle, {1: 1, 2: 1}), (stages.last, {1: 1})):
        for (_, layers), variable in group.items():
            stages.programme.require(f"fixed[{variable.name}]", variable + 0 == wanted.get(layers, 0))
    assert solved(stages.programme) is not None
    assert [round(z.varValue) for z in stages.chain.values()] == [1, 1, 0, 0, 0]
