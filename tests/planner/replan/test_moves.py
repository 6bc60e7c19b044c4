"""Moves: what a device keeps, counted by hand; the best of all equal placements, by trying them all."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.replan.moves import Moves, moves, settled
from sim.engine.engine import simulate
from sim.hardware.cluster import Device, Fabric
from sim.plan.plan import Plan
from tests import builders as make


def nodes(*numbers: int) -> dict[tuple[str, int], tuple[str, int]]:
    """New nodes 0, 1 ... and the old numbers of each."""
    return {("c", new): ("c", old) for new, old in enumerate(numbers)}


def test_what_moves_by_hand() -> None:
    """Four stages of two layers on four nodes; node 1 is lost, node 3 takes its number. Now 3, 3, 2 layers on 0, 1 (old 3), 2:
    node 0 lacks layer 2; old node 3 held 6 and 7 and needs 3 to 5; node 2 held 4 and 5 and needs 6, 7 and the logits."""
    before = make.plan(make.fleet(make.cluster("c", 4, 1)), pp=4, layers=(2, 2, 2, 2))
    after = make.plan(make.fleet(make.cluster("c", 3, 1)), pp=3, layers=(3, 3, 2))
    layer, ends = parameters(after)
    assert moves(before, after, nodes(0, 3, 2)) == Moves(3, 0, pytest.approx(2 * (6 * layer + ends)))
    best = settled(before, after, nodes(0, 3, 2))
    assert [device.node for device in best.placement] == [0, 2, 1]  # the last stage goes to old node 3, which holds it
    assert moves(before, best, nodes(0, 3, 2)) == Moves(3, 1, pytest.approx(2 * (1 + 1) * layer))


def parameters(plan: Plan) -> tuple[float, float]:
    """Parameters of a layer, and of the logits with the last norm."""
    from sim.kernels.memory import stage_parameters

    def of(layers: int, last: bool) -> float:
        return stage_parameters(plan.workload, plan.config, layers, False, last)

    return of(2, False) - of(1, False), of(1, True) - of(1, False)


def test_another_tensor_parallel_degree_keeps_nothing() -> None:
    machines = make.fleet(make.cluster("c", 1, 2))
    before, after = make.plan(machines, dp=2, microbatches=1), make.plan(machines, tp=2, microbatches=2)
    assert moves(before, after, nodes(0)).staying == 0


def test_the_same_plan_moves_nothing() -> None:
    plan = make.plan(make.fleet(make.cluster("c", 4, 2)), tp=2, pp=2, dp=2)
    assert moves(plan, plan, nodes(0, 1, 2, 3)) == Moves(8, 8, 0.0)
    assert settled(plan, plan, nodes(0, 1, 2, 3)) is plan


@given(
    order=st.permutations(range(4)), old=st.sampled_from([(1, 4, 1), (1, 2, 2), (1, 1, 4), (2, 2, 2)]),
    new=st.sampled_from([(1, 4, 1), (1, 2, 2), (2, 4, 1)]), leaves=st.booleans(),
)  # fmt: skip
def test_no_equal_placement_keeps_more_and_the_step_is_the_same(
    order: list[int], old: tuple[int, int, int], new: tuple[int, int, int], leaves: bool
) -> None:
    def planned(degrees: tuple[int, int, int]) -> Plan:
        tp, pp, dp = degrees
        seats = [Device("c", slot // (2 // tp), slot % (2 // tp) * tp + i) for slot in range(pp * dp) for i in range(tp)]
        return make.plan(machines, tp=tp, pp=pp, dp=dp, layers=(8 // pp,) * pp, microbatches=4 // dp, placement=tuple(seats))

    machines = make.fleet(make.cluster("c", 4, 2, fabric=Fabric(2, 2.0) if leaves else None))
    before, after, came = planned(old), planned(new), nodes(*order)
    best = settled(before, after, came)
    found = moves(before, best, came)
    for other in itertools.permutations(range(4)):
        if leaves and any(node // 2 != other[node] // 2 for node in range(4)):
            continue
        moved = replace(after, placement=tuple(Device("c", other[d.node], d.index) for d in after.placement))
        assert moves(before, moved, came).staying <= found.staying
    assert simulate(best).step_s == pytest.approx(simulate(after).step_s, rel=1e-12)
