"""Copies of tokens by dispatcher, uneven routing, and the keys of plan files for both."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.errors import PlanError
from sim.formats.config_facts import ConfigFacts, config_facts, config_values
from sim.hardware.stack import DEFAULT
from sim.kernels import payloads
from sim.kernels.compute import layer_seconds, rank_kernels
from sim.plan.parallel_config import ParallelConfig
from sim.plan.under_stack import with_stack
from sim.workload.kernels import Gemm, Pass
from tests.sim.context_and_experts import nodes

LARGE = {"experts": 16, "experts_per_token": 4}


def config(**facts: object) -> ParallelConfig:
    """Sixteen data-parallel ranks, on nodes of four, that divide the experts."""
    return ParallelConfig(**{"dp": 16, "ep": 16, "num_microbatches": (1,) * 16, "domain": 4} | facts)


def counted(experts: int, chosen: int, places: int) -> float:
    """The mean number of places with a chosen expert over all choices: what `copies` is, by enumeration."""
    each = experts // places
    hit = [len({one // each for one in choice}) for choice in combinations(range(experts), chosen)]
    return sum(hit) / len(hit)


def test_a_token_is_copied_for_each_expert_rank_or_node() -> None:
    assert config().copies(16, 4) == 4.0
    assert config(dispatcher="allgather").copies(16, 4) == 16.0
    for dispatcher in ("deepep", "hybridep"):
        assert config(dispatcher=dispatcher).copies(16, 4) == pytest.approx(counted(16, 4, 4)), "four nodes"
        inside = config(dispatcher=dispatcher, dp=4, ep=4, num_microbatches=(1,) * 4)
        assert inside.copies(16, 4) == pytest.approx(counted(16, 4, 4)), "four ranks of one node"


def test_a_mesh_that_ends_within_a_node_reaches_that_node() -> None:
    """Six of twelve ranks on nodes of four are on two nodes: of six experts half are on each, as if all nodes were full."""
    part = config(dispatcher="deepep", dp=12, ep=6, num_microbatches=(1,) * 12)
    assert part.copies(6, 2) == pytest.approx(counted(6, 2, 2))


def test_a_router_that_is_limited_to_some_nodes_sends_to_no_more() -> None:
    """Of four groups of experts on four nodes a token takes two: its rank sends 64 tokens of 96 values twice, not 3.2 times."""
    assert config(dispatcher="deepep").copies(16, 4, 4, 2) == 2.0
    assert config().copies(16, 4, 4, 2) == 4.0, "alltoall sends a copy to each expert"
    sent = {}
    for dispatcher in ("deepep", "alltoall"):
        plan = nodes(dp=16, ep=16, shape=LARGE | {"n_group": 4, "topk_group": 2}, dispatcher=dispatcher, domain=4)
        sent[dispatcher] = payloads.expert_collectives(plan.workload, plan.config, 1, False)[0][2]
    assert sent == {"deepep": 2 * 64 * 96 * 2, "alltoall": 4 * 64 * 96 * 2}


@pytest.mark.parametrize("facts", [
    {"dispatcher": "deepep"}, {"cuda_graphs": ("full_iteration",)}, {"imbalance": 1.5},
    {"capacity_factor": 1.25, "pad_to_capacity": True}, {"imbalance": 1.5, "capacity_factor": 0.5},
])  # fmt: skip
def test_the_upper_bound_has_the_facts_of_the_plan(facts: dict[str, object]) -> None:
    """A device alone launches and sorts as in the plan, but has its share of the tokens only."""
    plan = nodes(dp=16, ep=4, shape=LARGE, microbatches=2, **facts)
    slow = replace(DEFAULT, launch=0.05)
    for one in (plan, with_stack(slow, plan)):
        assert plan_costs.upper_bound_seconds(one) <= simulate(one).step_s


@pytest.mark.parametrize(("dispatcher", "work"), [
    ("alltoall", (("ep", "all_to_all", 4 * 64 * 96 * 2.0, 6.0),)),
    ("allgather", (("ep", "all_gather", 16 * 64 * 96 * 2.0, 3.0), ("ep", "reduce_scatter", 16 * 64 * 96 * 2.0, 3.0))),
])  # fmt: skip
def test_collectives_of_each_dispatcher(dispatcher: str, work: object) -> None:
    plan = nodes(dp=16, ep=16, shape=LARGE, dispatcher=dispatcher)
    assert payloads.expert_collectives(plan.workload, plan.config, 3, False) == work
    beside = replace(plan.config, overlap_expert_communication=True, cuda_graphs=("full_iteration",))
    exposed = payloads.expert_collectives(plan.workload, beside, 3, False)
    assert [one[3] for one in exposed] == pytest.approx([0.4 * one[3] for one in work])


def test_the_busiest_rank_of_an_uneven_router_has_more_tokens_to_send_and_to_compute() -> None:
    even, uneven = (nodes(dp=16, ep=16, shape=LARGE, imbalance=imbalance) for imbalance in (1.0, 1.5))
    sent = [payloads.expert_collectives(plan.workload, plan.config, 1, False)[0][2] for plan in (even, uneven)]
    assert sent[1] == 1.5 * sent[0]
    rows = [
        [k.m for k in rank_kernels(plan.workload, plan.config) if isinstance(k, Gemm) and k.name in ("up", "down")]
        for plan in (even, uneven)
    ]
    assert rows == [[64 * 4] * 2, [64 * 6] * 2], "one expert a rank"
    device = even.fleet.spec(even.placement[0])
    assert layer_seconds(device, uneven.workload, uneven.config) > layer_seconds(device, even.workload, even.config)


@pytest.mark.parametrize(("facts", "load", "sent"), [
    ({"imbalance": 1.5}, 1.5, 1.0),
    ({"imbalance": 1.5, "capacity_factor": 1.2}, 1.2, 1.0),
    ({"imbalance": 1.1, "capacity_factor": 1.25}, 1.1, 1.0),
    ({"imbalance": 1.1, "capacity_factor": 1.25, "pad_to_capacity": True}, 1.25, 1.25),
    ({"capacity_factor": 0.5}, 0.5, 0.5),
])  # fmt: skip
def test_a_capacity_limits_the_busiest_rank_and_padding_fills_every_rank(
    facts: dict[str, object], load: float, sent: float
) -> None:
    assert (config(**facts).load, config(**facts).sent) == (load, sent)


@pytest.mark.parametrize(("facts", "rows", "values", "copied"), [
    ({"capacity_factor": 1.25, "pad_to_capacity": True}, 320, 320 * 96, 64 * (1 + 5)),
    ({"imbalance": 1.5, "capacity_factor": 1.25}, 320, 320 * 96, 64 * (1 + 4)),
    ({"imbalance": 1.5, "capacity_factor": 0.5}, 128, 128 * 96, 64 * (1 + 2)),
])  # fmt: skip
def test_padding_is_computed_sent_and_copied_and_dropped_tokens_are_not(
    facts: dict[str, object], rows: int, values: int, copied: int
) -> None:
    """64 tokens of four choices each: 256 rows of 96 values where no token is dropped and no row is padded."""
    plan = nodes(dp=16, ep=16, shape=LARGE, **facts)
    kernels = rank_kernels(plan.workload, plan.config)
    assert [k.m for k in kernels if isinstance(k, Gemm) and k.name in ("up", "down")] == [rows] * 2
    (dispatch,) = (k for k in kernels if isinstance(k, Pass) and k.name == "dispatch")
    assert dispatch.moved == 2 * copied * 96 * 2
    ((_, _, sent, _),) = payloads.expert_collectives(plan.workload, plan.config, 1, False)
    assert sent == values * 2
    whole = replace(plan.config, dispatcher="allgather")
    assert payloads.expert_collectives(plan.workload, whole, 1, False)[0][2] == 16 * 64 * 96 * 2, "gathered before the choice"


def test_padding_needs_memory() -> None:
    even, padded = (
        nodes(dp=16, ep=16, shape=LARGE, **facts) for facts in ({}, {"capacity_factor": 1.25, "pad_to_capacity": True})
    )
    up = [next(k.saved for k in rank_kernels(p.workload, p.config) if k.name == "up") for p in (even, padded)]
    assert up == [256 * 96 * 2, 320 * 96 * 2]
    assert simulate(padded).step_s > simulate(even).step_s


def test_keys_of_a_plan_file() -> None:
    assert not set(config_facts(config())) & {"etp", "dispatcher", "routing", "overlap_expert_communication", "cuda_graphs"}
    written = config_facts(config(dispatcher="deepep", imbalance=1.5, overlap_expert_communication=True))
    assert (written["dispatcher"], written["routing"]) == ("deepep", {"imbalance": 1.5})
    assert config_values(ConfigFacts(**written))["imbalance"] == 1.5
    assert config_values(ConfigFacts(**written | {"routing": "real"}))["imbalance"] == 1.3
    assert config_values(ConfigFacts(**written | {"routing": "real", "ep": 1}))["imbalance"] == 1.0, "a rank has all experts"
    given = {"imbalance": 1.0, "capacity_factor": 1.1, "pad_to_capacity": True}
    padded = config(**given)
    assert config_facts(padded)["routing"] == given
    values = config_values(ConfigFacts(**config_facts(padded)))
    assert {key: values[key] for key in given} == given
    alone = config_values(ConfigFacts(**config_facts(config()) | {"routing": {"capacity_factor": 1.1}}))
    assert (alone["imbalance"], alone["capacity_factor"], alone["pad_to_capacity"]) == (1.0, 1.1, False)


def test_the_exchange_has_a_factor_of_its_own_where_the_placement_is_known() -> None:
    written = config_facts(config(imbalance=1.5, exchange=0.25))
    assert written["routing"] == {"imbalance": 1.5, "exchange": 0.25}
    assert config_values(ConfigFacts(**written))["exchange"] == 0.25
    assert config_values(ConfigFacts(**config_facts(config(exchange=0.0))))["exchange"] == 0.0
    even, own = (nodes(dp=16, ep=16, shape=LARGE, **facts) for facts in ({}, {"imbalance": 1.5, "exchange": 0.25}))
    sent = [payloads.expert_collectives(plan.workload, plan.config, 1, False)[0][2] for plan in (even, own)]
    assert sent[1] == 0.25 * sent[0]


def test_tokens_that_all_stay_on_their_rank_take_only_the_latency_of_an_exchange() -> None:
    none, tiny = (nodes(dp=16, ep=16, shape=LARGE, exchange=factor) for factor in (0.0, 1e-9))
    assert simulate(none).step_s == pytest.approx(plan_costs.step_seconds(none))
    assert simulate(none).step_s == pytest.approx(simulate(tiny).step_s, rel=1e-6)


def test_tokens_of_each_expert_say_which_rank_is_busiest() -> None:
    """Four experts on two ranks: 5 + 3 tokens and 1 + 1, of which five are the mean."""
    base = config_facts(config(dp=2, ep=2, num_microbatches=(1, 1)))
    assert config_values(ConfigFacts(**base | {"routing": {"tokens": [5, 3, 1, 1]}}))["imbalance"] == pytest.approx(8 / 5)
    for capacity, busiest in ((1.2, 1.2), (1.6, 7 / 5), (0.8, 1.0)):
        routing = {"tokens": [5, 3, 1, 1], "capacity_factor": capacity}
        assert config_values(ConfigFacts(**base | {"routing": routing}))["imbalance"] == pytest.approx(busiest), capacity
    with pytest.raises(PlanError) as caught:
        config_values(ConfigFacts(**base | {"routing": {"tokens": [5, 3, 1]}}))
    assert str(caught.value) == "routing.tokens: 3 experts with 9 tokens for ep 2; a multiple of it"
    with pytest.raises(ValueError, match="give either imbalance"):
        ConfigFacts(**base | {"routing": {}})


@pytest.mark.parametrize(("facts", "message"), [
    ({"dispatcher": "deep"}, "dispatcher 'deep' is unknown; known: alltoall, allgather, deepep, hybridep"),
    ({"imbalance": 0.5}, "routing: an imbalance is at least 1, not 0.5: the busiest rank over the mean"),
    ({"exchange": -1.0}, "routing: exchange -1 is negative; 1 is that of equal shares among all ranks"),
    ({"capacity_factor": 0.0}, "routing: capacity_factor 0 must be above 0; leave it out to drop no token"),
    ({"pad_to_capacity": True},
     "routing: pad_to_capacity needs a capacity_factor, such as 1.1, up to which rows are padded"),
    ({"exchange": 0.5, "capacity_factor": 1.1, "pad_to_capacity": True},
     "routing: exchange 0.5 with pad_to_capacity: padded shares are equal; leave it out"),
    ({"cuda_graphs": ("all",)},
     "cuda_graphs 'all' is unknown; known: full_iteration, attn, mlp, moe, moe_router, moe_preprocess"),
])  # fmt: skip
def test_wrong_values_are_refused(facts: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        config(**facts)
    assert str(caught.value) == message
