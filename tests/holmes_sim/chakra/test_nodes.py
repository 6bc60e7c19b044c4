"""The graph of a trace: the work of the program, all of it once, in an order that ends, and in the engine's own time."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holmes_sim.chakra import nodes
from holmes_sim.chakra.groups import Groups
from holmes_sim.chakra.protobuf import COLLECTIVE, COMPUTE, OPERATIONS, RECEIVE, SEND, Node
from sim.engine import engine
from sim.engine.durations import Durations
from sim.hardware.cluster import Trunk
from sim.kernels import lowering
from sim.plan.plan import Plan
from sim.plan.program import BESIDE
from sim.units import MICRO
from tests import builders
from tests.builders import any_plan, cluster, device, fleet, nic, wire

Traces = list[list[Node]]
NAMES = {number: name for name, number in OPERATIONS.items()}


def traces(plan: Plan) -> tuple[Groups, Traces]:
    found = nodes.Traces(plan)
    return found.groups, [found.nodes(rank) for rank in range(plan.config.world_size)]


def of(node: Node, name: str) -> Any:
    return dict(node.attributes)[name]


def hold_order(found: Traces) -> None:
    for trace in found:
        assert [node.id for node in trace] == list(range(1, len(trace) + 1))
        assert all(before < node.id for node in trace for before in node.after)
        assert all(sorted(set(node.after)) == list(node.after) for node in trace)


def hold_messages(found: Traces) -> None:
    """Every send has its receive: ends, tag and bytes; no two messages between two ranks have the same tag."""
    ends: dict[int, Counter[tuple[Any, ...]]] = {SEND: Counter(), RECEIVE: Counter()}
    for rank, trace in enumerate(found):
        for node in trace:
            if node.type in ends:
                message = tuple(of(node, f"comm_{name}") for name in ("src", "dst", "tag", "size"))
                assert message[node.type == RECEIVE] == rank
                ends[node.type][message] += 1
    assert ends[SEND] == ends[RECEIVE]
    assert len({message[:3] for message in ends[SEND]}) == ends[SEND].total()


def hold_groups(groups: Groups, found: Traces) -> None:
    """All ranks of a group, and no others, come to the same collectives in the same order."""
    by_group: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for rank, trace in enumerate(found):
        for node in trace:
            if node.type == COLLECTIVE:
                mine = by_group.setdefault(of(node, "pg_name"), {}).setdefault(rank, [])
                mine.append((of(node, "comm_type"), of(node, "comm_size")))
    for number, ranks in by_group.items():
        assert sorted(ranks) == sorted(groups.ranks[int(number)])
        assert all(mine == ranks[min(ranks)] for mine in ranks.values())


def hold_bytes(plan: Plan, groups: Groups, found: Traces) -> None:
    """Payloads by kind of message and operation are the program's; an all_gather counts what each rank brings."""
    config = plan.config
    for rank, trace in enumerate(found):
        _, dp_cp, pp_rank = config.coordinates(rank)
        wanted: dict[str, float] = {}
        many: Counter[str] = Counter()
        for action in lowering.program(plan, pp_rank, config.microbatches_of(dp_cp, pp_rank)):
            if action.kind in ("send", "recv"):
                name = action.kind
            elif action.kind in ("collective", "start", *BESIDE):
                name = "all_gather" if action.kind == "ring" else BESIDE.get(action.kind, action.operation)
            else:
                continue
            wanted[name] = wanted.get(name, 0.0) + action.nbytes * action.times
            if name == "reduce_scatter" and action.group == "dp" and config.shards < config.dp_cp:
                wanted["all_reduce"] = wanted.get("all_reduce", 0.0) + action.nbytes / config.shards
                many["all_reduce"] += 1
            many[name] += 1
        sent: dict[str, float] = {}
        for node in trace:
            if node.type == COMPUTE:
                continue
            name = {SEND: "send", RECEIVE: "recv"}.get(node.type) or NAMES[of(node, "comm_type")]
            size = len(groups.ranks[int(of(node, "pg_name"))]) if name == "all_gather" else 1
            sent[name] = sent.get(name, 0.0) + of(node, "comm_size") * size
        assert sent.keys() == wanted.keys()
        for name, nbytes in wanted.items():
            assert abs(sent[name] - nbytes) <= 0.5 * many[name] * (config.world_size if name == "all_gather" else 1) + 1e-6


def hold_compute(plan: Plan, found: Traces) -> None:
    durations = Durations(plan)
    for rank, trace in enumerate(found):
        _, dp_cp, pp_rank = plan.config.coordinates(rank)
        computing = ("F", "B", "W", "optimizer", *BESIDE)
        program = lowering.program(plan, pp_rank, plan.config.microbatches_of(dp_cp, pp_rank))
        seconds = sum(durations.of(rank, action) for action in program if action.kind in computing)
        assert abs(sum(node.microseconds for node in trace) - seconds / MICRO) <= 0.5001


