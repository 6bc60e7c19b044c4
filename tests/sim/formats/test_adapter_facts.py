"""Adapters in topologies and plans: what may be written, what is written back, and one line for each fault."""

from __future__ import annotations

import pytest

from holmes_sim import commands, requirements
from planner.search.fitting import fitting
from sim.errors import TopologyError
from sim.formats import adapter_facts, planfile
from sim.formats.edits import edited
from sim.formats.topology import workload_facts
from sim.workload.adapter import PRODUCTS, Adapter

LAB = "lab/lab-slow-dp"


def changed(**values: object):
    return edited(commands.load(LAB), {f"workload.adapter.{key}": value for key, value in values.items()})


@pytest.mark.parametrize(
    ("values", "adapter"),
    [
        ({"r": 16}, Adapter(16)),
        ({"r": 16, "target_modules": "all-linear"}, Adapter(16)),
        ({"r": 8, "target_modules": ["v_proj", "q_proj"]}, Adapter(8, ("q_proj", "v_proj"))),
        ({"r": 8, "target_modules": "q_proj, v_proj"}, Adapter(8, ("q_proj", "v_proj"))),
        ({"r": 64, "base_precision": "nf4"}, Adapter(64, tuple(PRODUCTS), "nf4")),
    ],
)
def test_a_topology_says_what_is_trained(values: dict[str, object], adapter: Adapter) -> None:
    assert changed(**values).workload.adapter == adapter


def test_written_facts_are_short() -> None:
    assert adapter_facts.written(Adapter(16)) == {"r": 16, "target_modules": "all-linear"}
    own = Adapter(4, ("v_proj", "q_proj"), "nf4")
    assert adapter_facts.written(own) == {"r": 4, "target_modules": ["q_proj", "v_proj"], "base_precision": "nf4"}
    assert "adapter" not in workload_facts(commands.load(LAB).workload)


def test_a_plan_keeps_its_adapter(tmp_path) -> None:
    topology = changed(r=4, base_precision="nf4")
    plan = fitting(requirements.request(topology, commands.workload_of(topology, seq_len=64), target="none"))
    assert plan is not None and plan.workload.adapter == Adapter(4, base_precision="nf4")
    (tmp_path / "plan.json").write_text(planfile.to_json(plan))
    assert commands.read_plan(tmp_path / "plan.json").workload == plan.workload


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"r": 0}, "workload.adapter.r: 0 must be at least 1"),
        ({"target_modules": "q_proj"}, "workload.adapter.r: this key is missing"),
        (
            {"r": 8, "target_modules": "all"},
            "workload.adapter: adapter.target_modules 'all' is unknown; known: all-linear, q_proj",
        ),
        ({"r": 8, "target_modules": 3}, "workload.adapter.target_modules: a list is expected here, not 3"),
        ({"r": 8, "base_precision": "int8"}, "workload.adapter: adapter.base_precision 'int8' is unknown; known: nf4"),
        ({"r": 8, "alpha": 16}, "workload.adapter.alpha: unknown key"),
    ],
)
def test_faults_are_one_line(values: dict[str, object], text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        changed(**values)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_a_model_with_experts_is_refused_where_it_is_named() -> None:
    with pytest.raises(TopologyError, match=r"workload\.adapter: adapter: model mixtral-8x7b has experts"):
        edited(commands.load(LAB), {"workload.adapter.r": 8, "workload.model": "mixtral-8x7b"})
    with pytest.raises(TopologyError, match="adapter: model mixtral-8x7b has experts"):
        commands.workload_of(changed(r=8), model="mixtral-8x7b")
