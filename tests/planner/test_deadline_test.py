"""The deadline test: monotone sizes, the least tail, errors that propagate, families of shapes, prices of real fleets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.certificates.fleets import draw
from planner import strategies
from planner.bounds.deadline_test import DeadlineTest, deadline_tests
from planner.bounds.greedy_filling import Filling
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.shape_families import AnyChunks, AnySchedule, AnyZeroStage
from planner.costs.context import PlanningContext
from planner.costs.fleet_views import FleetViews
from planner.costs.node_classes import NodeClass, node_classes, under
from planner.placement.ranks import build
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.search.candidates import priced
from planner.space.shapes import Shape, overlaps, searched, splitting, variants
from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.analytic.stage_costs import StageCosts
from sim.errors import Infeasible, NoRoute, NotModelled, PlanError
from sim.formats.documents import parse
from sim.formats.topology import from_document, load

EIGHT_H100 = {
    "devices": {"type": "h100-sxm5-80gb", "count": 8}, "intra_node": "nvlink4",
    "nics": [{"type": "infiniband", "bandwidth": "400 Gbit/s", "count": 8}],
}  # fmt: skip
NO_PEERS = {
    "bandwidth": "6 GB/s", "latency": "10 us", "overhead": "10 us", "interference": 0.02,
    "efficiency": dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"), 0.8),
}  # fmt: skip
FOUR_PCIE = {
    "devices": {"type": "a100-pcie-40gb", "count": 4}, "intra_node": NO_PEERS,
    "nics": [{"type": "infiniband", "bandwidth": "400 Gbit/s", "count": 4}],
}  # fmt: skip


def asked(node: dict[str, object], nodes: int, model: object, batch: int, seq_len: int, **wishes: object) -> Request:
    """A question about one cluster, `a`."""
    workload = {"model": model, "global_batch_size": batch, "seq_len": seq_len, "precision": "bf16"}
    document = {
        "format": "holmes-sim/topology/1",
        "name": "one",
        "clusters": {"a": {"nodes": nodes, "node": node}},
        "workload": workload,
    }
    topology = from_document(parse("one", json.dumps(document)))
    assert topology.workload is not None
    return Request(topology, topology.workload, Wishes(**wishes))


@pytest.fixture(scope="module")
def tied_on_pcie() -> Request:
    """Gemma-2-9B's shape, with a tied embedding of 256,000 words, on two servers whose NICs are faster than their inside."""
    model = {
        "layers": 42, "hidden": 3584, "heads": 16, "kv_heads": 8, "head_dim": 256, "ffn_hidden": 14336, "vocab": 256_000,
        "mlp": "swiglu", "tied_embeddings": True,
    }  # fmt: skip
    return asked(FOUR_PCIE, 2, model, 32, 2048)


