"""Laws: what the objective does not contain never changes a plan: names, prices, and the order of keys in the file."""

from __future__ import annotations

import functools
import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.request import Request, Wishes
from sim.formats.documents import parse
from sim.formats.topology import from_document
from sim.plan.plan import Plan

MODEL = {"layers": 8, "hidden": 256, "heads": 4, "ffn_hidden": 1024, "vocab": 4096, "name": "small"}
WORKLOAD = {"model": MODEL, "global_batch_size": 32, "seq_len": 1024, "precision": "fp16"}
STAGES = 3
"""Pipeline stages of every plan: with fewer, one cluster would hold the model of these tests and be all of the plan."""
NAMES = st.text("abcdefgh", min_size=1, max_size=6)
PRICES = st.sampled_from((None, "0.5 USD/h", "2 USD/h", "40 USD/h"))


def cluster(kind: str, device: str, nodes: int) -> dict[str, Any]:
    nics = [{"type": kind, "bandwidth": "25 Gbit/s", "count": 1}, {"type": "ethernet", "bandwidth": "5 Gbit/s", "count": 1}]
    devices = {"type": device, "count": 1}
    return {"nodes": nodes, "node": {"devices": devices, "intra_node": "nvlink3", "nics": nics}}


CLUSTERS = (
    cluster("infiniband", "a100-sxm4-80gb", 2),
    cluster("roce", "a100-sxm4-80gb", 2),
    cluster("roce", "v100-sxm2-32gb", 2),
)


def document(names: tuple[str, ...], prices: tuple[str | None, ...], order: random.Random | None) -> dict[str, Any]:
    """The fleet of `CLUSTERS` with names and prices; `order` shuffles the keys."""
    clusters: dict[str, Any] = {}
    for name, facts, price in zip(names, CLUSTERS, prices, strict=True):
        devices = facts["node"]["devices"] | ({"price": price} if price else {})
        clusters[name] = facts | {"node": facts["node"] | {"devices": devices}}
    wire = {"type": "ethernet", "bandwidth": "2 Gbit/s", "latency": "1 ms"}
    links = [{"between": list(pair)} | wire for pair in itertools.combinations(names, 2)]
    whole = {"format": "holmes-sim/topology/1", "name": names[0], "clusters": clusters, "links": links, "workload": WORKLOAD}
    return shuffled(whole, order) if order else whole


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return value


def planned(facts: dict[str, Any], strategy: str) -> Plan:
    where = from_document(parse("fleet", json.dumps(facts)))
    assert where.workload is not None
    return api.plan(Request(where, where.workload, Wishes(pp=STAGES, schedule="1f1b"), 1e9), strategy)


def layout(plan: Plan) -> tuple[object, ...]:
    """What a plan is, without the names of its machines, and its step."""
    assert plan.prediction is not None
    return plan.prediction.step_s, plan.config, plan.stages


@functools.cache
def reference(strategy: str) -> tuple[object, ...]:
    return layout(planned(document(("one", "two", "three"), (None, None, None), None), strategy))


@pytest.mark.parametrize("strategy", ["certified", "hethub", "metis"])
@settings(max_examples=2)
@given(st.lists(NAMES, min_size=3, max_size=3, unique=True), st.tuples(PRICES, PRICES, PRICES), st.data())
def test_names_and_prices_and_the_order_of_keys_change_no_plan(strategy, names, prices, data):
    order = data.draw(st.randoms(use_true_random=False)) if strategy == "certified" else None
    assert layout(planned(document(tuple(names), prices, order), strategy)) == reference(strategy)
