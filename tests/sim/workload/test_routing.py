"""Routing of a workload: what follows from it for ep groups of each size."""

from __future__ import annotations

import pytest

from sim.workload.routing import BALANCED, Routing
from tests import builders

EVEN = {"imbalance": 1.0, "exchange": None, "capacity_factor": None, "pad_to_capacity": False}


def test_one_rank_has_the_mean_of_tokens_and_the_busiest_of_several_the_imbalance() -> None:
    assert BALANCED.of_config(8) == EVEN
    uneven = Routing(1.5)
    assert [uneven.of_config(ep)["imbalance"] for ep in (1, 2, 8)] == [1.0, 1.5, 1.5]
    padded = Routing(capacity_factor=1.25, pad_to_capacity=True)
    assert padded.of_config(4) == EVEN | {"capacity_factor": 1.25, "pad_to_capacity": True}


def test_counted_tokens_give_each_ep_an_imbalance_of_its_own() -> None:
    """Four experts with 5, 3, 1 and 1 of ten tokens: the busiest of two ranks has 8 where 5 are the mean, of four 5 of 2.5."""
    counted = Routing(tokens=(5, 3, 1, 1))
    assert [counted.of_config(ep)["imbalance"] for ep in (1, 2, 4)] == [1.0, pytest.approx(1.6), pytest.approx(2.0)]


@pytest.mark.parametrize(("routing", "facts", "message"), [
    (Routing(1.5), {}, "routing: model tiny has no experts to route tokens to; leave routing out"),
    (Routing(tokens=(3, 1)), {"experts": 4, "experts_per_token": 1},
     "routing.tokens: 2 numbers for 4 experts of tiny; one for each"),
    (Routing(capacity_factor=5), {"experts": 8, "experts_per_token": 2},
     "routing.capacity_factor: 5 is above 4, with which an expert takes every token"),
])  # fmt: skip
def test_a_routing_that_does_not_fit_the_model_is_refused(routing: Routing, facts: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        routing.check(builders.model(**facts))
    assert str(caught.value) == message


def test_balanced_routing_fits_any_model() -> None:
    BALANCED.check(builders.model())
