"""Chakra: every trace decoded by protobuf, with MLCommons' own schema, and held against all others.

CHAKRA_PROTO names schema/protobuf/et_def.proto of mlcommons/chakra; protoc compiles it. Read of the nodes: whom a rank sends to
(pp), over which groups of comm_groups.json its collectives go (tp, cp, ep, and the ranks that share gradients), microbatches.
Raises where a node waits for one that does not stand before it, a message has no counterpart of its tag and bytes, a rank runs
a collective of a group it is not in, or the ranks of a group run different collectives: ASTRA-sim would wait for ever.
"""

from __future__ import annotations

import collections
import importlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import proto

if "CHAKRA_PROTO" not in os.environ:
    sys.exit("CHAKRA_PROTO is to name schema/protobuf/et_def.proto of mlcommons/chakra")
SCHEMA = Path(os.environ["CHAKRA_PROTO"]).resolve()
with tempfile.TemporaryDirectory() as scratch:
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SCHEMA.parent}", f"--python_out={scratch}", SCHEMA.name]
    subprocess.run(protoc, check=True)
    sys.path.insert(0, scratch)
    chakra: Any = importlib.import_module(f"{SCHEMA.stem}_pb2")
    sys.path.pop(0)

KIND = re.compile(r"(?:start )?(tp|cp|ep|dp|embedding) |(ring) ")
FORWARD = re.compile(r"\d*F(\d+)")


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    return {"mlcommons/chakra": os.environ.get("CHAKRA_COMMIT", "21585d8"), "protobuf": importlib.metadata.version("protobuf")}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Ranks, groups and microbatches of the traces."""
    seen = Seen({int(number): ranks for number, ranks in json.loads((folder / "comm_groups.json").read_text()).items()})
    world = len(list((folder / "traces").iterdir()))
    for rank in range(world):
        seen.trace(rank, (folder / "traces" / f"trace.{rank}.et").read_bytes())
    seen.check()
    groups = seen.kinds()
    if "profile" in plan["topology"]:  # devices whose profile holds the collectives of tp have no nodes of them
        groups = {kind: some for kind, some in groups.items() if kind != "tp" or sum(map(len, some)) == world}
    return {"world_size": world, "groups": groups} | seen.microbatches()


class Seen:
    """What the traces contain so far. `collectives` is a hash of the collectives of each rank of each group, in their order."""

    def __init__(self, groups: dict[int, list[int]]):
        self.groups = groups
        self.pairs: set[tuple[int, int]] = set()
        self.open: collections.Counter[tuple[int, ...]] = collections.Counter()
        self.collectives: dict[int, dict[int, int]] = collections.defaultdict(dict)
        self.numbers: dict[str, set[int]] = collections.defaultdict(set)
        self.forwards: dict[int, set[str]] = collections.defaultdict(set)

    def trace(self, rank: int, trace: bytes) -> None:
        """Note the nodes of a rank."""
        known: set[int] = set()
        for node in _nodes(trace):
            if node.id in known or not known.issuperset(node.data_deps) or node.ctrl_deps:
                raise ValueError(f"rank {rank}: {node.name} ({node.id}) waits for {list(node.data_deps)}")
            known.add(node.id)
            if node.type == chakra.COMP_NODE:
                if forward := FORWARD.match(node.name):
                    self.forwards[rank].add(forward[1])
            else:
                facts = {attr.name: getattr(attr, attr.WhichOneof("value")) for attr in node.attr}
                of = self._collective if node.type == chakra.COMM_COLL_NODE else self._message
                of(rank, node, facts)

    def check(self) -> None:
        """Raise where ranks would wait for one another for ever."""
        if self.open:
            raise ValueError(f"messages without counterpart: {list(self.open.items())[:3]}")
        for number, of_rank in self.collectives.items():
            if len({of_rank.get(rank) for rank in self.groups[number]}) > 1:
                raise ValueError(f"the ranks of group {number} run different collectives")

    def kinds(self) -> dict[str, list[list[int]]]:
        """The groups of every kind that has a collective."""
        listed = {kind: [sorted(self.groups[number]) for number in self.numbers[kind]] for kind in ("tp", "cp", "ep")}
        gradients = {(self.groups[number][0], rank) for number in self.numbers["dp"] for rank in self.groups[number][1:]}
        found = {kind: sorted(ranks) for kind, ranks in listed.items()} | {
            "pp": _joined(self.pairs),
            "gradients": _joined(gradients),
        }
        return {kind: groups for kind, groups in found.items() if groups}

    def microbatches(self) -> dict[str, int]:
        """Their number where all ranks have as many."""
        counts = {len(found) for found in self.forwards.values()}
        return {"microbatches": counts.pop()} if len(counts) == 1 else {}

    def _message(self, rank: int, node: Any, facts: dict[str, Any]) -> None:
        way, is_send = (facts["comm_src"], facts["comm_dst"]), node.type == chakra.COMM_SEND_NODE
        if way[not is_send] != rank or way[0] == way[1]:
            raise ValueError(f"rank {rank}: {node.name} goes from {way[0]} to {way[1]}")
        self.pairs.add(way)
        message = (*way, facts["comm_tag"], facts["comm_size"])
        self.open[message] += 1 if is_send else -1
        if not self.open[message]:
            del self.open[message]

    def _collective(self, rank: int, node: Any, facts: dict[str, Any]) -> None:
        number = int(facts["pg_name"])
        if rank not in self.groups[number]:
            raise ValueError(f"rank {rank}: {node.name} is over {self.groups[number]}")
        self.collectives[number][rank] = hash((self.collectives[number].get(rank), facts["comm_type"], facts["comm_size"]))
        self.numbers[KIND.match(node.name)[1] or "cp"].add(number)


def _nodes(trace: bytes) -> Iterator[Any]:
    """The metadata, then the nodes, each behind its length."""
    stream = io.BytesIO(trace)
    proto.parse_length_prefixed(chakra.GlobalMetadata, stream)
    while node := proto.parse_length_prefixed(chakra.Node, stream):
        yield node


def _joined(edges: set[tuple[int, int]]) -> list[list[int]]:
    """The sets of ranks that these pairs join."""
    home: dict[int, set[int]] = {}
    for one, other in edges:
        both = home.get(one, {one}) | home.get(other, {other})
        home |= dict.fromkeys(both, both)
    return sorted(sorted(ranks) for ranks in {min(ranks): ranks for ranks in home.values()}.values())
