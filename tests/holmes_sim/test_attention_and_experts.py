"""What `plan` says of attention and experts on devices of unlike types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import holmes_sim as hs
from holmes_sim import attention_and_experts, commands, printing
from holmes_sim.attention_and_experts import SplitSearch, beside, compared, searched
from planner.costs.context import PlanningContext
from planner.limits import Limits
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from planner.space.shape import Shape
from planner.time_limit import TimeLimit
from sim.errors import NotModelled
from sim.formats import disaggregatedfile, documents, topology
from sim.plan.plan import Plan
from sim.workload.routing import Routing
from sim.workload.workload import Workload
from tests import builders as make

FLEET = """
format: holmes-sim/topology/1
name: two-types
source: "chosen: two servers whose devices differ"
clusters:
  new:
    nodes: 2
    node: {devices: {type: a40, count: 1}, intra_node: pcie4, nics: [{type: roce, bandwidth: 100 Gbit/s, count: 1}]}
  old:
    nodes: 2
    node: {devices: {type: v100-sxm2-32gb, count: 1}, intra_node: pcie3, nics: [{type: roce, bandwidth: 100 Gbit/s, count: 1}]}
links: [{between: [new, old], type: roce, bandwidth: 200 Gbit/s, latency: 1 us}]
workload:
  model: {name: small, layers: 2, hidden: 1024, heads: 8, kv_heads: 2, ffn_hidden: 3584, vocab: 32000, mlp: swiglu, experts: 8,
    experts_per_token: 2}
  global_batch_size: 8
  seq_len: 16384
  precision: fp16
"""
WHERE = topology.from_document(documents.parse("two-types.yaml", FLEET))


def asked(**wishes: int) -> Request:
    return commands.requirements.request(WHERE, commands.workload_of(WHERE), Wishes(**wishes))


@pytest.fixture(scope="module")
def slow() -> Plan:
    """A pipeline with one layer on each cluster."""
    return simulate_plan(build(asked(), Shape(1, 2, 1, "full", "1f1b", 1, 1), (("new", 1), ("old", 1)), "by hand"))


def test_it_is_faster_and_said_in_one_line(slow):
    found = searched(asked(), wanted=True)
    split = compared(found, slow)
    assert found is not None and split is not None
    assert [str(device) for device in split.stage.attention] == ["new/node0/dev0", "new/node1/dev0"]
    assert split.saved == pytest.approx(1 - found.step / step(slow))
    assert str(split) == (
        f"Faster, but no framework runs it: {split.stage} (zebra parallelism), {split.step * 1e3:.4g} ms, {split.saved:.0%} "
        f"less time (no such stage that was searched takes less than {split.lower_bound_s * 1e3:.4g} ms). `-o FILE` also "
        "writes it, for `holmes-sim run`; docs/attention-and-experts.md says what is modelled."
    )
    assert 0.5 * split.step < split.lower_bound_s <= split.step
    assert split.plan.lower_bound_s == split.lower_bound_s


def test_its_plan_has_the_same_numbers(slow):
    """The file of the plan, read and simulated anew, has the step that the search has found."""
    found = searched(asked(), wanted=True)
    split = compared(found, slow)
    assert split is not None
    again = disaggregatedfile.from_text("plan.disaggregated.json", disaggregatedfile.to_json(split.plan))
    run = hs.simulate_disaggregated(again)
    assert (run.prediction.step_s, run.confirmed) == (split.step, True)
    assert again.made_by.strategy == "zebra"


def test_it_is_written_beside_the_plan():
    assert beside(Path("a/plan.json")) == Path("a/plan.disaggregated.json")
    assert beside(Path("plan")) == Path("plan.disaggregated.json")


def test_nothing_is_said_where_little_is_gained(slow):
    found = searched(asked(), wanted=True)
    assert found is not None
    assert compared(replace(found, step=0.995 * step(slow)), slow) is None
    assert compared(None, slow) is None


def test_a_fault_of_the_search_is_not_one_of_the_plan(monkeypatch):
    said = []

    def fails(*given: object, limit: TimeLimit) -> None:
        raise NotModelled("by hand")

    monkeypatch.setattr(attention_and_experts.search, "best", fails)
    assert searched(asked(), wanted=True, progress=said.append) is None
    assert said == ["attention and experts on unlike devices"]
    dense = replace(asked(), workload=Workload(make.model(), 8, 64))
    assert searched(dense, wanted=True, progress=said.append) is None
    assert len(said) == 1


def test_it_is_searched_only_where_nothing_is_pinned_or_limited(monkeypatch):
    monkeypatch.setattr(attention_and_experts.search, "best", lambda *given, limit: limit)
    limit = searched(asked(), wanted=True)
    assert isinstance(limit, TimeLimit)
    assert limit.seconds == 5.0
    assert searched(replace(asked(), time_limit=20.0), wanted=True).seconds == 2.0
    assert searched(asked(), wanted=True, seconds=1.0).seconds == 1.0
    assert searched(asked(), wanted=False) is None
    assert searched(asked(tp=1), wanted=True) is None
    assert searched(replace(asked(), target=None), wanted=True) is None
    assert searched(replace(asked(), machines=(("new", 1),)), wanted=True) is None
    assert searched(replace(asked(), limits=Limits(devices=2)), wanted=True) is None


def test_it_is_searched_once_with_the_first_plan_or_in_the_end(monkeypatch):
    """Not where the search was interrupted; Ctrl-C ends it, not the plan."""
    monkeypatch.setattr(attention_and_experts.search, "best", lambda *given, limit: limit)
    context = PlanningContext(asked())
    early, late, ended = (SplitSearch(asked(), True, context) for _ in range(3))
    early.run()
    first = early.found
    early.finish()
    assert early.found is first is not None
    late.finish()
    assert late.found is not None
    monkeypatch.setattr(attention_and_experts.search, "best", interrupted)
    SplitSearch(asked(), True, context).finish()
    assert context.interrupted
    ended.finish()
    assert ended.found is None


def interrupted(*given: object, limit: TimeLimit) -> None:
    raise KeyboardInterrupt


def test_a_plan_says_it(monkeypatch, slow):
    """It is printed as a line of its own."""
    split = compared(searched(asked(), wanted=True), slow)
    monkeypatch.setattr(commands.attention_and_experts, "compared", lambda found, plan: split)
    pins = {"tp": 1, "pp": 1, "dp": 4, "microbatch_size": 1, "recompute": "full", "schedule": "1f1b", "zero_stage": 1}
    answer = commands.plan(WHERE, time_limit=5.0, target="none", **pins)
    assert answer.split == split
    lines = [str(part) for part in printing.planned(answer).renderables]
    assert str(split) in lines
    assert str(split) not in [str(part) for part in printing.planned(replace(answer, split=None)).renderables]


def test_nothing_is_searched_where_experts_are_uneven():
    workload = replace(commands.workload_of(WHERE), routing=Routing(1.3))
    assert searched(replace(asked(), workload=workload), wanted=True) is None
