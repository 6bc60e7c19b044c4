"""Problems of a plan's layers: seconds are those of the simulator, tokens those of the counts."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from planner.experts import rules
from planner.experts.layer_problems import layer_problems
from planner.experts.problem import cost
from sim.engine.carriers import carriers_of
from sim.errors import OptionError
from sim.kernels import beside, payloads
from sim.kernels.compute import layer_seconds
from sim.plan.plan import Plan
from sim.workload.expert_counts import ExpertCounts, LayerCounts
from tests.sim.context_and_experts import nodes

SHAPE = {"experts": 16, "experts_per_token": 2, "ffn_hidden": 96}


def counts(*layers: LayerCounts) -> ExpertCounts:
    return ExpertCounts("by hand", layers or (LayerCounts(None, {"": (1.0,) * 16}),))


def plan(**facts: object) -> Plan:
    return nodes(**({"dp": 16, "ep": 16, "shape": SHAPE} | facts))


@pytest.mark.parametrize("facts", [
    {}, {"ep": 4}, {"recompute": "full"}, {"dispatcher": "deepep", "domain": 4}, {"overlap_expert_communication": True},
    {"tp": 2, "dp": 8, "ep": 8, "sequence_parallel": True},
])  # fmt: skip
def test_equal_tokens_cost_what_the_simulator_says(facts: dict[str, object]) -> None:
    """With equal tokens of all experts, exchange and even exchange are the collectives of a layer; imbalance is 1."""
    given = plan(**facts)
    (block,) = layer_problems(given, counts())[0].blocks
    found = cost(block.problem, rules.contiguous(block.problem))
    carrier = next(one for key, one in carriers_of(given).items() if key[0] == "ep")
    work = [one[2:] for back in (False, True) for one in payloads.expert_collectives(given.workload, given.config, 1, back)]
    work += [one[3:] for back in (False, True) for one in beside.beside_launches(given.workload, given.config, 1, back)]
    assert work, "the exchange is waited for, or beside launches"
    bytes_part = sum(count * nbytes * carrier.paces[-1].per_byte for nbytes, count in work)
    assert found.exchange == pytest.approx(bytes_part)
    assert block.even == pytest.approx(bytes_part)
    assert found.busiest == pytest.approx(1.0)


def test_experts_take_what_more_tokens_take() -> None:
    given = plan()
    (block,) = layer_problems(given, counts())[0].blocks
    spec = given.fleet.spec(given.placement[0])
    one, two = (sum(layer_seconds(spec, given.workload, replace(given.config, imbalance=times))) for times in (1.0, 2.0))
    assert block.problem.compute == pytest.approx([two - one] * 16)


def test_allgather_sends_all_tokens_anyway() -> None:
    (block,) = layer_problems(plan(dispatcher="allgather"), counts())[0].blocks
    assert (block.even, block.problem.sent) == (0.0, 0.0)
    assert cost(block.problem, rules.contiguous(block.problem)).exchange == 0.0


def test_tokens_by_node_and_layer() -> None:
    own = LayerCounts(1, {f"c/node{n}": tuple(float(n == e // 4) for e in range(16)) for n in range(4)})
    problems = layer_problems(plan(), counts(own, LayerCounts(None, {"c": (2.0,) * 16})))
    assert [one.layer for one in problems] == [0, 1]
    other, at_home = (one.blocks[0].problem for one in problems)
    assert other.tokens == pytest.approx(np.full((4, 16), 1 / 16))
    assert at_home.tokens[2] == pytest.approx([0.25 * (8 <= e < 12) for e in range(16)])
    assert cost(at_home, rules.contiguous(at_home)).out_of_node == 0.0


def test_blocks_that_differ_are_kept() -> None:
    """Four ep groups of four ranks, one a node: alike with equal tokens, four problems where each node's tokens are its own."""
    given = plan(ep=4)
    assert len(layer_problems(given, counts())[0].blocks) == 1
    by_node = {f"c/node{n}": tuple(1.0 + (e == n) for e in range(16)) for n in range(4)}
    assert len(layer_problems(given, counts(LayerCounts(None, by_node)))[0].blocks) == 4


@pytest.mark.parametrize(("ep", "domain"), [(16, (0,) * 4 + (1,) * 4 + (2,) * 4 + (3,) * 4), (4, (0, 1, 2, 3))])
def test_pairs_are_for_dispatchers_that_send_a_token_once(ep: int, domain: tuple[int, ...]) -> None:
    together = counts(LayerCounts(None, {"": (1.0,) * 16}, ((0, 1, 1.0),)))
    assert layer_problems(plan(ep=ep), together)[0].blocks[0].problem.pairs is None
    (block,) = layer_problems(plan(ep=ep, dispatcher="deepep", domain=4), together)[0].blocks
    pairs = block.problem.pairs
    assert pairs is not None
    assert (pairs.experts, pairs.saved.tolist(), pairs.domain) == (((0, 1),), [2 / 2 / 16], domain)
    assert block.problem.sent == 2 * 64 * 96 * 2, "two copies of each token, less what pairs save"


@pytest.mark.parametrize(("facts", "made", "replicas", "message"), [
    ({"ep": 1}, counts(), 0, "the plan has ep 1: every rank holds all experts; make one with --ep above 1"),
    ({"capacity_factor": 1.25}, counts(), 0,
     "the plan has capacity_factor 1.25: which tokens are dropped is not part of the counts; make the plan without it"),
    ({}, counts(LayerCounts(None, {"": (1.0,) * 8}, where="c.yaml:4: layers[0]")), 0,
     "c.yaml:4: layers[0]: 8 experts, but tiny has 16"),
    ({}, counts(LayerCounts(0, {"": (1.0,) * 16})), 0,
     "counts: layer 1 has experts, but no entry; add one with layer: 1, or one for all"),
    ({}, counts(LayerCounts(None, {"d": (1.0,) * 16})), 0,
     "counts: no tokens of node c/node0, on which the plan has ranks; known: d"),
    ({}, counts(), 20,
     "--replicas 20: a multiple of ep 16 up to 240 is needed, so that all ranks have equally many slots; 16 would do"),
])  # fmt: skip
def test_what_does_not_fit(facts: dict[str, object], made: ExpertCounts, replicas: int, message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        layer_problems(plan(**facts), made, replicas)
