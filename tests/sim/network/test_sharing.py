"""Flows share links max-min fairly: literal cases, timetables of arrivals, and the laws that make a sharing fair."""

from __future__ import annotations

import math

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.network.sharing import Flow, Network, Use, fair_rates

Arrival = tuple[float, Use, float]
"""(when it starts, links with weights, bytes)"""


def shared(uses: list[Use], capacities: tuple[float, ...]) -> list[float]:
    """Fair rates of flows that all start at once."""
    env = simpy.Environment()
    flows = [Flow(env, use, 1.0) for use in uses]
    rates = fair_rates(flows, dict(enumerate(capacities)))
    return [rates[flow] for flow in flows]


def arrivals(
    plan: list[Arrival], capacities: tuple[float, ...], changes: tuple[tuple[float, int, float], ...] = ()
) -> list[tuple[int, float]]:
    """(flow, time) of every arrival, in order of time; of flows that arrive together, in order of their number.

    `changes` are (when, link, its capacity from then on)."""
    env = simpy.Environment()
    network = Network(env, capacities)
    log: list[tuple[int, float]] = []

    def send(index: int, start: float, use: Use, nbytes: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        yield network.start(use, nbytes)
        log.append((index, env.now))

    def change(when: float, link: int, capacity: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(when)
        network.set_capacity(link, capacity)

    for index, (start, use, nbytes) in enumerate(plan):
        env.process(send(index, start, use, nbytes))
    for when, link, capacity in changes:
        env.process(change(when, link, capacity))
    env.run()
    return sorted(log, key=lambda row: (round(row[1], 9), row[0]))


def one(*links: int) -> Use:
    return tuple((link, 1.0) for link in links)


def test_a_flow_alone_gets_its_narrowest_link() -> None:
    assert shared([one(0, 1, 2)], (10.0, 4.0, 7.0)) == [4.0]


def test_equal_flows_share_a_link_equally() -> None:
    assert shared([one(0)] * 4, (10.0,)) == [2.5, 2.5, 2.5, 2.5]


def test_three_flows_over_two_links_as_in_the_textbook() -> None:
    """Flow 0 crosses both links of capacity 1 and 2: it gets 1/2, its neighbour 1/2 and the flow on the wide link 3/2."""
    assert shared([one(0, 1), one(0), one(1)], (1.0, 2.0)) == [0.5, 0.5, 1.5]


def test_a_flow_uses_the_bandwidth_that_limited_flows_leave() -> None:
    """Three flows share link 0; on link 2 one of them needs a third, and 2/3 remain for the flow that is alone there."""
    uses = [one(0), one(0, 1), one(0, 2), one(2)]
    assert shared(uses, (1.0, 1.0, 1.0)) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3], rel=1e-12)


def test_a_flow_of_weight_two_takes_twice_its_rate_of_the_link() -> None:
    assert shared([((0, 2.0),), ((0, 1.0),)], (9.0,)) == [3.0, 3.0]


def test_flows_that_share_no_link_do_not_disturb_each_other() -> None:
    assert shared([one(0), one(1)], (3.0, 5.0)) == [3.0, 5.0]


def test_a_flow_takes_bytes_over_bandwidth() -> None:
    assert arrivals([(0.0, one(0), 100.0)], (10.0,)) == [(0, 10.0)]


def test_two_flows_at_once_take_twice_as_long() -> None:
    assert arrivals([(0.0, one(0), 100.0), (0.0, one(0), 100.0)], (10.0,)) == [(0, 20.0), (1, 20.0)]


def test_the_longer_of_two_flows_speeds_up_when_the_shorter_has_arrived() -> None:
    """Both at 5 B/s until 10 s; then the other 150 of 200 bytes alone at 10 B/s."""
    assert arrivals([(0.0, one(0), 50.0), (0.0, one(0), 200.0)], (10.0,)) == [(0, 10.0), (1, 25.0)]


def test_staggered_flows_as_a_timetable() -> None:
    """0-2 s flow 0 alone (20 B), 2-4 s shared by two (10 B each), 4-10 s by three (20 B each), the rest by whoever is left."""
    plan = [(0.0, one(0), 50.0), (2.0, one(0), 60.0), (4.0, one(0), 50.0)]
    assert arrivals(plan, (10.0,)) == [(0, 10.0), (1, pytest.approx(16.0)), (2, pytest.approx(16.0))]


