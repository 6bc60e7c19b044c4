"""The encoder's bytes, by hand and as protobuf reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holmes_sim.chakra import protobuf
from holmes_sim.chakra.protobuf import COLLECTIVE, Node


def trace(*nodes: Node) -> bytes:
    return protobuf.metadata() + b"".join(protobuf.delimited(protobuf.encoded(node)) for node in nodes)


def test_bytes_of_a_trace_by_hand():
    node = Node(2, "F0", 4, (1, 300), 150, (("is_cpu_op", False),))
    head = bytes.fromhex("07 0a05") + b"0.0.4"
    body = (
        bytes.fromhex("0802 1202") + b"F0" + bytes.fromhex("1804 2a03 01 ac02 38 9601")
        + bytes.fromhex("520e 0a09") + b"is_cpu_op" + bytes.fromhex("d80100")
    )  # fmt: skip
    assert trace(node) == head + bytes([len(body)]) + body


def test_protobuf_reads_every_kind_of_field():
    schema = pytest.importorskip("tests.holmes_sim.chakra.schema")
    given = {"is_cpu_op": False, "comm_type": 7, "comm_size": 2**40, "comm_src": 3, "comm_tag": 9, "pg_name": "12"}
    node = Node(70000, "dp reduce_scatter", COLLECTIVE, (1, 2, 69999), 0, tuple(given.items()))
    version, nodes = schema.read(trace(Node(1, "F0", 4), node))
    assert version == "0.0.4"
    assert [one.id for one in nodes] == [1, 70000]
    assert (nodes[1].name, nodes[1].type, list(nodes[1].data_deps)) == ("dp reduce_scatter", 7, [1, 2, 69999])
    assert schema.attributes(nodes[1]) == given
    kinds = {attr.name: attr.WhichOneof("value") for attr in nodes[1].attr}
    assert kinds == {
        "is_cpu_op": "bool_val", "comm_type": "int64_val", "comm_size": "int64_val", "comm_src": "int32_val",
        "comm_tag": "int32_val", "pg_name": "string_val",
    }  # fmt: skip
    assert not nodes[1].ctrl_deps


@given(
    st.integers(0, 2**64 - 1),
    st.text(max_size=200),
    st.lists(st.integers(1, 2**63)),
    st.integers(0, 2**63),
    st.integers(0, 2**62),
)
def test_protobuf_reads_what_was_meant(number, name, after, microseconds, nbytes):
    schema = pytest.importorskip("tests.holmes_sim.chakra.schema")
    node = Node(number, name, 7, tuple(after), microseconds, (("comm_size", nbytes),))
    (read,) = schema.read(trace(node))[1]
    assert (read.id, read.name, list(read.data_deps), read.duration_micros) == (number, name, after, microseconds)
    assert schema.attributes(read) == {"comm_size": nbytes}
