# ruff: noqa: E501 - a fault and its line stand side by side
"""`routing` of a topology's workload: read, refused, edited, and the plan that is made for it written and read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.engine.engine import simulate
from sim.errors import PlanError, TopologyError
from sim.formats import catalog, planfile
from sim.formats.documents import parse
from sim.formats.edits import edited
from sim.formats.routing_facts import routing_of
from sim.formats.topology import from_document, written
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.workload.routing import BALANCED, REAL_IMBALANCE, Routing
from tests.sim.context_and_experts import described, nodes
from tests.sim.formats.topology_texts import TOPOLOGY

MIXTURE = TOPOLOGY.replace("gpt-3.6b", "mixtral-8x7b")
DENSE = "routing: model gpt-3.6b has no experts to route tokens to; leave routing out"


def topology(routing: str = "", text: str = MIXTURE) -> Topology:
    return from_document(parse("topo.yaml", text + (f"  routing: {routing}\n" if routing else "")))


@pytest.mark.parametrize(("text", "routing", "kept"), [
    ("", BALANCED, None),
    ("balanced", BALANCED, None),
    ("real", Routing(REAL_IMBALANCE), {"imbalance": 1.3}),
    ("{imbalance: 1.5}", Routing(1.5), {"imbalance": 1.5}),
    ("{tokens: [8, 1, 1, 1, 1, 1, 1, 2]}", Routing(tokens=(8, 1, 1, 1, 1, 1, 1, 2)), {"tokens": [8, 1, 1, 1, 1, 1, 1, 2]}),
    ("{capacity_factor: 1.25, pad_to_capacity: true}", Routing(1.0, (), 1.25, True),
     {"imbalance": 1.0, "capacity_factor": 1.25, "pad_to_capacity": True}),
])  # fmt: skip
def test_the_routing_of_a_workload_is_read_and_written(text: str, routing: Routing, kept: object) -> None:
    found = topology(text)
    assert found.workload is not None and found.workload.routing == routing
    assert written(found)["workload"].get("routing") == kept


def test_real_routing_is_nearly_balanced_where_a_bias_balances_the_router() -> None:
    """DeepSeek-V3, Kimi K2, both GLM-4.5 and TeleChat3 have a score correction bias, DeepSeek-V2 and Qwen3 an auxiliary loss."""
    biased = {name: routing_of("real", catalog.model(name)).imbalance for name in catalog.names("models")
              if catalog.model(name).experts}  # fmt: skip
    assert {name for name, imbalance in biased.items() if imbalance == 1.04} == {
        "deepseek-v3",
        "kimi-k2",
        "glm-4.5",
        "glm-4.5-air",
        "telechat3-105b-a4.7b",
    }
    assert set(biased.values()) == {1.04, 1.3}
    assert topology("real", TOPOLOGY.replace("gpt-3.6b", "deepseek-v3")).workload.routing == Routing(1.04)  # type: ignore[union-attr]


@pytest.mark.parametrize(("text", "message"), [
    ("evn", ": 'evn' is unknown; known: 'balanced' or 'real'"),
    ("{}", ": give either imbalance, such as 1.3, or tokens, a number for each expert"),
    ("{imbalance: 0.5}", ".imbalance: 0.5 must be at least 1"),
    ("{imbalance: 2, tokens: [1, 1, 1, 1, 1, 1, 1, 1]}", ": give either imbalance, such as 1.3, or tokens, a number for each expert"),
    ("{tokens: [1, 2]}", ".tokens: 2 numbers for 8 experts of mixtral-8x7b; one for each"),
    ("{tokens: [0, 0]}", ": tokens: all experts together have none; some expert needs a token"),
    ("{capacity_factor: -1}", ".capacity_factor: -1 must be above 0; leave it out to drop no token"),
    ("{capacity_factor: 4.5}", ".capacity_factor: 4.5 is above 4, with which an expert takes every token"),
    ("{capacity_factor: .inf}", ".capacity_factor: inf must be at most 1e+06; leave it out to drop no token"),
    ("{pad_to_capacity: true}", ": pad_to_capacity needs a capacity_factor, such as 1.1, up to which rows are padded"),
    ("{imbalance: 1, exchange: 0.5}", ".exchange: unknown key; known: capacity_factor, imbalance, pad_to_capacity, tokens"),
])  # fmt: skip
def test_a_wrong_routing_is_refused_at_its_line(text: str, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        topology(text)
    assert str(caught.value) == f"topo.yaml:{len(MIXTURE.splitlines()) + 1}: workload.routing{message}"


def test_a_routing_without_experts_is_refused() -> None:
    with pytest.raises(TopologyError) as caught:
        topology("real", TOPOLOGY)
    assert str(caught.value).endswith(f"workload.{DENSE}")


def test_an_edit_sets_a_key_of_the_routing_where_there_is_none() -> None:
    changed = edited(topology(), {"workload.routing.imbalance": 1.5}).workload
    assert changed is not None and changed.routing == Routing(1.5)
    back = edited(topology("real"), {"workload.routing": None}).workload
    assert back is not None and back.routing == BALANCED


def _plan(of_workload: Routing, **config: object) -> Plan:
    """A plan of sixteen ranks with ep 4."""
    made = described(nodes(dp=16, ep=4, shape={"experts": 16, "experts_per_token": 4}, **config))
    workload = replace(made.workload, routing=of_workload)
    return replace(made, workload=workload, topology=replace(made.topology, workload=workload))


@pytest.mark.parametrize(("of_workload", "of_plan", "kept"), [
    (BALANCED, {}, None),
    (Routing(1.5), {"imbalance": 1.5}, None),
    (Routing(1.5), {}, "balanced"),
    (Routing(1.5), {"imbalance": 1.5, "exchange": 0.5}, {"imbalance": 1.5, "exchange": 0.5}),
    (BALANCED, {"imbalance": 2.0}, {"imbalance": 2.0}),
])  # fmt: skip
def test_a_plan_says_a_routing_of_its_own_only(of_workload: Routing, of_plan: dict[str, float], kept: object) -> None:
    plan = _plan(of_workload, **of_plan)
    data = planfile.facts(plan)
    assert data["config"].get("routing") == kept
    assert data["workload"].get("routing") == ({"imbalance": 1.5} if of_workload != BALANCED else None)
    read = planfile.from_text("plan.json", planfile.to_json(plan))
    assert (read.workload.routing, read.config.imbalance) == (of_workload, plan.config.imbalance)
    assert planfile.facts(read)["config"] == data["config"]


def test_a_simulation_reads_the_routing_of_the_workload() -> None:
    even, uneven = _plan(BALANCED), _plan(Routing(1.5), imbalance=1.5)
    text = planfile.to_json(even).replace('"precision"', '"routing": {"imbalance": 1.5}, "precision"', 1)
    assert (
        simulate(planfile.from_text("plan.json", text)).step_s
        == simulate(planfile.from_text("u", planfile.to_json(uneven))).step_s
    )
    assert simulate(uneven).step_s > simulate(even).step_s
    with pytest.raises(PlanError) as caught:
        planfile.from_text("plan.json", text.replace('"imbalance": 1.5', '"imbalance": -1'))
    assert "workload.routing.imbalance: -1 must be at least 1" in str(caught.value)