def test_a_flow_that_ends_frees_bandwidth_for_flows_it_shares_no_link_with() -> None:
    """Flow 1 crosses both links. When flow 0 leaves link 0, flow 1 speeds up and so takes from flow 2 on link 1."""
    plan = [(0.0, one(0), 4.0), (0.0, one(0, 1), 30.0), (0.0, one(1), 100.0)]
    # until 4 s: rates 1, 1, 9 (4, 4 and 36 bytes); then link 0 gives flow 1 two: rates 2 and 8 until flow 2 ends at 12 s
    assert arrivals(plan, (2.0, 10.0)) == [(0, 4.0), (2, 12.0), (1, pytest.approx(17.0))]


def test_an_empty_flow_arrives_at_once() -> None:
    assert arrivals([(1.0, one(0), 0.0), (0.0, one(0), 20.0)], (10.0,)) == [(0, 1.0), (1, 2.0)]


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Use], tuple[float, ...]]:
    """Up to ten flows over up to six links, with weights of many sizes."""
    capacities = tuple(draw(st.lists(st.sampled_from([1.0, 2.5, 10.0, 1e3, 1e9]), min_size=1, max_size=6)))
    links = st.lists(st.integers(0, len(capacities) - 1), min_size=1, unique=True)
    weights = st.sampled_from([0.25, 1.0, 1.0, 1.3, 8.0])
    uses = [tuple((link, draw(weights)) for link in draw(links)) for _ in range(draw(st.integers(1, 10)))]
    return uses, capacities


def loads(uses: list[Use], rates: list[float], links: int) -> list[float]:
    """Wire rate in use on every link."""
    return [
        math.fsum(rate * w for use, rate in zip(uses, rates, strict=True) for at, w in use if at == link)
        for link in range(links)
    ]


@given(crowd=crowds())
def test_no_link_carries_more_than_its_capacity(crowd: tuple[list[Use], tuple[float, ...]]) -> None:
    uses, capacities = crowd
    used = loads(uses, shared(uses, capacities), len(capacities))
    assert all(load <= capacity * (1 + 1e-12) for load, capacity in zip(used, capacities, strict=True))


@given(crowd=crowds())
def test_every_flow_has_a_full_link_on_which_no_flow_is_faster(crowd: tuple[list[Use], tuple[float, ...]]) -> None:
    """The bottleneck condition: rates are max-min fair if and only if it holds (Bertsekas and Gallager, section 6.5.2)."""
    uses, capacities = crowd
    rates = shared(uses, capacities)
    used = loads(uses, rates, len(capacities))

    def is_bottleneck(link: int, mine: float) -> bool:
        full = used[link] == pytest.approx(capacities[link], rel=1e-9)
        fastest = max(rate for use, rate in zip(uses, rates, strict=True) if link in dict(use))
        return full and mine >= fastest * (1 - 1e-9)

    for use, rate in zip(uses, rates, strict=True):
        assert any(is_bottleneck(link, rate) for link, _ in use)


@given(crowd=crowds(), order=st.randoms(use_true_random=False))
def test_shares_do_not_depend_on_the_order_of_flows(crowd: tuple[list[Use], tuple[float, ...]], order: object) -> None:
    uses, capacities = crowd
    mixed = list(range(len(uses)))
    order.shuffle(mixed)  # type: ignore[attr-defined]
    again = dict(zip(mixed, shared([uses[index] for index in mixed], capacities), strict=True))
    assert [again[index] for index in range(len(uses))] == pytest.approx(shared(uses, capacities), rel=1e-9)


