"""A topology as YAML text with a comment for each key: what it is, and where its value comes from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from sim.formats.documents import KeyPath, to_yaml

WIDTH = 80
"""Columns of a line. Values are not broken."""
_NODE = ("clusters", "*", "node")
_NIC = (*_NODE, "nics", "*")
_LINK = ("links", "*")
WORDS: dict[tuple[str, ...], str] = {
    ("format",): "kind of this file",
    ("name",): "name of the fleet",
    ("source",): "how this file was made",
    ("clusters",): "a cluster: equal nodes below one network",
    ("clusters", "*", "nodes"): "number of nodes (hosts)",
    ("clusters", "*", "hosts"): "names of the hosts, for launches",
    _NODE: "all nodes of a cluster are equal",
    (*_NODE, "devices"): "accelerators of a node",
    (*_NODE, "devices", "type"): "a name of `holmes-sim list devices`",
    (*_NODE, "devices", "count"): "number in a node",
    (*_NODE, "intra_node"): "joins the devices of a node (`holmes-sim list links`)",
    (*_NODE, "host_memory"): "memory of its CPUs, for offload of optimizer state",
    (*_NODE, "nics"): "NICs of a node, by type",
    (*_NIC, "type"): "a name of `holmes-sim list nics`",
    (*_NIC, "bandwidth"): "of one NIC, in each direction",
    (*_NIC, "count"): "number in a node",
    (*_NIC, "names"): "names on the hosts, for launches",
    (*_NIC, "gid_index"): "GID index of RoCE, for launches",
    (*_NIC, "efficiency"): "share of the bandwidth that collectives reach",
    ("clusters", "*", "fabric"): "leaf switches of the cluster",
    ("clusters", "*", "fabric", "nodes_per_leaf"): "nodes below one leaf switch",
    ("clusters", "*", "fabric", "oversubscription"): "bandwidth down over bandwidth up",
    ("links",): "the only paths between clusters",
    (*_LINK, "between"): "two clusters",
    (*_LINK, "type"): "type of the NICs that use the link",
    (*_LINK, "bandwidth"): "in each direction, for all nodes together",
    (*_LINK, "latency"): "added by the link, one way",
    ("workload",): "what is trained",
    ("workload", "model"): "a name of `holmes-sim list models`, or a config.json",
    ("workload", "global_batch_size"): "sequences per optimizer step",
    ("workload", "seq_len"): "tokens per sequence",
    ("workload", "precision"): "of matrix products",
}
"""Path of a key, * for names and indices -> what it is."""
INLINE = ("intra_node", "model")
"""Keys whose value may be facts in place of a name, which get no comments of their own."""


def text(topology: Mapping[str, Any], origins: Mapping[KeyPath, str]) -> str:
    """The commented YAML. `origins`: path -> where the value comes from."""
    return "".join(f"{line}\n" for line in _mapping(topology, (), "", "", origins))


def comment(words: str, indent: str = "") -> Iterator[str]:
    """A comment as lines of at most `WIDTH` columns."""
    start = f"{indent}# "
    yield from textwrap.wrap(
        words, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )


def _mapping(value: Mapping[str, Any], path: KeyPath, first: str, indent: str, origins: Mapping[KeyPath, str]) -> Iterator[str]:
    """Lines of a mapping. `first` is what stands in front of its first key: the indent, or `- ` of a list."""
    for number, (key, item) in enumerate(value.items()):
        lead, where = (first or indent) if number == 0 else indent, (*path, key)
        words = _words(where, origins)
        nested = isinstance(item, dict) and key not in INLINE
        many = isinstance(item, list) and bool(item) and isinstance(item[0], dict)
        lines = [f"{_value(key)}:"] if nested or many else _leaf(key, item)
        yield from _with_comment(lines, words, lead, indent)
        if nested:
            yield from _mapping(item, where, "", f"{indent}  ", origins)
        for index, element in enumerate(item) if many else ():
            yield from comment(origins.get((*where, index), ""), f"{indent}  ")
            yield from _mapping(element, (*where, index), f"{indent}  - ", f"{indent}    ", origins)


def _leaf(key: str, item: object) -> list[str]:
    """Lines of a key with a value that is not broken into keys; lines after the first are indented."""
    if isinstance(item, dict):
        return [f"{_value(key)}:", *(f"  {line}" for line in _value(item).split("\n"))]
    first, *rest = _value(item).split("\n")
    return [f"{_value(key)}: {first}", *(f"  {line}" for line in rest)]


def _value(item: object) -> str:
    """YAML text of a value, or of a key."""
    return to_yaml(item).removesuffix("...\n").rstrip("\n")


def _with_comment(lines: list[str], words: str, lead: str, indent: str) -> Iterator[str]:
    """Lines of a key with its comment: behind the first line if there is only one and both fit, else above it."""
    whole = f"{lead}{lines[0]}  # {words}"
    if words and len(lines) == 1 and len(whole) <= WIDTH:
        yield whole
        return
    yield from comment(words, lead.split("-")[0]) if words else ()
    yield f"{lead}{lines[0]}"
    yield from (f"{indent}{line}" for line in lines[1:])


def _words(path: KeyPath, origins: Mapping[KeyPath, str]) -> str:
    """What a key is, and where its value comes from."""
    return "; ".join(filter(None, (WORDS.get(_pattern(path), ""), origins.get(path, ""))))


def _pattern(path: KeyPath) -> tuple[str, ...]:
    """A path with * for names of clusters and for indices."""
    return tuple("*" if isinstance(part, int) or path[:at] == ("clusters",) else part for at, part in enumerate(path))
