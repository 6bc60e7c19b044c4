"""Encoder of Chakra execution traces as protobuf bytes, written by hand: four messages do not justify a dependency on protobuf.

Messages, field numbers and enumerations: mlcommons/chakra at 21585d8 (2026-05), schema/protobuf/et_def.proto. A file is
GlobalMetadata followed by Nodes, each after its length (src/third_party/utils/protolib.py). Attribute types are those that
ASTRA-sim's own generators write (examples/workload/microbenchmarks/generator_scripts).
"""

from __future__ import annotations

import functools
from typing import NamedTuple, TypeAlias

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Values of the enumeration NodeType."""
OPERATIONS = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}
"""Values of the enumeration CollectiveCommType."""
VERSION = "0.0.4"
"""Version of the schema, as ASTRA-sim's own generators write it (see above)."""
_VALUE_FIELDS: dict[type, int] = {bool: 27, str: 29}
"""Python type -> field number of an attribute's value."""
_INT64, _INT32 = 9, 7
"""Field numbers of integer values: int64, and int32 for the attributes in `_SHORT`."""
_SHORT = ("comm_src", "comm_dst", "comm_tag")
_VARINT, _BYTES = 0, 2
"""Wire types of protobuf."""


Attributes: TypeAlias = tuple[tuple[str, bool | int | str], ...]


class Node(NamedTuple):
    """One node; `after` are the ids of the nodes it depends on."""

    id: int
    name: str
    type: int
    after: tuple[int, ...] = ()
    microseconds: int = 0
    attributes: Attributes = ()


def metadata() -> bytes:
    """The first message of a file."""
    return delimited(_bytes(1, VERSION.encode()))


def delimited(message: bytes) -> bytes:
    """A message after its length, as it is written to a file."""
    return _varint(len(message)) + message


def encoded(node: Node) -> bytes:
    """A Node message; attributes may be appended to it."""
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
    """Attributes as fields of a Node."""
    return b"".join(_bytes(10, _attribute(name, value)) for name, value in found)


def _attribute(name: str, value: bool | int | str) -> bytes:
    """One attribute message."""
    head = _bytes(1, name.encode())
    if isinstance(value, str):
        return head + _bytes(_VALUE_FIELDS[str], value.encode())
    field = _VALUE_FIELDS.get(type(value), _INT32 if name in _SHORT else _INT64)
    return head + _varint(field << 3 | _VARINT) + _varint(int(value))


def _number(field: int, value: int) -> bytes:
    """An integer field; 0 is the default of proto3 and is not written."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    """A field of bytes, text or a message."""
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


@functools.lru_cache(maxsize=4096)  # the same tags, lengths and small numbers recur in every node
def _varint(value: int) -> bytes:
    """An unsigned integer in base 128: seven bits per byte, lowest first, top bit set on all bytes but the last."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
