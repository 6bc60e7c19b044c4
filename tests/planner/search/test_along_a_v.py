"""Plans of a pinned schedule with pairs of passes: against all of them on tiny fleets, what is refused, and the bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from planner import api
from planner.bounds.two_stage_ranks import LEAST, sequences
from planner.costs.context import PlanningContext
from planner.costs.node_classes import holds, most_stages
from planner.diagnosis.reasons import verdicts
from planner.limits import Limits
from planner.pipelines.search import is_modelled
from planner.placement.ranks import build
from planner.placement.simulation import fits, step
from planner.request import Request, Wishes
from planner.search import along_a_v
from planner.search.along_a_v_space import ALONG, along
from planner.space.shapes import searched
from planner.target import Target
from sim.analytic.evaluator import evaluate
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled, OptionError
from sim.field_changes import changed
from sim.hardware.cluster import Fleet, Trunk
from sim.plan.allowed import Allowed
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload
from tests import builders as make
from tests.planner.brute_force import fastest_step
from tests.planner.builders import request

PINNED = Wishes(schedule="dualpipev", recompute="none")
EXPERTS = {"experts": 4, "experts_per_token": 2, "tied_embeddings": False}


def one_cluster(bandwidth: float = 1e7) -> Fleet:
    return make.fleet(make.cluster(nodes=4, devices=1, nics=(make.nic(bandwidth=bandwidth),), spec=make.device(speed=2e9)))


def two_clusters() -> Fleet:
    nics = (make.nic("ethernet", 1e6, latency=1e-3),)
    chips = {"a": make.device("fast", 2e9, 1e9), "b": make.device("slow", 1e9, 1e9)}
    fast, slow = (make.cluster(name, 2, nics=nics, spec=chip) for name, chip in chips.items())
    return make.fleet(fast, slow, trunks=(Trunk(("a", "b"), "ethernet", 1e6, 1e-3),))


def every(question: Request) -> Iterator[Plan]:
    """The plan of every layout, sequence of clusters, split of layers and order of gathers of the space."""
    workload = question.workload
    for shape in searched(replace(question, wishes=replace(question.wishes, vpp=2)), across=True, unequal=False):
        if shape.zero_stage > 1 or not shape.divides(workload):
            continue
        held = [one for one in question.clusters() if holds(question, one, shape)]
        rooms = [(one.name, most_stages(question, one, shape)) for one in held]
        most = min(sum(room for _, room in rooms), workload.model.layers // LEAST, shape.microbatches(workload) // 2)
        for pp in range(2, most + 1):
            for clusters, split, gather in itertools.product(
                sequences(rooms, pp), splits(workload.model.layers, pp), (True, False)[: 1 + (shape.slots > 1)]
            ):
                with suppress(NoRoute, NotDefined, NotModelled):
                    own = changed(shape, vpp=2, overlap_param_gather=gather)
                    yield build(question, own, tuple(zip(clusters, split, strict=True)), "by hand")


def splits(total: int, ranks: int) -> list[tuple[int, ...]]:
    cuts = itertools.combinations(range(1, total), ranks - 1)
    found = (tuple(b - a for a, b in itertools.pairwise((0, *cut, total))) for cut in cuts)
    return [split for split in found if min(split) >= LEAST]


@pytest.mark.parametrize(
    ("machines", "layers", "batch", "facts"),
    [
        (one_cluster(), 8, 8, {"tied_embeddings": False}),
        (one_cluster(1e6), 7, 12, EXPERTS),
        (two_clusters(), 6, 8, {"tied_embeddings": False}),
        (two_clusters(), 7, 16, EXPERTS),
    ],
)
def test_no_plan_of_the_space_is_faster_than_the_bound(
    machines: Fleet, layers: int, batch: int, facts: dict[str, object]
) -> None:
    question = request(machines, make.model(layers, **facts), batch, PINNED)
    found = along_a_v.plan(question, PlanningContext(question))
    least = fastest_step(every(question))
    assert found.certificate is not None and found.certificate.whole_lower_bound_s is not None
    assert found.certificate.whole_lower_bound_s <= least * (1 + 1e-9)
    assert step(found) == pytest.approx(least, rel=1e-3)
    assert (found.config.schedule, found.config.vpp) == ("dualpipev", 2)
    assert fits(found)


def test_the_first_bound_of_a_layout_is_below_all_its_plans() -> None:
    question = request(two_clusters(), make.model(7, **EXPERTS), 12, PINNED)
    bounds = {(one.shape, one.pp): one.bound for one in along_a_v.Search(question, PlanningContext(question)).layouts}
    checked = 0
    for plan in every(question):
        config = plan.config
        (bound,) = (
            bound
            for (shape, pp), bound in bounds.items()
            if (shape.dp, shape.ep, shape.etp, shape.microbatch_size, pp)
            == (config.dp, config.ep, config.etp, config.microbatch_size, config.pp)
        )
        assert bound <= evaluate([plan])[0]
        checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("wishes", "facts", "text"),
    [
        (PINNED, {"tied_embeddings": True}, "schedule dualpipev is not modelled with a tied embedding, which gpt has"),
        (replace(PINNED, zero_stage=2), EXPERTS,
         "schedule dualpipev is planned with vpp 2, ZeRO 0 or 1, equal recomputation and nothing on hosts, not with "
         "--schedule dualpipev --recompute none --zero-stage 2"),
        (PINNED, EXPERTS | {"dense_layers": 1, "dense_ffn_hidden": 96},
         "schedule dualpipev is planned for models of equal layers, not for gpt"),
        (replace(PINNED, microbatch_size=4), EXPERTS, "no plan of schedule dualpipev was found: it needs two layers and two"),
    ],
)  # fmt: skip
def test_what_is_not_planned_is_said(wishes: Wishes, facts: dict[str, object], text: str) -> None:
    model = replace(make.model(8, **facts), name="gpt")
    with pytest.raises(Infeasible, match=f"^{text}"):
        api.plan(request(one_cluster(), model, 8, wishes))


@pytest.mark.parametrize(
    ("wishes", "facts", "remedy"),
    [
        (PINNED, {"tied_embeddings": True}, "--schedule 1f1b instead of dualpipev"),
        (replace(PINNED, zero_stage=2), EXPERTS, "--zero-stage 1 instead of 2"),
        (replace(PINNED, vpp=4), EXPERTS, "--vpp 2 instead of 4"),
        (replace(PINNED, pp=1), EXPERTS, "--pp 2 instead of 1"),
        (replace(PINNED, microbatch_size=4), EXPERTS, "--microbatch-size 2 instead of 4"),
    ],
)  # fmt: skip
def test_a_refusal_names_another_pin_before_another_schedule(wishes: Wishes, facts: dict[str, object], remedy: str) -> None:
    with pytest.raises(Infeasible, match=rf"; remedy: {remedy}$"):
        api.plan(request(one_cluster(), make.model(8, **facts), 8, wishes))


def test_what_is_required_is_left_to_the_search_for_conflicts() -> None:
    question = request(one_cluster(), make.model(8, tied_embeddings=True), 8, PINNED)
    with pytest.raises(Infeasible, match=r"with a tied embedding, which [^;]*$"):
        api.plan(replace(question, limits=Limits((("tp", Allowed((1,))),))))


def test_they_are_beside_schedules_that_are_listed_with_them() -> None:
    """Whatever the model and the target, where the pins allow it."""
    machines, model = one_cluster(), make.model(8, tied_embeddings=False)
    listed = Limits((("schedule", Allowed(("1f1b", "dualpipev"))),))
    question = replace(request(machines, model, 16, Wishes(recompute="none", pp=4)), limits=listed)
    assert along_a_v.may_be_beside(question)
    assert not along_a_v.may_be_beside(replace(question, wishes=replace(question.wishes, zero_stage=3)))
    found = api.plan(question)
    others = api.plan(replace(question, limits=Limits((("schedule", Allowed(("1f1b",))),))))
    own = api.plan(replace(question, wishes=replace(question.wishes, schedule="dualpipev")))
    assert step(found) == min(step(others), step(own)) < max(step(others), step(own))
    assert found.certificate is not None
    assert [axis.values for axis in found.certificate.space if axis.name == ALONG] == [along("dualpipev").values]


def test_other_strategies_do_not_plan_it() -> None:
    question = request(one_cluster(), make.model(8, **EXPERTS), 8, PINNED)
    with pytest.raises(Infeasible, match=r"^megatron does not plan with schedule dualpipev; use strategy certified$"):
        api.plan(question, "megatron")


def test_the_schedule_is_named_where_the_target_refuses_it() -> None:
    """Before what else it refuses of the layouts."""

    def one_stage_a_rank(config: ParallelConfig, workload: Workload) -> Iterator[str]:
        yield f"ep {config.ep}: 1"
        yield f"schedule {config.schedule}: 1f1b"

    target = Target("plain", "any", (), one_stage_a_rank, lambda plan: iter(()))
    question = replace(request(one_cluster(), make.model(8, **EXPERTS), 8, PINNED), target=target)
    with pytest.raises(Infeasible, match=r"^plain cannot express schedule dualpipev: 1f1b; remedy: leaving out --for plain$"):
        api.plan(question)


def test_a_target_may_need_that_nothing_overlaps() -> None:
    """A target that takes equal ranks without overlap only, as FlagScale does."""

    def overlaps(config: ParallelConfig, workload: Workload) -> Iterator[str]:
        if config.overlap_grad_reduce or config.overlap_param_gather:
            yield "overlap_grad_reduce or overlap_param_gather: false"

    def unequal(plan: Plan) -> Iterator[str]:
        if len(set(plan.layers)) > 1:
            yield "layers: as many on each rank"

    question = request(one_cluster(), make.model(9, **EXPERTS), 16, replace(PINNED, pp=3, dp=1))
    found = api.plan(replace(question, target=Target("picky", "any", (), overlaps, unequal)))
    assert not found.config.overlap_grad_reduce
    assert found.layers == (3, 3, 3)
    assert found.certificate is not None and found.certificate.target == "picky"


def test_the_time_limit_leaves_the_bound_of_the_work() -> None:
    question = replace(request(one_cluster(), make.model(8, **EXPERTS), 8, PINNED), time_limit=1e-9)
    context = PlanningContext(question)
    found = along_a_v.plan(question, context)
    assert found.certificate is not None and found.certificate.time_limit_reached
    assert 0 < found.certificate.lower_bound_s == along_a_v.Search(question, context).layouts[0].bound < step(found) < math.inf


def test_what_has_a_search_of_other_schedules_says_so() -> None:
    """Costs of other schedules would explain layouts wrongly, and bound other objectives."""
    chip = replace(make.device(speed=2e9), price=1.0)
    machines = make.fleet(make.cluster(nodes=4, devices=1, nics=(make.nic(bandwidth=1e7),), spec=chip))
    question = request(machines, make.model(8, **EXPERTS), 8, PINNED)
    with pytest.raises(OptionError, match=r"^objective cost: plans of schedule dualpipev are searched for their step alone$"):
        api.plan_for("cost", question, "certified", PlanningContext(question))
    assert list(verdicts(PlanningContext(question), 5)) == []
    assert not is_modelled(question)


def not_interleaved(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    if config.schedule not in ("1f1b", "dualpipev"):
        yield f"schedule {config.schedule}: 1f1b"


def pairing(overlaps: bool = True) -> Target:
    return Target("pairing", "any", (), not_interleaved, lambda plan: iter(()), None, overlaps)


def across_nodes(target: Target, **wishes: object) -> Request:
    """Four nodes of one device, two of which share the experts: exchanges take longer than the compute that they wait for."""
    machines = make.fleet(make.cluster(nodes=4, devices=1, nics=(make.nic(bandwidth=3e6),), spec=make.device(speed=2e9)))
    pins = Wishes(**({"recompute": "none", "ep": 2, "pp": 2, "microbatch_size": 1} | wishes))
    return replace(request(machines, make.model(8, **EXPERTS), 32, pins), target=target)


def test_targets_that_overlap_pairs_have_these_plans_beside_others() -> None:
    question = across_nodes(pairing())
    found, without = api.plan(question), api.plan(across_nodes(pairing(False)))
    assert (found.config.schedule, without.config.schedule) == ("dualpipev", "1f1b")
    assert step(found) < 0.95 * step(without)
    alone = api.plan(across_nodes(pairing(), schedule="dualpipev"))
    assert step(found) == step(alone)
    both, other, own = found.certificate, without.certificate, alone.certificate
    assert both is not None and other is not None and own is not None
    assert both.lower_bound_s <= min(other.lower_bound_s, own.lower_bound_s) * (1 + 1e-3)
    assert [axis.values for axis in both.space if axis.name == ALONG] == [along("dualpipev").values]
    assert "dualpipev" in other.outside[0] and "dualpipev" not in both.outside[0]
    assert both.objective_s == step(found) and not both.beside_space


@pytest.mark.parametrize(
    ("facts", "searched"),
    [
        ({}, True),
        ({"wishes": {"ep": 1}}, False),
        ({"wishes": {"schedule": "1f1b"}}, False),
        ({"wishes": {"zero_stage": 3}}, False),
        ({"target": pairing(False)}, False),
        ({"model": EXPERTS | {"tied_embeddings": True}}, False),
        ({"model": {"tied_embeddings": False}}, False),
    ],
)
def test_they_are_beside_where_experts_are_over_ranks_and_pins_allow_it(facts: dict[str, Any], searched: bool) -> None:
    question = across_nodes(facts.get("target", pairing()), **facts.get("wishes", {}))
    model = make.model(8, **facts.get("model", EXPERTS))
    assert along_a_v.may_be_beside(replace(question, workload=replace(question.workload, model=model))) == searched
    assert along_a_v.reserved(question) == 0.0, "a request without a time limit"
