"""Chakra's messages as protobuf knows them: made by hand from mlcommons/chakra 21585d8, schema/protobuf/et_def.proto."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "uint64": FIELD.TYPE_UINT64, "string": FIELD.TYPE_STRING, "int32": FIELD.TYPE_INT32, "int64": FIELD.TYPE_INT64,
    "bool": FIELD.TYPE_BOOL, "double": FIELD.TYPE_DOUBLE, "float": FIELD.TYPE_FLOAT, "uint32": FIELD.TYPE_UINT32,
    "bytes": FIELD.TYPE_BYTES,
}  # fmt: skip
MESSAGES = {
    "AttributeProto": [
        ("string", "name", 1), ("string", "doc_string", 2), ("value double", "double_val", 3), ("value float", "float_val", 5),
        ("value int32", "int32_val", 7), ("value int64", "int64_val", 9), ("value uint32", "uint32_val", 11),
        ("value uint64", "uint64_val", 13), ("value bool", "bool_val", 27), ("value string", "string_val", 29),
        ("value bytes", "bytes_val", 31),
    ],
    "GlobalMetadata": [("string", "version", 1), ("repeated AttributeProto", "attr", 2)],
    "Node": [
        ("uint64", "id", 1), ("string", "name", 2), ("NodeType", "type", 3), ("repeated uint64", "ctrl_deps", 4),
        ("repeated uint64", "data_deps", 5), ("uint64", "start_time_micros", 6), ("uint64", "duration_micros", 7),
        ("IOInfo", "inputs", 8), ("IOInfo", "outputs", 9), ("repeated AttributeProto", "attr", 10),
    ],
    "IOInfo": [("string", "values", 1), ("string", "shapes", 2), ("string", "types", 3)],
}  # fmt: skip
ENUMS = {
    "NodeType": {
        "INVALID_NODE": 0, "METADATA_NODE": 1, "MEM_LOAD_NODE": 2, "MEM_STORE_NODE": 3, "COMP_NODE": 4, "COMM_SEND_NODE": 5,
        "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7,
    },
    "CollectiveCommType": {
        "ALL_REDUCE": 0, "REDUCE": 1, "ALL_GATHER": 2, "GATHER": 3, "SCATTER": 4, "BROADCAST": 5, "ALL_TO_ALL": 6,
        "REDUCE_SCATTER": 7, "REDUCE_SCATTER_BLOCK": 8, "BARRIER": 9,
    },
}  # fmt: skip


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for kind, field, number in fields:
            *how, of = kind.split()
            added = message.field.add(name=field, number=number)
            added.label = FIELD.LABEL_REPEATED if how == ["repeated"] else FIELD.LABEL_OPTIONAL
            if how == ["value"]:
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                added.oneof_index = 0
            if of in TYPES:
                added.type = TYPES[of]
            else:
                added.type = FIELD.TYPE_ENUM if of in ENUMS else FIELD.TYPE_MESSAGE
                added.type_name = f".ChakraProtoMsg.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in MESSAGES}


CLASSES = _classes()


def read(trace: bytes) -> tuple[str, list[Any]]:
    """Version and nodes of a file: messages, each behind its length as a varint."""
    found, at = [], 0
    while at < len(trace):
        length, shift = 0, 0
        while True:
            byte = trace[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        message = CLASSES["Node" if found else "GlobalMetadata"]()
        assert message.ParseFromString(trace[at : at + length]) == length
        at += length
        found.append(message)
    assert at == len(trace)
    return found[0].version, found[1:]


def attributes(node: Any) -> dict[str, Any]:
    """Attributes of a node by name."""
    return {attr.name: getattr(attr, attr.WhichOneof("value")) for attr in node.attr}
