"""Gradient buckets: equal ones of a stage, and those of the sections of a stage of unlike pipelines."""

from __future__ import annotations

import pytest

from sim.kernels import lowering, memory
from sim.kernels.gradient_buckets import buckets_of_stage
from sim.plan import program
from tests.sim.plan.pipelines_by_hand import entries, nodes, pipelines

WIDE = {"hidden": 3072, "vocab": 768}
"""A layer has 113 million parameters, which is three buckets; embedding and head have 2.4 million each."""
THREE_ONE, TWO_TWO = ({"pp": 2, "layers": layers, "microbatches": 2} for layers in ((3, 1), (2, 2)))


def test_a_stage_of_alike_replicas_has_equal_buckets_of_one_group():
    (plan,) = entries(nodes(4), ({"pp": 2, "dp": 2, "layers": (3, 1)},), shape=WIDE)
    (found,) = buckets_of_stage(plan, 0)
    assert (found.section, found.number, found.size) == (0, 3, 1.0)
    parameters = memory.stage_parameters(plan.workload, plan.config, 3, True, False)
    assert found.gradients == (("dp", 4 * parameters / 3),)
    assert found.weights == (("dp", 2 * parameters / 3),)


def test_each_section_of_a_stage_has_buckets_of_its_own():
    """The first stage has layers 0 to 2 and the embedding; layer 2 is in the second stage of the other pipeline."""
    plan = pipelines(nodes(4), (THREE_ONE, TWO_TWO), shape=WIDE)
    config, workload = plan.pipelines[0].config, plan.workload
    one, two = (memory.stage_parameters(workload, config, *shape) for shape in ((2, True, False), (1, False, False)))
    found = buckets_of_stage(plan.pipelines[0], 0, plan.sections_of(0, 0))
    assert [(own.section, own.number) for own in found] == [(0, 2), (1, 1)]
    assert [own.gradients for own in found] == [(("dp", 2 * one),), (("dp", 4 * two),)]
    mean = (one + two) / 3
    assert [own.size for own in found] == [pytest.approx(one / 2 / mean), pytest.approx(two / mean)]
    assert sum(own.number * own.size for own in found) == pytest.approx(3)


def test_ranks_of_unlike_tp_cut_a_slice_into_equally_many_equal_buckets():
    plan = pipelines(nodes(3, devices=2), ({"tp": 4, "layers": (4,)}, {"tp": 2, "layers": (4,)}), shape=WIDE)
    one, other = (buckets_of_stage(each, 0, plan.sections_of(index, 0)) for index, each in enumerate(plan.pipelines))
    assert one == other


def test_buckets_of_experts_are_equal_on_ranks_of_unlike_ep():
    """Each rank of the first pipeline has half of the experts, and the one of the second all, in two parts."""
    shape = WIDE | {"experts": 4, "experts_per_token": 2}
    plan = pipelines(nodes(3), ({"dp": 2, "ep": 2, "layers": (4,)}, {"layers": (4,)}), shape=shape)
    one, other = (buckets_of_stage(each, 0, plan.sections_of(index, 0)) for index, each in enumerate(plan.pipelines))
    assert one == other
    ((own,), model) = one, plan.workload.model
    experts = 4 * model.expert_parameters / 2
    assert own.whole.gradients == (
        ("dp", pytest.approx(4 * (model.parameters - 2 * experts))),
        ("edp", pytest.approx(4 * experts)),
    )


def test_the_program_of_a_stage_with_two_sections():
    """Sections of embedding and layers 0 and 1, and of layer 2: gathered in this order, and reduced in the reverse one."""
    plan = pipelines(nodes(4), (THREE_ONE, TWO_TWO))
    lowered = lowering.Lowered(plan.pipelines[0], 0, 2, plan.sections_of(0, 0))
    actions = [action for index in range(len(lowered)) for action in lowered.piece(index)]
    assert program.text(tuple(actions)) == (
        "start dp all_gather.0 start dp all_gather.1 wait dp all_gather.0 F0.0 wait dp all_gather.1 F0.1 send F0 "
        "F1 send F1 recv B0 B0 recv B1 B1.0 start dp reduce_scatter.0 B1.1 start dp reduce_scatter.1 "
        "wait dp reduce_scatter.0 wait dp reduce_scatter.1 optimizer"
    )
    of = [(action.operation, action.section) for action in actions if action.kind == "start"]
    assert of == [("all_gather", 0), ("all_gather", 1), ("reduce_scatter", 1), ("reduce_scatter", 0)]
    sizes = {str(action): action.times for action in actions if action.parts > 1 and action.kind in ("F", "B")}
    assert sizes["F0.0"] == sizes["B1.1"] > 1 > sizes["F0.1"] == sizes["B1.0"]
