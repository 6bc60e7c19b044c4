"""The closed form of a step whose nodes are under given leaf switches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.placement.oversubscription import OversubscriptionCosts
from sim.analytic import plan_costs
from sim.hardware.cluster import Device, Fabric
from tests.planner.placement.on_leaves import in_order, leaves_of, on_leaves, shape


@given(st.data())
def test_the_spine_is_judged_as_the_closed_form_has_it_or_worse(data):
    """Equal where no two rings share an uplink and all wires are ideal, whatever stands where."""
    dp, pp = data.draw(st.sampled_from([(3, 2), (2, 3), (2, 2), (6, 1)]))
    fabric = Fabric(data.draw(st.integers(2, 4)), data.draw(st.sampled_from([1.5, 4.0])))
    plan = in_order(on_leaves(6, fabric), shape(dp, zero=data.draw(st.integers(0, 1))), pp)
    order = data.draw(st.permutations(range(6)))
    plan = replace(plan, placement=tuple(Device("c", order[d.node], d.index) for d in plan.placement))
    spine = OversubscriptionCosts(plan)
    seconds, _ = spine.evaluate(spine.leaves)
    assert seconds >= plan_costs.step_seconds(plan) * (1 - 1e-8)
    leaves = np.array(leaves_of(plan)).reshape(pp, dp)
    rings = [set(row.tolist()) for row in leaves if len(set(row.tolist())) > 1]
    if sum(map(len, rings)) == len(set().union(*rings)):
        assert seconds == pytest.approx(plan_costs.step_seconds(plan), rel=1e-8)
