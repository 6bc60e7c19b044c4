"""Chakra's execution trace as bytes, by hand: a trace needs four messages, and the package no protobuf.

Messages, field numbers and enumerations are of mlcommons/chakra at 21585d8 (2026-05), schema/protobuf/et_def.proto; a file is
GlobalMetadata and then Nodes, each behind its length (src/third_party/utils/protolib.py). Types of attributes are those that
ASTRA-sim's own generators write (examples/workload/microbenchmarks/generator_scripts).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""NodeType."""
OPERATIONS = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}
"""CollectiveCommType."""
VERSION = "0.0.4"
"""Of the schema, as ASTRA-sim's own generators write it (see above)."""
_VALUE_FIELDS: dict[type, int] = {bool: 27, str: 29}
_INT64, _INT32 = 9, 7
_SHORT = ("comm_src", "comm_dst", "comm_tag")
_VARINT, _BYTES = 0, 2


Attributes: TypeAlias = tuple[tuple[str, bool | int | str], ...]


class Node(NamedTuple):
    """One node: `after` are the ids of those that must have ended."""

    id: int
    name: str
    type: int
    after: tuple[int, ...] = ()
    microseconds: int = 0
    attributes: Attributes = ()


def metadata() -> bytes:
    """What a file begins with."""
    return delimited(_bytes(1, VERSION.encode()))


def delimited(message: bytes) -> bytes:
    """A message as it stands in a file."""
    return _varint(len(message)) + message


def encoded(node: Node) -> bytes:
    """A Node; attributes may be added behind it."""
    after = b"".join(map(_varint, node.after))
    return b"".join(
        (
            _number(1, node.id),
            _bytes(2, node.name.encode()),
            _number(3, node.type),
            _bytes(5, after) if after else b"",
            _number(7, node.microseconds),
            attributes(node.attributes),
        )
    )


def attributes(found: Attributes) -> bytes:
    """Attributes of a Node."""
    return b"".join(_bytes(10, _attribute(name, value)) for name, value in found)


def _attribute(name: str, value: bool | int | str) -> bytes:
    head = _bytes(1, name.encode())
    if isinstance(value, str):
        return head + _bytes(_VALUE_FIELDS[str], value.encode())
    field = _VALUE_FIELDS.get(type(value), _INT32 if name in _SHORT else _INT64)
    return head + _varint(field << 3 | _VARINT) + _varint(int(value))


def _number(field: int, value: int) -> bytes:
    """A field of proto3: 0 is not written."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first, the top bit set on all but the last."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