@given(crowd=crowds(), data=st.data())
def test_every_byte_arrives_and_no_link_is_ever_overloaded(
    crowd: tuple[list[Use], tuple[float, ...]], data: st.DataObject
) -> None:
    """Loads are checked whenever a flow starts or arrives; between those moments rates do not change."""
    uses, capacities = crowd
    starts = [data.draw(st.sampled_from([0.0, 0.0, 1.0, 2.5])) for _ in uses]
    sizes = [data.draw(st.sampled_from([1.0, 7.0, 100.0])) for _ in uses]
    env = simpy.Environment()
    network = Network(env, capacities)
    carried = [0.0] * len(capacities)
    seen, arrived = [0.0], []

    def check() -> None:
        used = [network.load(link) for link in range(len(capacities))]
        assert all(load <= capacity * (1 + 1e-9) for load, capacity in zip(used, capacities, strict=True))

    def send(start: float, use: Use, nbytes: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        done = network.start(use, nbytes)
        check()
        yield done
        check()
        arrived.append(nbytes)
        seen.append(env.now)
        for link, weight in use:
            carried[link] += nbytes * weight

    for start, use, nbytes in zip(starts, uses, sizes, strict=True):
        env.process(send(start, use, nbytes))
    env.run()
    assert sorted(arrived) == sorted(sizes)
    assert [network.load(link) for link in range(len(capacities))] == [0.0] * len(capacities)
    assert all(total <= capacity * max(seen) * (1 + 1e-9) for total, capacity in zip(carried, capacities, strict=True))


@given(crowd=crowds())
def test_the_largest_share_arrives_first(crowd: tuple[list[Use], tuple[float, ...]]) -> None:
    """Equal payloads that start at once: the first to arrive is the one with the largest fair rate."""
    uses, capacities = crowd
    log = arrivals([(0.0, use, 100.0) for use in uses], capacities)
    assert log[0][1] == pytest.approx(100.0 / max(shared(uses, capacities)), rel=1e-9)


@given(crowd=crowds())
def test_a_busy_link_is_never_idle_before_all_is_sent(crowd: tuple[list[Use], tuple[float, ...]]) -> None:
    """Flows over one link only keep it full: the last one arrives when all bytes together have passed."""
    uses, capacities = crowd
    alone = [((0, dict(use).get(0, 1.0)),) for use in uses]
    log = arrivals([(0.0, use, 10.0 * (index + 1)) for index, use in enumerate(alone)], capacities)
    total = sum(10.0 * (index + 1) * weight for index, ((_, weight),) in enumerate(alone))
    assert max(time for _, time in log) == pytest.approx(total / capacities[0], rel=1e-9)


def test_a_flow_that_is_put_off_rests_and_others_go_on() -> None:
    """Two flows of 10 bytes at 1 byte a second on two links, one put off by 7 seconds after 4; then another meets it for its
    last 2 bytes."""
    env = simpy.Environment()
    network = Network(env, (1.0, 1.0))
    put_off, other = network.start(one(0), 10.0), network.start(one(1), 10.0)
    env.run(until=4.0)
    network.put_off(put_off, 7.0)
    env.run(until=other)
    assert env.now == 10.0
    env.run(until=15.0)
    late = network.start(one(0), 10.0)
    env.run(until=put_off)
    assert env.now == 19.0
    env.run(until=late)
    assert env.now == 27.0


def test_a_closed_link_holds_up_its_flows_and_frees_the_links_beside_it() -> None:
    """Links of 10; both flows of 100 share link 1 at 5, until link 0 is closed from 4 to 10. Of 80 left flow 1 sends 60 by 10,
    alone, and the last 20 at 5 by 14; flow 0 stops at 80, sends 20 by 14, and the last 60 at 10 by 20."""
    both: list[Arrival] = [(0.0, one(0, 1), 100.0), (0.0, one(1), 100.0)]
    assert arrivals(both, (10.0, 10.0), ((4.0, 0, 0.0), (10.0, 0, 10.0))) == [(1, 14.0), (0, 20.0)]


def test_a_flow_that_comes_to_a_closed_link_waits_for_it() -> None:
    flows: list[Arrival] = [(0.0, one(0), 10.0), (5.0, one(0), 10.0)]
    assert arrivals(flows, (10.0,), ((0.5, 0, 0.0), (6.0, 0, 10.0))) == [(0, 7.0), (1, 7.5)]
    assert arrivals(flows[1:], (10.0,), ((4.0, 0, 0.0), (6.0, 0, 5.0))) == [(0, 8.0)]
