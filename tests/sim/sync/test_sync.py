"""Sync strategies: when which share of the parameters is exchanged, what it gives up, and settings that are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import sync
from sim.errors import OptionError
from sim.sync import Exchange, Sync
from sim.sync.adaptive_sgd import learning_rates
from tests.builders import model

BLOCKING = ("adaptive-sgd", "diloco", "local-sgd")


def test_every_strategy_of_the_folder_is_listed():
    assert sync.names() == (
        "adaptive-sgd", "co2", "diloco", "every-step", "independent", "local-sgd", "streaming-diloco",
    )  # fmt: skip


@pytest.mark.parametrize("name", BLOCKING)
def test_a_blocking_strategy_exchanges_all_at_the_end_of_the_period(name):
    assert Sync(name, inner_steps=40).exchanges == (Exchange(1.0, 40, 0),)


def test_timetables_of_the_others():
    assert Sync("every-step").exchanges == (Exchange(1.0, 1, 0),)
    assert Sync("independent").exchanges == ()
    assert Sync("co2", inner_steps=8).exchanges == (Exchange(1.0, 8, 8),)
    streaming = Sync("streaming-diloco", inner_steps=100, overlap_steps=5, fragments=3)
    assert streaming.exchanges == (Exchange(1 / 3, 33, 5), Exchange(1 / 3, 67, 5), Exchange(1 / 3, 100, 5))


def settings_of(name: str) -> st.SearchStrategy[Sync]:
    takes = sync.get(name).TAKES
    steps = st.integers(1, 60) if "inner_steps" in takes else st.just(1)

    def of(inner: int) -> st.SearchStrategy[Sync]:
        fragments = st.integers(1, inner) if "fragments" in takes else st.just(1)
        overlap = st.integers(0, inner) if "overlap_steps" in takes else st.just(0)
        return st.builds(Sync, st.just(name), st.just(inner), overlap, fragments)

    return steps.flatmap(of)


@given(st.sampled_from(sync.names()).flatmap(settings_of))
def test_each_parameter_is_exchanged_once_in_a_period(found):
    if found.strategy != "independent":
        assert sum(exchange.share for exchange in found.exchanges) == pytest.approx(1.0)
    assert all(1 <= exchange.start <= found.inner_steps for exchange in found.exchanges)
    assert all(0 <= exchange.overlap <= found.inner_steps for exchange in found.exchanges)
    assert list(found.exchanges) == sorted(found.exchanges, key=lambda exchange: exchange.start)


def test_prices():
    assert Sync("every-step").price == "exact"
    assert Sync("every-step", compression="int8").price == "bounded"
    assert Sync("every-step", aggregation="median").price == "bounded"
    assert Sync("diloco", inner_steps=2).price == "bounded"
    assert Sync("independent").price == "changed"


def test_values_of_all_islands_are_gathered_where_a_sum_is_not_enough():
    assert not Sync("diloco", 2, compression="int8").gathers
    assert Sync("diloco", 2, compression="top-k=1%").gathers
    assert Sync("diloco", 2, aggregation="krum").gathers


def test_state_and_bytes():
    assert Sync("diloco", 2).state_bytes == 8.0
    assert Sync("diloco", 2, compression="powersgd=4").state_bytes == 12.0
    assert Sync("every-step").state_bytes == 0.0
    assert Sync("diloco", 2, compression="bf16").bytes_per_parameter(model()) == 2.0


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"strategy": "dilloco"}, "sync strategy 'dilloco' is unknown; known: adaptive-sgd, co2"),
        ({"strategy": "diloco", "inner_steps": 0}, "sync diloco: inner_steps 0 should be at least 1"),
        ({"strategy": "every-step", "inner_steps": 2}, "sync every-step: it takes no inner_steps; leave it out"),
        ({"strategy": "diloco", "fragments": 2, "inner_steps": 4}, "sync diloco: it takes no fragments; leave it out"),
        ({"strategy": "streaming-diloco", "fragments": 4, "inner_steps": 3}, "4 fragments need as many inner_steps, not 3"),
        ({"strategy": "streaming-diloco", "overlap_steps": 4, "inner_steps": 3}, "overlap_steps 4 above inner_steps 3"),
        ({"strategy": "diloco", "compression": "zip"}, "compression 'zip' is unknown"),
        ({"strategy": "diloco", "aggregation": "mode"}, "aggregation 'mode' is unknown"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, why):
    with pytest.raises(OptionError) as error:
        Sync(**settings)
    assert why in str(error.value)


def test_text():
    found = Sync("streaming-diloco", 100, 1, 4, "int4")
    assert str(found) == "streaming-diloco, every 100 steps, 4 fragments, 1 step beside the exchange, int4"
    assert str(Sync("every-step", aggregation="krum")) == "every-step, krum"


def test_learning_rates_follow_the_batches():
    assert learning_rates((10, 30, 20)) == (0.5, 1.5, 1.0)
