"""Collectives as rounds of transfers: who sends how much over which edge, and whether the result reaches everybody."""

from __future__ import annotations

from collections import defaultdict

import pytest

from sim import collectives
from sim.collectives import Hosts, Round
from sim.errors import PlanError

SHAPES: list[Hosts] = [
    ((0, 1),),
    ((0,), (1,)),
    ((0,), (1,), (2,), (3,)),
    ((0, 1, 2, 3),),
    ((0, 1), (2, 3), (4, 5)),
    ((5, 2), (7, 0)),
    tuple(tuple(range(8 * host, 8 * host + 8)) for host in range(4)),
]
CASES = [
    (name, operation, hosts)
    for name in collectives.names()
    for operation in collectives.get(name).OPERATIONS
    for hosts in SHAPES
]
IDS = [f"{name}-{operation}-{'x'.join(str(len(host)) for host in hosts)}" for name, operation, hosts in CASES]


def sent(rounds: tuple[Round, ...]) -> dict[int, float]:
    """Share of the buffer that every rank sends in all."""
    out: dict[int, float] = defaultdict(float)
    for r in rounds:
        for t in r.transfers:
            out[t.source] += t.share * r.repeats
    return out


def received(rounds: tuple[Round, ...]) -> dict[int, float]:
    into: dict[int, float] = defaultdict(float)
    for r in rounds:
        for t in r.transfers:
            into[t.target] += t.share * r.repeats
    return into


def between_hosts(rounds: tuple[Round, ...], hosts: Hosts) -> dict[int, float]:
    """Share of the buffer that leaves every host."""
    home = {rank: index for index, host in enumerate(hosts) for rank in host}
    out: dict[int, float] = defaultdict(float)
    for r in rounds:
        for t in r.transfers:
            if home[t.source] != home[t.target]:
                out[home[t.source]] += t.share * r.repeats
    return out


def steps(rounds: tuple[Round, ...]) -> float:
    """Latencies on the longest chain of waiting."""
    return sum(t.steps for r in rounds for t in r.transfers)


@pytest.mark.parametrize(("name", "operation", "hosts"), CASES, ids=IDS)
def test_exactly_the_ranks_of_the_group_send_and_receive(name: str, operation: str, hosts: Hosts) -> None:
    rounds = collectives.rounds(name, operation, hosts)
    members = {rank for host in hosts for rank in host}
    assert set(sent(rounds)) == members
    assert set(received(rounds)) == members


@pytest.mark.parametrize(("name", "operation", "hosts"), CASES, ids=IDS)
def test_sent_bytes_are_received_and_no_rank_sends_to_itself(name: str, operation: str, hosts: Hosts) -> None:
    rounds = collectives.rounds(name, operation, hosts)
    assert sum(sent(rounds).values()) == pytest.approx(sum(received(rounds).values()), rel=1e-12)
    assert all(t.source != t.target and t.share > 0 for r in rounds for t in r.transfers)


@pytest.mark.parametrize(("name", "operation", "hosts"), CASES, ids=IDS)
def test_no_less_moves_than_the_operation_needs(name: str, operation: str, hosts: Hosts) -> None:
    """Each of n ranks must at least hand on (n-1)/n of the buffer in a gather or scatter, and twice that in an all_reduce.

    Where switches between hosts add up, a host hands on the buffer once."""
    n = sum(len(host) for host in hosts)
    least = (2 if operation == "all_reduce" else 1) * (n - 1)
    if collectives.get(name).IN_NETWORK and len(hosts) > 1:
        least = len(hosts) + 2 * (n - len(hosts))
    assert sum(sent(collectives.rounds(name, operation, hosts)).values()) >= least * (1 - 1e-12)


@pytest.mark.parametrize("n", [2, 3, 8, 1024])
def test_a_ring_moves_two_n_minus_one_over_n_of_the_buffer_over_each_link(n: int) -> None:
    rounds = collectives.rounds("ring", "all_reduce", (tuple(range(n)),))
    assert list(sent(rounds).values()) == pytest.approx([2 * (n - 1) / n] * n, rel=1e-12)


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
def test_half_an_all_reduce_moves_n_minus_one_over_n(operation: str) -> None:
    assert sent(collectives.rounds("ring", operation, ((0, 1), (2, 3)))) == {0: 0.75, 1: 0.75, 2: 0.75, 3: 0.75}


def test_a_ring_of_four_ranks_as_a_round() -> None:
    (only,) = collectives.rounds("ring", "all_gather", ((0, 1), (2, 3)))
    assert only.repeats == 3
    assert [(t.source, t.target, t.share) for t in only.transfers] == [(0, 1, 0.25), (1, 2, 0.25), (2, 3, 0.25), (3, 0, 0.25)]