def microseconds_of(found: Traces, groups: Groups) -> int:
    """Microseconds of all traces together on a network without time; raises where they wait for one another for ever.

    A player of its own: a receive ends with its send, a collective when all its ranks have come."""
    ends: list[dict[int, int]] = [{} for _ in found]
    at = [0] * len(found)
    sent: dict[tuple[Any, ...], int] = {}
    turns: list[Counter[str]] = [Counter() for _ in found]
    waiting: list[dict[int, Node]] = [{node.id: node for node in trace} for trace in found]
    come: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    moved = True
    while moved:
        moved = False
        for rank, left in enumerate(waiting):
            for node in list(left.values()):
                if any(before not in ends[rank] for before in node.after):
                    continue
                ready = max((ends[rank][before] for before in node.after), default=0)
                if node.type == COLLECTIVE:
                    name = of(node, "pg_name")
                    come.setdefault((name, turns[rank][name]), {})[rank] = node.id, ready
                    turns[rank][name] += 1
                elif node.type == RECEIVE:
                    key = of(node, "comm_src"), rank, of(node, "comm_tag")
                    if key not in sent:
                        continue
                    ends[rank][node.id] = max(ready, sent[key])
                else:
                    ends[rank][node.id] = ready + node.microseconds
                    if node.type == SEND:
                        sent[rank, of(node, "comm_dst"), of(node, "comm_tag")] = ready
                del left[node.id]
                moved = True
        for (name, turn), ranks in list(come.items()):
            if len(ranks) == len(groups.ranks[int(name)]):
                end = max(ready for _, ready in ranks.values())
                for rank, (number, _) in ranks.items():
                    ends[rank][number] = end
                del come[name, turn]
                moved = True
    assert not any(waiting)
    assert not come
    at = [max(mine.values(), default=0) for mine in ends]
    return max(at)


def attributes(plan: Plan, rank: int) -> list[tuple[Any, ...]]:
    """(name, what it waits for, (src, dst, tag) or (operation, group), bytes) of every node of a rank, ids counted from 1."""
    found = []
    for node in traces(plan)[1][rank]:
        facts = dict(node.attributes)
        assert facts.pop("is_cpu_op") is False
        assert node.microseconds == 0 or node.type == COMPUTE
        nbytes = facts.pop("comm_size", 0)
        names = ("comm_src", "comm_dst", "comm_tag", "comm_type", "pg_name")
        found.append((node.name, node.after, tuple(facts.pop(name) for name in names if name in facts), nbytes))
        assert not facts
    return found


def test_a_tiny_plan_written_out() -> None:
    """pp 2, dp 2, two microbatches, one layer a stage. A message is 64 tokens x 96 values x 2 bytes = 12288 bytes. Stage 0 has
    185568 parameters (embedding 768 x 96, a layer of 12 x 96^2 and 13 x 96): in bf16, half of them of each rank, 185568 bytes;
    their gradients in fp32 742272. Stage 1 has two vectors of 96 more, of the last norm."""
    plan = builders.plan(fleet(cluster(nodes=2, devices=2)), pp=2, dp=2, microbatches=2, layers=(1, 1))
    assert Groups(plan).ranks == {1: (0, 1), 2: (2, 3)}
    assert attributes(plan, 1) == [
        ("start dp all_gather.0", (), (2, "1"), 185568),
        ("F0", (1,), (), 0),
        ("send F0", (2,), (1, 3, 0), 12288),
        ("F1", (3,), (), 0),
        ("send F1", (3, 4), (1, 3, 4), 12288),
        ("recv B0", (5,), (3, 1, 3), 12288),
        ("B0", (6,), (), 0),
        ("recv B1", (7,), (3, 1, 7), 12288),
        ("B1", (8,), (), 0),
        ("start dp reduce_scatter.0", (1, 9), (7, "1"), 742272),
        ("optimizer", (9, 10), (), 0),
    ]
    assert attributes(plan, 2) == [
        ("start dp all_gather.0", (), (2, "2"), 185760),
        ("recv F0", (), (0, 2, 0), 12288),
        ("F0", (1, 2), (), 0),
        ("B0", (3,), (), 0),
        ("send B0", (4,), (2, 0, 3), 12288),
        ("recv F1", (5,), (0, 2, 4), 12288),
        ("F1", (6,), (), 0),
        ("B1", (7,), (), 0),
        ("start dp reduce_scatter.0", (1, 8), (7, "2"), 743040),
        ("send B1", (5, 8), (2, 0, 7), 12288),
        ("optimizer", (9, 10), (), 0),
    ]