@pytest.mark.parametrize("pp", range(2, 9))
def test_a_tied_embedding_is_summed_where_the_last_stage_lies(tied_on_pcie, pp):
    """Up to four stages share a node of 6 GB/s; the fifth and later ones are reached over NICs of 50 GB/s."""
    context, shape = PlanningContext(tied_on_pcie), Shape(1, 1, 1, "none", "1f1b", 1, 1)
    (option,) = node_classes(context, shape)
    layers = [42 // pp + (place < 42 % pp) for place in range(pp)]
    plan = build(tied_on_pcie, shape, tuple(("a", k) for k in layers), "by hand")
    nic = context.fleets.nic_of((option.cluster,))
    seconds = context.tied.seconds(option.cluster, option.cluster, pp - 1, shape, nic)
    assert seconds == pytest.approx(plan_costs.tied_seconds(plan), rel=1e-12)
    assert (seconds > 0.7) == (pp <= 4)
    assert context.tied.least(option.cluster, option.cluster, shape, 8, nic) <= seconds
    (draft,) = priced(context, shape, (option,), [tuple((0, k) for k in layers)], 1)
    assert draft.seconds == pytest.approx(float(evaluate([plan])[0]), rel=1e-9)


def test_two_servers_of_pcie_cards_have_a_bound_below_their_best_pipeline(tied_on_pcie):
    """`plan` said 4.83 s, none below 4.806 s; eight stages of microbatches of 1 under 1F1B take 4.40 s."""
    free, eight = (
        strategies.get("certified").plan(question, PlanningContext(question))
        for question in (tied_on_pcie, replace(tied_on_pcie, wishes=Wishes(pp=8, microbatch_size=1, schedule="1f1b")))
    )
    assert step(eight) <= 4.401
    assert step(free) <= step(eight) * (1 + 1e-9)
    assert free.certificate is not None
    assert free.certificate.lower_bound_s <= step(eight)


def test_the_least_tail_of_a_first_stage_is_not_that_of_one_layer():
    """Llama-3-8B on 8 H100, dp 4: reductions hide better behind the buckets of three layers than behind that of one."""
    question = asked(EIGHT_H100, 1, "llama-3-8b", 64, 8192)
    context = PlanningContext(question)
    (option,) = node_classes(context, Shape(1, 4, 1, "none", "1f1b", 1, 1))
    tails = [option.cost("first", k).tail(option.config) for k in range(1, 9)]
    assert tails[0] == pytest.approx(15.393e-3, rel=1e-3)
    assert min(tails) == tails[2] == pytest.approx(13.282e-3, rel=1e-3)
    assert OrderedStages(context, (option,)).first_tail == min(tails)


@given(st.integers(0, 400), st.data())
def test_what_a_stage_holds_is_monotone(seed, data):
    """The envelope grows with the layers; with fewer layers left, a stage leaves no more for those before it."""
    question = draw(seed, 5_000)
    context = PlanningContext(question)
    shapes = [shape for base in searched(question) for shape in variants(question, base) if node_classes(context, shape)]
    shape = data.draw(st.sampled_from(shapes))
    order = data.draw(st.permutations(node_classes(context, shape)))
    stages = OrderedStages(context, tuple(order))
    for i in range(len(order)):
        for role in ("first", "middle", "last"):
            sizes = [stages.sizes(i, role).envelope(k) for k in range(1, stages.layers + 1)]
            for small, large in pairwise(sizes):
                assert small.own <= large.own
                assert small.begin <= large.begin
                assert small.both <= large.both
                assert small.busy <= large.busy * (1 + 1e-12)
                assert small.lane <= large.lane
    if not stages.possible:
        return
    seconds = data.draw(st.floats(0.3, 3.0)) * stages.sizes(0, "middle").exact(stages.layers).own
    filling = Filling(stages, seconds, [option.capacity for option in order], None)
    last = len(order) - 1
    left = [n - filling.most_layers(last, "last", n, 0) for n in range(last + 2, stages.layers + 1)]
    assert all(few <= many for few, many in pairwise(left))


def test_every_size_that_holds_is_listed_where_a_smaller_one_does_not(monkeypatch):
    """Of two stages and six layers, the last may hold 1, 2, 4 or 5 layers, not 3: all four pipelines are listed."""
    question = asked(EIGHT_H100, 1, {"layers": 6, "hidden": 256, "heads": 4, "ffn_hidden": 1024, "vocab": 1024}, 8, 256, pp=2)
    context = PlanningContext(question)
    (option,) = node_classes(context, Shape(1, 4, 1, "none", "1f1b", 1, 1))
    holds = Filling.feasible

    def but_three(self, i, role, k, *more):
        return k != 3 and holds(self, i, role, k, *more)

    monkeypatch.setattr(Filling, "feasible", but_three)
    listed = DeadlineTest(OrderedStages(context, (option,))).pipelines(1e9, 100)
    assert sorted(row[1][1] for row in listed) == [1, 2, 4, 5]


def test_an_unexpected_error_inside_a_bound_is_not_swallowed(monkeypatch, tied_on_pcie):
    """Otherwise its candidates would be dropped, and the bound raised."""
    question = replace(tied_on_pcie, wishes=Wishes(tp=1, dp=1, microbatch_size=1, recompute="none", zero_stage=1))

    def broken(self, *args, **kwargs):
        raise PlanError("a fault of the model")

    monkeypatch.setattr(FleetViews, "nic_of", broken)
    context = PlanningContext(question)
    with pytest.raises(PlanError, match="a fault of the model"):
        deadline_tests(context, node_classes(context, Shape(1, 1, 1, "none", "1f1b", 1, 1)), math.inf)
    monkeypatch.undo()
    monkeypatch.setattr(StageCosts, "of", broken)
    with pytest.raises(PlanError, match="a fault of the model"):
        strategies.get("certified").plan(question, PlanningContext(question))


@pytest.mark.parametrize("seed", range(400, 412))
def test_what_the_evaluator_does_not_hold_is_not_ruled_out(monkeypatch, seed):
    """Without the evaluator no bound is above the plan that is found with it; interleaved pipelines of one stage included."""
    question = draw(seed, 1_500)
    try:
        with_it = strategies.get("certified").plan(question, PlanningContext(question))
    except Infeasible:
        return

    def refuse(config):
        raise NotModelled("not held")

    monkeypatch.setattr("sim.analytic.evaluator.check", refuse)
    without = strategies.get("certified").plan(question, PlanningContext(question))
    assert without.certificate is not None
    assert without.certificate.lower_bound_s <= step(with_it) * (1 + 1e-9)


def test_where_nothing_joins_clusters_no_pipeline_crosses(monkeypatch, tied_on_pcie):
    def unjoined(self, *args):
        raise NoRoute("nothing joins them")

    monkeypatch.setattr(FleetViews, "nic_of", unjoined)
    context = PlanningContext(tied_on_pcie)
    assert deadline_tests(context, node_classes(context, Shape(1, 1, 1, "none", "1f1b", 1, 1)), math.inf) == []


def families(seed: int, most: int) -> Iterator[tuple[PlanningContext, list[Shape]]]:
    """The variants of the first shapes of a drawn question."""
    question = draw(seed, 2_000)
    context = PlanningContext(question)
    for base in islice(searched(question), most):
        yield context, list(variants(question, base))


@pytest.mark.parametrize("seed", range(300, 340))
def test_no_test_rules_out_the_fastest_pipeline_of_its_shapes(seed):
    """Tests of one shape, of all ZeRO stages, of all schedules, and of all numbers of virtual stages."""
    for context, every in families(seed, 6):
        most = max(shape.zero_stage for shape in every)
        names = tuple(dict.fromkeys(shape.schedule for shape in every if shape.vpp == 1))
        fewest = min((shape for shape in every if shape.vpp > 1), key=lambda shape: shape.vpp, default=None)
        for shape in every:
            for one in overlaps(shape):
                for test in deadline_tests(context, node_classes(context, one), 1e9):
                    rows = test.pipelines(1e9, 3_000)
                    if not rows:
                        continue
                    seconds = priced(context, one, test.order, rows, 1)[0].seconds * (1 + 1e-9)
                    assert test.within(seconds)
                    state = replace(every[0], schedule=shape.schedule, vpp=shape.vpp)
                    family = AnyZeroStage(context, *_classes(context, state, most, test), seconds)
                    assert DeadlineTest(family).within(seconds)
                    if shape.vpp == 1:
                        plain = splitting(every[0])
                        scheduled = AnySchedule(context, *_classes(context, plain, most, test), seconds, names)
                        assert DeadlineTest(scheduled).within(seconds)
                    elif fewest is not None:
                        chunked = AnyChunks(context, *_classes(context, fewest, most, test), seconds)
                        assert DeadlineTest(chunked).within(seconds)


def _classes(
    context: PlanningContext, shape: Shape, most: int, test: DeadlineTest
) -> tuple[tuple[NodeClass, ...], tuple[NodeClass, ...]]:
    """The classes of a test under another shape, and under the ZeRO stage that needs least memory."""
    return under(context, shape, test.order), under(context, replace(shape, zero_stage=most), test.order)


@pytest.mark.parametrize("seed", range(300, 340))
def test_no_pipeline_of_one_stage_is_faster_than_its_bounds(seed):
    """The closed form of its own variant, and the bound for all schedules and ZeRO stages, of any that can be evaluated."""
    for context, every in families(seed, 8):
        ways = [{o.cluster.name: o.alone for o in node_classes(context, one)} for one in overlaps(splitting(every[0]))]
        for shape in (one for variant in every for one in overlaps(variant)):
            for option in node_classes(context, shape):
                name = option.cluster.name
                for evenly, own in enumerate(option.alone):
                    with suppress(NotModelled, PlanError):
                        stages = ((name, option.workload.model.layers),)
                        (seconds,) = evaluate([build(context.request, shape, stages, "by hand", bool(evenly))]) * (1 + 1e-9)
                        assert own.single_seconds() <= seconds
                        assert min(classes[name][evenly].single_bound for classes in ways) <= seconds


@pytest.mark.parametrize(
    ("topology", "batch", "wishes"),
    [("holmes-infiniband-4", 96, {"microbatch_size": 3}), ("holmes-infiniband-4", 60, {"tp": 1, "vpp": 5, "pp": 2})],
)
def test_sizes_that_only_pins_reached_are_searched(topology, batch, wishes):
    """At batch 96 the bound was 0.783 s, and microbatches of 3 took 0.761 s."""
    read = load(f"topologies/{topology}.yaml")
    question = Request(read, replace(read.workload, global_batch_size=batch))
    free, pinned = (
        strategies.get("certified").plan(one, PlanningContext(one))
        for one in (question, replace(question, wishes=Wishes(**wishes)))
    )
    assert free.certificate is not None
    assert free.certificate.lower_bound_s <= step(pinned)
    assert step(free) <= step(pinned) * 1.005


def test_zero_vpp_and_microbatch_sizes_of_the_space():
    question = asked(EIGHT_H100, 1, {"layers": 30, "hidden": 256, "heads": 4, "ffn_hidden": 1024, "vocab": 1024}, 12, 256)
    bases = list(searched(question))
    assert {shape.microbatch_size for shape in bases if shape.dp == 1} == {1, 2, 3, 4, 6, 12}
    found = {(shape.schedule, shape.vpp) for shape in variants(question, bases[0])}
    cut = {("interleaved", vpp) for vpp in (2, 3, 4, 5, 6, 8, 10)}
    assert found == {("1f1b", 1), ("zb-h1", 1), ("zb-h2", 1)} | cut
    many = next(shape for shape in bases if shape.dp > 1)
    assert {shape.zero_stage for shape in variants(question, many) if shape.schedule == "zb-h2"} == {1, 2, 3}
