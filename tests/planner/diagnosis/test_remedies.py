"""What is said to remedy an infeasible question remedies it: asked again with the change there is a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holmes_sim import commands, targets
from planner import api
from planner.diagnosis.remedies import in_words, remedies, why_none
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.search.fitting import fitting
from planner.search.mixed import is_mixed
from sim.errors import Infeasible
from sim.formats import catalog
from sim.hardware.cluster import Trunk
from sim.hardware.memory_facts import WORKSPACE
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.workload.adapter import Adapter
from tests import builders as make
from tests.more import after
from tests.planner import outside_torch
from tests.planner.builders import NO_LIMIT, NO_PROOF, on_one_cluster, plan_of, request
from tests.planner.targets import target


@st.composite
def requests_short_of_memory(draw: st.DrawFn) -> Request:
    """A request on one or two small clusters, often short of memory, with some pins."""

    def some(*values: object) -> Any:
        return draw(st.sampled_from(values))

    nics = (make.nic("ethernet", 1e9),)
    clusters = tuple(
        make.cluster(
            name, nodes=some(1, 2, 3), devices=some(1, 2), nics=nics,
            spec=make.device(f"chip-{name}", 1e9, memory=WORKSPACE + outside_torch.CONTEXT + some(3e6, 5e6, 8e6, 16e6)),
        )
        for name in "ab"[: some(1, 2)]
    )  # fmt: skip
    trunks = (Trunk(("a", "b"), "ethernet", 1e9, 0.0),) if len(clusters) > 1 else ()
    model, batch = make.model(some(2, 3, 6)), some(2, 4, 6)
    wishes = Wishes(
        tp=some(None, 1, 2), pp=some(None, 1, 2, 3), dp=some(None, None, 1, 2, 4), microbatch_size=some(None, 1, 2),
        schedule=some(None, None, "gpipe"), recompute=some(None, "none"), zero_stage=some(None, 0),
    )  # fmt: skip
    return request(make.fleet(*clusters, trunks=trunks), model, batch, wishes)


def any_plan(question: Request) -> Plan | None:
    """The first plan that a search finds; without a time limit it would look for faster ones."""
    return plan_of(replace(question, time_limit=0.0), budgets=NO_PROOF)


@given(requests_short_of_memory())
def test_a_request_changed_by_a_remedy_has_a_plan(question):
    plan = plan_of(question, budgets=NO_PROOF)
    if plan is not None:
        assert fits(plan)
        assert is_mixed(plan) or fitting(question) is not None, "what the search finds is found at once too"
        return
    assert fitting(question) is None
    for remedy in remedies(question):
        changed = any_plan(remedy.request)
        assert changed is not None and fits(changed), remedy.words


def shipped(name: str, model: str = "", wishes: Wishes | None = None, **facts: object) -> Request:
    topology = commands.load(name)
    workload = replace(topology.workload, **facts, **({"model": catalog.model(model)} if model else {}))
    return Request(topology, workload, wishes or Wishes(), NO_LIMIT)


LORA = "--set workload.adapter.r=16, for fine-tuning only: it trains adapters (LoRA), not the weights of the model"
CASES = {
    "a larger model": (
        shipped("holmes-hybrid-4", "gpt-175b", Wishes(tp=8), global_batch_size=8),
        "--set workload.optimizer=adam-bf16-moments, or --offload optimizer, with a step of 39.87 s or less, or 1 more "
        f"node in cluster ib (--set clusters.ib.nodes=3), or {LORA}",
    ),
    "all microbatches in flight": (
        shipped("holmes-infiniband-4", wishes=Wishes(schedule="gpipe", tp=1, pp=4, dp=8, recompute="none")),
        "--schedule 1f1b instead of gpipe, or 95 GiB more memory on each a100-sxm4-80gb of cluster ib",
    ),
    "activations": (
        shipped("holmes-infiniband-4", "gpt-39b", Wishes(tp=2, pp=4, dp=4, microbatch_size=8, recompute="none")),
        "--recompute full instead of none, or 10 GiB more memory on each a100-sxm4-80gb of cluster ib",
    ),
    "a batch that cannot be shared": (
        shipped("holmes-hybrid-4", wishes=Wishes(dp=2, zero_stage=2), global_batch_size=7),
        "--zero-stage 1 instead of 2",
    ),
    "two pins": (
        shipped("holmes-hybrid-4", wishes=Wishes(tp=5, dp=17), global_batch_size=32),
        "leaving --tp 5 --dp 17 to the planner",
    ),
    "layers": (
        shipped("holmes-hybrid-4", wishes=Wishes(tp=1, pp=31), global_batch_size=8),
        "--pp 30 instead of 31",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("question", "words"), after(len(CASES) - 2, CASES.values()), ids=CASES)
def test_the_smallest_remedy_is_reported_and_works(question, words):
    assert plan_of(question, budgets=NO_PROOF) is None
    assert in_words(question) == words
    for remedy in remedies(question):
        assert any_plan(remedy.request) is not None


def test_one_node_less_does_not_cure():
    question = shipped("holmes-hybrid-4", "gpt-1t")
    remedy, other = remedies(question)
    assert other.words == LORA
    assert fitting(remedy.request) is not None
    assert remedy.words == "28 more nodes in cluster ib (--set clusters.ib.nodes=30)"
    ib, roce = remedy.request.topology.fleet.clusters
    assert (ib.nodes, roce.nodes) == (30, 2)
    fewer = replace(remedy.request.topology.fleet, clusters=(replace(ib, nodes=29), roce))
    assert fitting(replace(question, topology=replace(question.topology, fleet=fewer))) is None


def test_the_demand_that_fails_says_by_how_much():
    """gpt-175b in four stages of tp 8: 1.8e9 parameters a layer, 16 bytes each, 24 layers over 8 devices, and activations."""
    text = why_none(shipped("holmes-hybrid-4", "gpt-175b"))
    assert text.startswith("memory: gpt-175b does not fit holmes-hybrid-4: stage 0 of the nearest layout (tp 8, pp 4, ")
    assert text.endswith(
        ", with 24 layers, exceeds the 72.86 GiB (79.2 GiB less a head-room of 0.08) of device a100-sxm4-80gb by 13.94 GiB"
    )


def six_cards(host_memory: float | None) -> Request:
    """llama-2-7b on six RTX 3090 of one PC, with a head-room of 8 %."""
    card = catalog.device("rtx-3090")
    one = make.cluster("pc", devices=6, nics=(), spec=card, intra_node=catalog.link("pcie4"))
    fleet = make.fleet(replace(one, node=replace(one.node, host_memory=host_memory)))
    found = request(fleet, catalog.model("llama-2-7b"), 32)
    workload, wishes = replace(found.workload, seq_len=2048), Wishes(tp=1, offload="optimizer")
    return replace(found, workload=workload, topology=replace(found.topology, memory_headroom=0.08), wishes=wishes)


def test_host_memory_that_is_too_small_is_named():
    """12 bytes of fp32 weights and moments and 4 of gradients for 6.74e9 parameters are 100.4 GiB."""
    assert fitting(six_cards(None)) is not None
    assert fitting(six_cards(110 * 2**30)) is not None
    assert why_none(six_cards(64 * 2**30)) == (
        "host memory: the optimizer state of llama-2-7b takes 100.4 GiB on a host of cluster pc, whose host_memory is 64 GiB, "
        "of which a share of 0.08 stays free"
    )
    assert "memory: llama-2-7b does not fit" in why_none(replace(six_cards(None), wishes=Wishes(tp=1)))


def test_an_adapter_is_named_where_it_fits_and_changes_what_is_trained():
    """llama-2-7b on one card: 16-bit weights of 12.6 GiB fit 24 GB, and 8 GiB only if they have 4 bits."""

    def on_a_card(gibibytes: int) -> Request:
        question = six_cards(None)
        (pc,) = question.topology.fleet.clusters
        card = replace(pc.node.device, memory=gibibytes * 2**30)
        fleet = make.fleet(replace(pc, node=replace(pc.node, device=card, count=1)))
        return replace(question, topology=replace(question.topology, fleet=fleet), wishes=Wishes(tp=1, offload="none"))

    (lora,), (qlora,) = ([remedy for remedy in remedies(on_a_card(size)) if "adapter" in remedy.words] for size in (24, 10))
    assert lora.words == LORA
    assert qlora.words == LORA.replace("r=16", "r=16 --set workload.adapter.base_precision=nf4").replace("LoRA", "QLoRA")
    assert qlora.request.workload.adapter == Adapter(16, base_precision="nf4")
    assert not any("adapter" in remedy.words for remedy in remedies(on_a_card(3)))
    assert not any("adapter" in remedy.words for remedy in remedies(qlora.request))


def streamed(batch: int, **pins: object) -> Request:
    """gpt-3.6b on holmes-hybrid-4, streamed by one device."""
    question = shipped("holmes-hybrid-4", wishes=Wishes(offload="parameters", **pins))  # type: ignore[arg-type]
    return replace(question, workload=replace(question.workload, global_batch_size=batch))


def test_a_device_that_streams_layers_is_told_the_largest_batch_and_no_pin_that_nobody_typed():
    """Its memory holds activations of all 30 layers for a whole step: 190 sequences, and no more."""
    assert in_words(streamed(768)) == "--global-batch-size 190 instead of 768"
    assert fitting(streamed(190)) is not None
    assert fitting(streamed(193)) is None
    assert in_words(streamed(768, microbatch_size=3)) == "--global-batch-size 183 instead of 768"  # logits of three sequences
    assert "offload parameters to the planner" not in in_words(streamed(768, recompute="none"))


def test_other_offload_leaves_the_pins_of_streaming_to_the_planner():
    change = streamed(768).wishes.with_pin("offload", "none")
    assert change == Wishes(offload="none")
    assert str(streamed(768, microbatch_size=3).wishes) == "--microbatch-size 3 --offload parameters"


def test_a_model_that_the_target_refuses_is_not_cured_by_machines(monkeypatch):
    """Neither nodes nor memory are tried: another target is the only remedy."""

    def refused(config, workload):
        return iter(["mlp gelu: gated only"])

    strict = replace(target(), unsupported_layout=refused)
    question = replace(on_one_cluster(layers=4, batch=8, nodes=2, devices=2), target=strict)
    tried: list[Request] = []
    monkeypatch.setattr("planner.diagnosis.remedies._nodes", tried.append)
    assert [remedy.words for remedy in remedies(question)] == ["leaving out --for strict"]
    assert tried == []


def test_a_remedy_keeps_to_the_target_that_was_asked_for():
    """fp16 with the optimizer on the hosts: no framework runs it in a pipeline, so that shards over equal cards are left."""
    nics = (make.nic("ethernet", 1e9),)
    a, b = (
        make.cluster(name, nodes=nodes, nics=nics, spec=catalog.device(device))
        for name, nodes, device in (("a", 2, "rtx-3090"), ("b", 3, "rtx-3080-ti"))
    )
    fleet = make.fleet(a, b, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    free = request(fleet, catalog.model("llama-2-7b"), 32, precision="fp16")
    held = replace(free, unfit_target=targets.any_framework())
    plans = [fitting(one.request) for asked in (free, held) for one in remedies(asked) if "--offload" in one.words]
    assert [(plan.config.pp, plan.config.zero_stage) for plan in plans if plan is not None] == [(2, 1), (1, 2)]


def test_a_plan_that_needs_the_head_room_is_refused_and_the_remedy_says_so():
    """gpt-39b that takes between 92 and 100 % of 79.2 GiB."""
    question = shipped("holmes-infiniband-4", "gpt-39b", Wishes(tp=2, pp=8, dp=2, microbatch_size=8, recompute="none"))
    assert "(79.2 GiB less a head-room of 0.08) of device a100-sxm4-80gb by " in why_none(question)
    first, second, third, last = in_words(question).split(", or ")
    assert first == "--set memory_headroom=0, without head-room"
    assert second == "--offload optimizer, with a step of 148.6 s or less"
    assert third == "3 GiB more memory on each a100-sxm4-80gb of cluster ib"
    assert last == LORA
    plan = plan_of(replace(question, topology=replace(question.topology, memory_headroom=0.0)), budgets=NO_PROOF)
    assert plan is not None and 0.92 * 79.2 * 2**30 < max(memory.peak_memory(plan)) <= 79.2 * 2**30


@pytest.mark.parametrize(
    ("strategy", "wishes", "text"),
    [
        (
            "certified",
            Wishes(dp=5, zero_stage=3),
            "no layout fits --dp 5 --zero-stage 3; dp 5 must divide global_batch_size 768; remedy: --zero-stage 1 instead of 3",
        ),
        ("holmes", Wishes(dp=5), "dp 5 must divide global_batch_size 768; use strategy certified"),
        ("holmes", Wishes(tp=2, pp=3, dp=4), "fits the memory and the batch; use strategy certified"),
    ],
)
def test_every_strategy_says_what_would_cure_it(strategy, wishes, text):
    question = shipped("holmes-hybrid-4", wishes=wishes)
    with pytest.raises(Infeasible) as caught:
        api.plan(question, strategy)
    assert str(caught.value).endswith(text)


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        (Wishes(pp=31), "pp 31 needs a layer for each stage; gpt-3.6b has 30"),
        (Wishes(pp=15, vpp=3), "pp 15 x vpp 3 needs a layer for each stage; gpt-3.6b has 30"),
        (Wishes(pp=1, vpp=2), "vpp 2 with pp 1: virtual stages need a pipeline, pp 2 or more"),
        (
            Wishes(pp=1, schedule="interleaved"),
            "schedule interleaved with pp 1: virtual stages need a pipeline, pp 2 or more",
        ),
        (Wishes(pp=5, dp=8), "pp 5 does not fit holmes-hybrid-4: its devices hold at most 4 stages"),
        (
            Wishes(pp=7, vpp=3),
            "no layout fits --pp 7 --vpp 3: a pipeline needs a layer for each of its pp x vpp stages, and interleaved stages a "
            "multiple of pp microbatches",
        ),
    ],
)
def test_what_is_not_a_matter_of_memory_does_not_blame_it(wishes, text):
    assert why_none(shipped("holmes-hybrid-4", wishes=wishes)) == text