def test_sends_that_overlap_hold_nothing_but_one_another() -> None:
    """Interleaved, two stages a rank: rank 0 sends activations and gradients to the same peer; none has the tag of another."""
    one = fleet(cluster(devices=2))
    plan = builders.plan(one, pp=2, vpp=2, microbatches=2, layers=(1,) * 4, schedule="interleaved")
    found = attributes(plan, 0)
    sends = [(index, name, facts) for index, (name, _, facts, _) in enumerate(found, 1) if name.startswith("send")]
    assert sorted(facts for _, _, facts in sends) == [(0, 1, tag) for tag in (0, 4, 5, 8, 12, 13)]
    waited = {before for _, after, _, _ in found for before in after}
    chained = [index for index, _, _ in sends]
    assert all(found[later - 1][1][0] == earlier for earlier, later in pairwise(chained))
    assert {index for index in chained if index in waited} == set(chained[:-1])


def test_attention_around_a_ring_goes_on_beside_the_messages() -> None:
    """tp 2, cp 2: keys and values of 64 tokens x 48 values x 2 x 2 bytes = 12288 in all, half of them of each rank; with
    gradients in the backward twice that. The tensor-parallel ranks of a stage with both ends meet three times each way."""
    plan = builders.plan(fleet(cluster(nodes=2, devices=2)), tp=2, cp=2, layers=(1,), zero_stage=0, overlap_grad_reduce=False)
    assert Groups(plan).ranks == {1: (0, 1), 2: (2, 3), 3: (0, 2), 4: (1, 3), 5: (0, 2), 6: (1, 3)}
    assert attributes(plan, 3) == [
        ("F0", (), (), 0),
        ("ring F0", (1,), (2, "4"), 6144),
        ("ring F0", (1,), (), 0),
        ("tp all_reduce", (2, 3), (0, "2"), 6144),
        ("tp all_reduce", (4,), (0, "2"), 6144),
        ("tp all_reduce", (5,), (0, "2"), 6144),
        ("B0", (6,), (), 0),
        ("ring B0", (2, 7), (2, "4"), 12288),
        ("ring B0", (7,), (), 0),
        ("tp all_reduce", (6, 8, 9), (0, "2"), 6144),
        ("tp all_reduce", (10,), (0, "2"), 6144),
        ("tp all_reduce", (11,), (0, "2"), 6144),
        ("dp all_reduce", (12,), (0, "6"), 518976),
        ("optimizer", (13,), (), 0),
    ]


def test_blocks_that_share_state_reduce_inside_and_then_across() -> None:
    """259488 parameters: gradients in fp32, 1037952 bytes, are scattered over two ranks, and each half is reduced across."""
    machines = fleet(cluster(nodes=2, devices=2))
    plan = builders.plan(machines, dp=4, layers=(1,), zero_shard_size=2, overlap_param_gather=False)
    assert Groups(plan).ranks == {1: (0, 1), 2: (2, 3), 3: (0, 2), 4: (1, 3)}
    assert attributes(plan, 2) == [
        ("F0", (), (), 0),
        ("B0", (1,), (), 0),
        ("start dp reduce_scatter.0", (2,), (7, "2"), 1037952),
        ("start dp all_reduce.0", (3,), (0, "3"), 518976),
        ("optimizer", (2, 4), (), 0),
        ("dp all_gather", (4, 5), (2, "2"), 259488),
    ]


@given(plan=any_plan(ranks=16, unlike=False))
@settings(max_examples=40)
def test_laws_of_traces(plan: Plan) -> None:
    assume(plan.config.etp is None)  # the target refuses the others
    groups, found = traces(plan)
    hold_order(found)
    hold_messages(found)
    hold_groups(groups, found)
    hold_bytes(plan, groups, found)
    hold_compute(plan, found)


def test_a_trace_takes_the_engines_time_where_the_network_takes_none() -> None:
    """Slow devices of two speeds, so that whole microseconds are exact enough, on wires without end."""
    endless = {"bandwidth": 1e30}
    clusters = [
        cluster(name, 2, 4, (nic(**endless),), device(name, speed, 1e6), wire(**endless))
        for name, speed in (("a", 1e9), ("b", 1.7e9))
    ]
    machines = fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e30, 0.0),))

    @given(plan=any_plan(ranks=16, machines=machines, interference=False, unlike=False))
    @settings(max_examples=20)
    def law(plan: Plan) -> None:
        assume(plan.config.etp is None)  # the target refuses the others
        groups, found = traces(plan)
        assert microseconds_of(found, groups) * MICRO == pytest.approx(engine.simulate(plan).step_s, rel=1e-4)

    law()


@given(st.floats(0, 1e12), st.floats(0.1, 50))
def test_parts_of_a_payload_add_up(total, count):
    parts = nodes.sizes(total, count)
    assert len(parts) == max(1, round(count))
    assert sum(parts) == round(total)
    assert max(parts) - min(parts) <= 1 or total > 2**53
