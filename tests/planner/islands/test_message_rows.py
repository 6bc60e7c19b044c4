"""Rows of exact plans with compressed messages between clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.islands.allowed_sync import MESSAGES, parse
from planner.islands.message_rows import message_rows, plans_for_messages, with_faster_trunks
from planner.islands.search import plan_with_sync
from planner.request import Request, Wishes
from planner.time_limit import TimeLimit
from sim.engine.engine import simulate
from sim.errors import Infeasible, OptionError
from sim.hardware.cluster import Device, Trunk
from tests import builders
from tests.builders import Plan
from tests.planner.builders import request


def over_trunk(*names: str, **config: object) -> Plan:
    """A plan of one device after the other on two clusters of two nodes, which a thin trunk joins."""
    clusters = builders.cluster("a", nodes=2), builders.cluster("b", nodes=2)
    machines = builders.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e8, 0.0),))
    places = tuple(Device(name[0], int(name[1]), 0) for name in names)
    return builders.plan(machines, pp=2, placement=places, **config)  # type: ignore[arg-type]


def asked(plan: Plan) -> Request:
    """A request on the fleet of a plan."""
    return Request(plan.topology, plan.workload)


def both(plan: Plan) -> dict[str, list[Plan]]:
    return {text: [plan] for text in MESSAGES}


def test_a_row_for_each_compression():
    """Two messages of 12,288 bytes over 0.1 GB/s: those of int8 and of 10 % of the values are shorter."""
    plan = over_trunk("a0", "b0")
    rows = list(message_rows(both(plan), asked(plan)))
    assert [row.sync for row in rows] == ["exact gradients, messages int8", "exact gradients, messages top-k=10%"]
    assert {(row.price, row.worth, row.islands) for row in rows} == {("bounded", None, (("a", "b"),))}
    less = 64 / simulate(plan).step_s
    assert less < rows[0].tokens_per_s < rows[1].tokens_per_s
    for row in rows:
        assert isinstance(row.plan, Plan)
        assert row.plan.certificate is None
        assert row.tokens_per_s == pytest.approx(64 / simulate(row.plan).step_s)


def test_the_fastest_of_several_plans_is_the_row():
    slow, fast = over_trunk("a0", "b0", microbatches=4), over_trunk("a0", "b0", microbatches=4, microbatch_size=2)
    (row,) = message_rows({"int8": [slow, fast]}, asked(slow))
    assert row.tokens_per_s == pytest.approx(512 / simulate(row.plan).step_s)
    assert row.plan.config.microbatch_size == 2


@pytest.mark.parametrize(("names", "dp"), [(("a0", "a1"), 1), (("a0", "b0", "a1", "b1"), 2)])
def test_no_rows_where_no_message_crosses(names: tuple[str, ...], dp: int):
    plan = over_trunk(*names, dp=dp)
    assert list(message_rows(both(plan), asked(plan))) == []


def test_the_last_virtual_stage_crosses_back():
    plan = over_trunk("a0", "b0", vpp=2, microbatches=2, schedule="interleaved")
    assert len(list(message_rows(both(plan), asked(plan)))) == 2


@pytest.mark.parametrize(
    ("text", "tried"),
    [("any", MESSAGES), ("exact", ()), ("local-steps<=64", ()), ("exact,int4", ("int4",)), ("any,median", ())],
)
def test_what_tries_them(text: str, tried: tuple[str, ...]):
    assert parse(text).messages == tried


@pytest.mark.parametrize("text", ["exact,bf16", "exact,powersgd=2", "exact,int8,median", "exact=3"])
def test_what_no_message_is_written_with(text: str):
    with pytest.raises(OptionError, match=r"^--sync 'exact[,=]"):
        parse(text)


def trunk(bandwidth: float, wishes: Wishes | None = None) -> Request:
    """Two clusters of one node with two devices, which together hold the model; 8 sequences."""
    nics = (builders.nic("ethernet", 1e9),)
    clusters = tuple(builders.cluster(name, devices=2, nics=nics) for name in "ab")
    fleet = builders.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", bandwidth, 0.0),))
    found = request(fleet, builders.model(4), 8, wishes or Wishes(tp=1, dp=1, pp=4, schedule="1f1b"))
    return replace(found, time_limit=20.0)


def test_the_other_plan_is_that_of_faster_trunks_on_the_trunks_as_they_are():
    asking = trunk(1e7)
    found = plans_for_messages(asking, ("int8",), TimeLimit(10.0), lambda text: None)
    (plan,) = found["int8"]
    assert plan.topology == asking.topology
    assert (plan.prediction, plan.certificate) == (None, None)
    faster = with_faster_trunks(asking, 4.0).topology.fleet.trunks
    assert [one.bandwidth for one in faster] == [4e7]
    assert plans_for_messages(asking, ("int8",), TimeLimit(0.0), lambda text: None) == {"int8": []}


def test_only_compressed_messages_are_allowed():
    """Pinned to all four devices, the plan crosses the trunk; with one stage it does not."""
    answer = plan_with_sync(trunk(1e7), parse("exact,int8"))
    assert isinstance(answer.best.plan, Plan)
    assert answer.best.plan.config.message_compression == "int8"
    assert answer.best.plan.prediction is not None
    assert answer.exact is not None and answer.best.tokens_per_s > answer.exact.tokens_per_s
    assert answer.refused == ""
    with pytest.raises(Infeasible, match="no message of the plans that were found goes from one cluster to another"):
        plan_with_sync(trunk(1e7, Wishes(tp=1, pp=1)), parse("exact,int8"))
