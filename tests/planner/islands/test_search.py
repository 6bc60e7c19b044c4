"""Search for plans of islands: thin trunks make islands, thick ones do not, and what a person allows is kept."""

from __future__ import annotations

import pytest

from planner.islands.allowed_sync import parse
from planner.islands.search import best, plan_with_sync, priced
from planner.islands.sync_rows import SyncRow
from planner.request import Wishes
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.formats.edits import edited
from sim.islands.token_worth import TokenWorth
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.sync import Sync
from tests.planner.islands.fleets import PINS, request, slow_trunk, three_clusters
from tests.sim.islands.builders import islands_plan, machines


def row(tokens_per_s: float, sync: Sync | None = None, worth: float | None = 1.0) -> SyncRow:
    """A row of a sync strategy; of an exact plan if None."""
    plan = islands_plan(machines(), sync or Sync("every-step"))
    known = None if worth is None else TokenWorth(worth, worth, worth)
    if sync is None:
        return SyncRow(plan.islands[0], (("a",),), "exact", "exact", tokens_per_s, known)
    return SyncRow(plan, (("a",), ("b",)), str(sync), sync.price, tokens_per_s, known)


def test_most_effective_tokens_win():
    exact, worth_less = row(100.0), row(150.0, Sync("diloco", 30), 0.6)
    assert best([exact, worth_less]) is exact
    assert best([row(80.0), worth_less]) is worth_less


def test_a_known_worth_goes_before_an_unknown_one():
    known, unknown = row(100.0, Sync("diloco", 30), 0.9), row(150.0, Sync("co2", 30), None)
    assert best([unknown, known]) is known
    assert best([unknown, row(140.0, Sync("co2", 4), None)]) is unknown


def test_of_equal_rows_the_one_that_gives_up_least_wins():
    exact, eight, many = row(100.0), row(100.4, Sync("diloco", 8)), row(100.4, Sync("diloco", 16))
    packed = row(100.45, Sync("diloco", 8, compression="int8"))
    assert best([many, packed, eight, exact]) is exact
    assert best([many, packed, eight]) is eight


def test_a_search_whose_time_is_up_keeps_the_first_of_the_rows():
    tried = plan_with_sync(request(slow_trunk("100 Mbit/s")), parse("every-step")).tried
    settings = list(parse("any").settings(request(slow_trunk("100 Mbit/s")).workload.model))
    every, _ = priced(tried, settings, lambda plan: "")
    assert [one.plan.sync for one in every] == settings * len(tried)  # in the order of the settings
    some, _ = priced(tried, settings, lambda plan: "", TimeLimit(0.0))
    assert len(some) == 1
    assert some[0].sync in [one.sync for one in every]
    assert not any(exchange.overlap for exchange in some[0].plan.sync.exchanges)  # which needs no further simulation


def test_a_thin_trunk_makes_islands():
    answer = plan_with_sync(request(slow_trunk("100 Mbit/s")), parse("any"))
    assert isinstance(answer.best.plan, IslandsPlan)
    assert answer.exact is not None
    assert answer.alone is not None
    assert answer.best.tokens_per_s > 1.75 * max(answer.exact.tokens_per_s, answer.alone.tokens_per_s)
    proof = answer.best.plan.certificate
    assert proof is not None
    assert proof.lower_bound_s <= proof.objective_s
    assert {row.plan.sync.strategy for row in answer.rows} == {
        "adaptive-sgd", "co2", "diloco", "every-step", "local-sgd", "streaming-diloco",
    }  # fmt: skip


def test_only_what_is_allowed_is_chosen():
    answer = plan_with_sync(request(slow_trunk("10 Mbit/s")), parse("diloco=4,int8"))
    assert isinstance(answer.best.plan, IslandsPlan)
    assert answer.best.plan.sync == Sync("diloco", 4, compression="int8")
    exact = plan_with_sync(request(slow_trunk("10 Mbit/s")), parse("exact"))
    assert isinstance(exact.best.plan, Plan)
    assert exact.rows == ()


def test_a_cluster_with_a_fast_network_has_no_islands():
    here = request(edited(slow_trunk(), {"clusters.east.node.nics[0].bandwidth": "4000 Gbit/s"}))
    one = type(here)(here.topology, here.workload, PINS, 5.0, (("east", 2),))
    answer = plan_with_sync(one, parse("any"))
    assert isinstance(answer.best.plan, Plan)
    assert answer.refused == (
        "no link joins two clusters, and the network between nodes is fast enough for the gradients of each step, so that "
        "there are no islands; nodes that may be one anyway need to be a cluster of their own"
    )
    with pytest.raises(Infeasible, match="no plan with --sync diloco=4: no link joins two clusters"):
        plan_with_sync(one, parse("diloco=4"))


def test_pins_that_no_island_can_have():
    with pytest.raises(Infeasible, match="no plan with --sync diloco=4"):
        plan_with_sync(request(slow_trunk(), Wishes(dp=4, tp=1, pp=1)), parse("diloco=4"))


def test_a_site_behind_a_bad_link_is_left_out():
    """With the third cluster each exchange would take a hundred times as long."""
    where = edited(three_clusters(), {"links[1].bandwidth": "1 Mbit/s", "links[2].bandwidth": "1 Mbit/s"})
    answer = plan_with_sync(request(where), parse("diloco=30,none"))
    assert answer.best.islands == (("ib",), ("roce",))
    assert {row.islands for row in answer.rows} >= {(("ib",), ("roce",)), (("ib",), ("roce",), ("eth",))}


def test_an_interrupted_search_answers_with_what_it_has():
    def interrupt(text: str) -> None:
        if text.startswith("west"):
            raise KeyboardInterrupt

    where = edited(slow_trunk("100 Mbit/s"), {"clusters.west.node.devices.type": "v100-sxm2-32gb"})
    answer = plan_with_sync(request(where), parse("any"), interrupt)
    assert answer.interrupted
    assert answer.rows == ()
    assert isinstance(answer.best.plan, Plan)
    with pytest.raises(KeyboardInterrupt):
        plan_with_sync(request(where), parse("diloco=30"), interrupt)


def test_adapters_are_exchanged_in_each_step_where_all_weights_are_not():
    """Exact training on two sites: the gradients of adapters of rank 2 are small."""
    where = edited(slow_trunk("20 Mbit/s"), {"workload.adapter": {"r": 2}})
    tuned, whole = plan_with_sync(request(where), parse("any")), plan_with_sync(request(slow_trunk("20 Mbit/s")), parse("any"))
    assert tuned.best.price == "exact" and tuned.alone is not None
    (every,) = (row for row in tuned.rows if row.sync == "every-step")
    assert tuned.best.tokens_per_s >= every.tokens_per_s > 1.15 * tuned.alone.tokens_per_s
    assert whole.best.price != "exact", "its gradients are not"
    assert all(row.worth is None for row in tuned.rows if row.price != "exact")
