"""Rows of the exact plan with compressed messages between clusters."""

from __future__ import annotations

import pytest

from planner.islands.allowed_sync import parse
from planner.islands.message_rows import message_rows
from sim.engine.engine import simulate
from sim.hardware.cluster import Device, Trunk
from tests import builders
from tests.builders import Plan


def over_trunk(*names: str, **config: object) -> Plan:
    """A plan of one device after the other on two clusters of two nodes, which a thin trunk joins."""
    clusters = builders.cluster("a", nodes=2), builders.cluster("b", nodes=2)
    machines = builders.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e8, 0.0),))
    places = tuple(Device(name[0], int(name[1]), 0) for name in names)
    return builders.plan(machines, pp=2, placement=places, **config)  # type: ignore[arg-type]


def test_a_row_for_each_compression():
    """Two messages of 12,288 bytes over 0.1 GB/s: those of int8 and of 10 % of the values are shorter."""
    plan = over_trunk("a0", "b0")
    rows = list(message_rows(plan))
    assert [row.sync for row in rows] == ["exact gradients, messages int8", "exact gradients, messages top-k=10%"]
    assert {(row.price, row.worth, row.islands) for row in rows} == {("bounded", None, (("a", "b"),))}
    less = 64 / simulate(plan).step_s
    assert less < rows[0].tokens_per_s < rows[1].tokens_per_s
    for row in rows:
        assert isinstance(row.plan, Plan)
        assert row.plan.certificate is None
        assert row.tokens_per_s == pytest.approx(64 / simulate(row.plan).step_s)


@pytest.mark.parametrize(("names", "dp"), [(("a0", "a1"), 1), (("a0", "b0", "a1", "b1"), 2)])
def test_no_rows_where_no_message_crosses(names: tuple[str, ...], dp: int):
    assert list(message_rows(over_trunk(*names, dp=dp))) == []


def test_the_last_virtual_stage_crosses_back():
    plan = over_trunk("a0", "b0", vpp=2, microbatches=2, schedule="interleaved")
    assert len(list(message_rows(plan))) == 2


@pytest.mark.parametrize(("text", "tried"), [("any", True), ("exact", False), ("local-steps<=64", False)])
def test_only_any_tries_them(text: str, tried: bool):
    assert parse(text).messages is tried