@pytest.mark.parametrize(("operation", "latencies"), [("all_reduce", 14), ("all_gather", 7), ("reduce_scatter", 7)])
def test_a_ring_of_eight_waits_for_each_of_its_steps(operation: str, latencies: int) -> None:
    assert steps(collectives.rounds("ring", operation, (tuple(range(8)),))) == pytest.approx(latencies)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_ring_round_by_round_brings_every_piece_to_every_rank(operation: str) -> None:
    """Piece c of rank r is a set of contributions; each round rank r hands one piece to its neighbour, as rings do."""
    n = 5
    (only,) = collectives.rounds("ring", operation, (tuple(range(n)),))
    gathers = operation == "all_gather"
    held = [[{r} if not gathers or c == r else set() for c in range(n)] for r in range(n)]
    for repeat in range(only.repeats):
        before = [[set(piece) for piece in row] for row in held]
        for t in only.transfers:
            piece = (t.source - repeat) % n
            held[t.target][piece] |= before[t.source][piece]
    everybody = set(range(n))
    if gathers:
        assert all(held[r][c] == {c} for r in range(n) for c in range(n))
    elif operation == "reduce_scatter":
        assert all(held[r][(r + 1) % n] == everybody for r in range(n))
    else:
        assert all(held[r][c] == everybody for r in range(n) for c in range(n))


def test_hierarchical_rings_share_the_network_among_the_ranks_of_a_host() -> None:
    """Four hosts of eight: 2 (h-1)/h of the buffer leaves a host, as in a ring of hosts, an eighth of it by each rank."""
    hosts = SHAPES[-1]
    rounds = collectives.rounds("hierarchical", "all_reduce", hosts)
    assert list(between_hosts(rounds, hosts).values()) == pytest.approx([2 * 3 / 4] * 4, rel=1e-12)
    across = [t.source for r in rounds for t in r.transfers if t.source // 8 != t.target // 8]
    assert sorted(across) == list(range(32))


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
def test_hierarchical_halves_move_half_between_hosts(operation: str) -> None:
    rounds = collectives.rounds("hierarchical", operation, SHAPES[-1])
    assert list(between_hosts(rounds, SHAPES[-1]).values()) == pytest.approx([3 / 4] * 4, rel=1e-12)


def test_hierarchical_waits_for_hosts_and_ranks_apart() -> None:
    """Seven steps inside to scatter, six across, seven inside to gather; a flat ring of 32 waits for 62."""
    assert steps(collectives.rounds("hierarchical", "all_reduce", SHAPES[-1])) == pytest.approx(7 + 6 + 7)
    assert steps(collectives.rounds("ring", "all_reduce", SHAPES[-1])) == pytest.approx(62)


@pytest.mark.parametrize("hosts", [((0, 1, 2, 3),), ((0,), (1,), (2,))])
def test_hierarchical_on_one_host_or_one_rank_a_host_is_the_ring(hosts: Hosts) -> None:
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        assert collectives.rounds("hierarchical", operation, hosts) == collectives.rounds("ring", operation, hosts)


def test_hierarchical_refuses_hosts_of_different_sizes() -> None:
    with pytest.raises(PlanError) as caught:
        collectives.rounds("hierarchical", "all_reduce", ((0, 1), (2,)))
    assert str(caught.value) == "a hierarchical collective needs the same number of ranks on every host"


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 16, 33])
def test_no_rank_of_a_double_tree_carries_more_than_the_buffer_twice_each_direction(n: int) -> None:
    """A host is an inner node of one tree: two children's halves in and its own half out; and a leaf of the other: half out."""
    rounds = collectives.rounds("tree", "all_reduce", tuple((host,) for host in range(n)))
    assert max(sent(rounds).values()) <= 2
    assert max(received(rounds).values()) <= 2
    assert sum(sent(rounds).values()) == pytest.approx(2 * (n - 1))


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 16, 33])
def test_each_of_the_two_trees_joins_all_hosts(n: int) -> None:
    """Upward transfers of half the buffer: n - 1 edges a tree, and every host but one root has a parent in each."""
    (only,) = collectives.rounds("tree", "all_reduce", tuple((host,) for host in range(n)))
    up = [(t.source, t.target) for t in only.transfers[: len(only.transfers) // 2]]
    for tree in (up[: n - 1], up[n - 1 :]):
        parents = dict(tree)
        assert len(parents) == n - 1
        (root,) = set(range(n)) - set(parents)
        for host in range(n):
            walked = 0
            while host != root:
                host, walked = parents[host], walked + 1
                assert walked < n


@pytest.mark.parametrize(("n", "latencies"), [(2, 2), (4, 4), (8, 6), (16, 8), (1024, 20)])
def test_a_tree_waits_twice_its_logarithmic_depth(n: int, latencies: int) -> None:
    assert steps(collectives.rounds("tree", "all_reduce", tuple((host,) for host in range(n)))) == latencies


def test_inside_a_host_a_tree_is_a_chain() -> None:
    (only,) = collectives.rounds("tree", "all_reduce", ((0, 1, 2),))
    assert sorted((t.source, t.target, t.share) for t in only.transfers) == [(0, 1, 1.0), (1, 0, 1.0), (1, 2, 1.0), (2, 1, 1.0)]


def test_a_collective_that_cannot_do_an_operation_leaves_it_to_the_ring() -> None:
    hosts: Hosts = ((0, 1), (2, 3))
    assert collectives.rounds("tree", "all_gather", hosts) == collectives.rounds("ring", "all_gather", hosts)


def test_an_unknown_collective_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PlanError) as caught:
        collectives.get("rings")
    assert str(caught.value) == f"collective 'rings' is unknown; known: {', '.join(collectives.names())}"
