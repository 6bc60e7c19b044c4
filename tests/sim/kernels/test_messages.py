"""Messages between clusters: their bytes, the passes that compress them, and the step with them.

An activation has 64 tokens of 96 values: 6,144 values, 12,288 bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.errors import PlanError
from sim.formats.config_facts import ConfigFacts, config_facts, config_values
from sim.hardware.cluster import Device, Fleet, Trunk
from sim.kernels.messages import Messages
from sim.plan.parallel_config import ParallelConfig
from tests import builders

WHOLE, INT8 = 12288.0, 6144 + 6144 * 8 / 4096


def sites(*devices: int, rates: tuple[float, ...] = (1e9,)) -> Fleet:
    """Clusters a, b ... of nodes with one device each, in a chain of trunks."""
    names = "abc"[: len(devices)]
    clusters = [builders.cluster(name, nodes=nodes) for name, nodes in zip(names, devices, strict=True)]
    trunks = (Trunk((names[i], names[i + 1]), "infiniband", rate, 0.0) for i, rate in enumerate(rates))
    return builders.fleet(*clusters, trunks=tuple(trunks))


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("none", WHOLE), ("int8", INT8), ("int4", 6144 * (0.5 + 4 / 4096)), ("top-k=10%", 614.4 * 6), ("top-k=50%", WHOLE)],
)
def test_only_messages_between_clusters_are_compressed(text, nbytes):
    messages = Messages(builders.plan(sites(2, 1), pp=3, message_compression=text))
    assert messages.nbytes(0, 1) == messages.nbytes(1, 0) == WHOLE
    assert messages.nbytes(1, 2) == messages.nbytes(2, 1) == pytest.approx(nbytes)


def test_the_sender_compresses_and_the_receiver_decompresses():
    """int8: the sender reads two bytes twice and writes one, the receiver reads one and writes two."""
    messages = Messages(builders.plan(sites(2, 1), pp=3, message_compression="int8"))
    assert messages.passes((0,)) == ((), ())
    assert messages.passes((1,)) == ((6144 * 5,), (6144 * 3,))
    assert messages.passes((2,)) == ((6144 * 3,), (6144 * 5,))


def test_a_stage_between_two_others_handles_both_messages():
    messages = Messages(builders.plan(sites(1, 1, 1, rates=(1e9, 1e9)), pp=3, message_compression="int8"))
    assert messages.passes((1,)) == ((6144 * 3, 6144 * 5), (6144 * 5, 6144 * 3))


def test_virtual_stages_handle_every_message():
    """Two chunks on each of two clusters: the first chunk of rank 0 sends, its second one receives and sends."""
    plan = builders.plan(sites(1, 1), pp=2, vpp=2, microbatches=2, schedule="interleaved", message_compression="int8")
    assert Messages(plan).passes((0, 2)) == ((6144 * 5, 6144 * 3, 6144 * 5), (6144 * 3, 6144 * 5, 6144 * 3))


def test_ranks_of_a_narrow_stage_handle_more():
    machines = builders.fleet(
        builders.cluster("a", devices=2), builders.cluster("b"), trunks=(Trunk(("a", "b"), "infiniband", 1e9, 0.0),)
    )
    messages = Messages(builders.plan(machines, tp=2, pp=2, stage_tp=(2, 1), message_compression="int8"))
    assert messages.nbytes(0, 1) == INT8 / 2
    assert (messages.passes((0,))[0], messages.passes((1,))[0]) == ((3072 * 5,), (6144 * 3,))


def test_ranks_that_divide_samples_handle_their_own():
    """A message of 6,144 values goes to two ranks, each with half of the samples."""
    machines = builders.fleet(
        builders.cluster("a"), builders.cluster("b", nodes=2), trunks=(Trunk(("a", "b"), "infiniband", 1e9, 0.0),)
    )
    plan = builders.plan(machines, pp=2, stage_dp=(1, 2), microbatch_size=2, seq_len=32, message_compression="int8")
    messages = Messages(plan)
    assert messages.nbytes(0, 1) == INT8 / 2
    assert (messages.passes((0,))[0], messages.passes((1,))[0]) == ((6144 * 5,), (3072 * 3,))
    assert plan_costs.step_seconds(plan) == pytest.approx(simulate(plan).step_s, rel=1e-9)


def test_replicas_send_alike():
    """One replica crosses to b: both are compressed. With a replica in each cluster, none is."""
    places = {name: Device(name[0], int(name[1]), 0) for name in ("a0", "a1", "a2", "b0", "b1")}
    for names, nbytes in ((("a0", "a1", "a2", "b0"), INT8), (("a0", "b0", "a1", "b1"), WHOLE)):
        placement = tuple(places[name] for name in names)
        plan = builders.plan(sites(3, 2), pp=2, dp=2, placement=placement, message_compression="int8")
        assert Messages(plan).nbytes(0, 1) == nbytes


def test_adaptive_shares_make_hops_take_equally_long():
    """Trunks of 1 and 4 GB/s: 5 and 20 % of the values, of 6 bytes each."""
    messages = Messages(builders.plan(sites(1, 1, 1, rates=(1e9, 4e9)), pp=3, message_compression="adaptive-top-k=5%"))
    assert messages.nbytes(0, 1) == pytest.approx(0.05 * 6144 * 6)
    assert messages.nbytes(1, 2) == pytest.approx(4 * 0.05 * 6144 * 6)


def test_the_step_is_shorter_by_the_bytes_and_longer_by_the_passes():
    """One microbatch: a message there and one back. Four passes of 3 us and their bytes at 1 TB/s."""
    plan = builders.plan(sites(2, 1), pp=3)
    compressed = replace(plan, config=replace(plan.config, message_compression="int8"))
    less = 2 * (WHOLE - INT8) / 1e9 - (4 * 3e-6 + 2 * 6144 * (5 + 3) / 1e12)
    assert simulate(plan).step_s - simulate(compressed).step_s == pytest.approx(less, rel=1e-9)
    assert plan_costs.step_seconds(compressed) == pytest.approx(simulate(compressed).step_s, rel=1e-9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zip", "'zip' is unknown; known: adaptive-top-k, int4, int8, none, top-k"),
        ("fp16", "'fp16' is not for messages between clusters; known: adaptive-top-k, int4, int8, none, top-k"),
        ("top-k", "'top-k': write top-k=1%"),
        ("top-k=0%", "top-k=0%: write the share of the values that is sent, such as top-k=1%"),
    ],
)
def test_a_wrong_value_is_one_line(text, message):
    with pytest.raises(PlanError) as error:
        ParallelConfig(pp=2, message_compression=text)
    assert str(error.value) == f"message_compression: compression {message}"


def test_a_plan_file_has_the_key_only_where_it_is_used():
    assert "message_compression" not in config_facts(ParallelConfig(pp=2))
    written = config_facts(ParallelConfig(pp=2, message_compression="int8"))
    assert written["message_compression"] == "int8"
    assert config_values(ConfigFacts(**written))["message_compression"] == "int8"
