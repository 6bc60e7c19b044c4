"""A described fleet: a topology with a workload, where each value comes from, and what is assumed and missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from holmes_sim.describing import commented, defaults
from holmes_sim.imported import Imported, SourceText, combined, source
from sim.errors import HolmesError
from sim.formats.documents import KeyPath, parse, read_text
from sim.formats.topology import from_document, load_model

FORMAT = "holmes-sim/init/1"
GUESS = "guess"
WORKLOAD = ("model", "global_batch_size", "seq_len", "precision")
HEAD = "Written by holmes-sim init. Comments say what a key is; where its value comes from. Please correct what is a guess."
FILL_IN = "the only paths between clusters: remove the # in front of these lines and correct the numbers, which are guesses"
NO_TYPE = "{a} and {b}: {why}; first give their nodes {{type: ethernet, bandwidth: 25 Gbit/s}}"


@dataclass(frozen=True, slots=True)
class Description:
    """A topology as plain data; `origins`: path -> where its value comes from; lines on what is assumed and missing."""

    topology: dict[str, Any]
    origins: dict[KeyPath, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes as lines."""
        titled = (("Assumed", self.assumed), ("Missing", self.missing))
        return tuple(f"{word}: {line}" for word, lines in titled for line in lines)

    def facts(self) -> dict[str, Any]:
        """What `holmes-sim init --json` prints (format holmes-sim/init/1)."""
        notes = {"assumed": list(self.assumed), "missing": list(self.missing)}
        return {"format": FORMAT, "topology": self.topology, **notes}

    def text(self) -> str:
        """The topology file: notes and a comment for each key. A link that is missing is there as a comment to fill in."""
        notes = [line for note in self.notes for line in commented.comment(note)]
        head = "".join(f"{line}\n" for line in (*commented.comment(HEAD), *notes))
        return head + commented.text(self.topology, self.origins) + "".join(f"{line}\n" for line in _links(self.topology))


def of_files(files: Sequence[str]) -> tuple[SourceText, ...]:
    """The texts of files given as `FILE` or `CLUSTER=FILE`. Raises HolmesError."""
    pairs = [source(one) for one in files]
    return tuple(SourceText(str(path), read_text(path, HolmesError), cluster) for cluster, path in pairs)


def of_sources(
    texts: Sequence[SourceText], name: str, made: str, given: Mapping[str, Any], notes: Sequence[str] = ()
) -> Description:
    """The fleet that sources describe; `given` are keys of the workload, `notes` further assumptions. Raises HolmesError."""
    found = combined(texts, name, made, defaults.nics)
    lone = [cluster for cluster, facts in found.topology["clusters"].items() if "hosts" not in facts]
    origins = found.origins | {("clusters", cluster, "nodes"): f"{GUESS}: no source lists hosts" for cluster in lone}
    return complete(found.topology, origins, given, (*notes, *found.assumed), _without_advice(found))


def complete(
    topology: Mapping[str, Any],
    origins: Mapping[KeyPath, str],
    given: Mapping[str, Any],
    assumed: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Description:
    """A topology with a workload: the given keys, and guesses for the others. Raises TopologyError if it is wrong."""
    guessed = defaults.workload(topology["clusters"], bool(topology.get("links")))
    if "model" in given:
        guessed["seq_len"] = defaults.length(load_model(given["model"]))
    workload = {key: given.get(key, guessed[key]) for key in WORKLOAD}
    whole = {**topology, "workload": workload}
    own = {("workload", key): "given on the command line" if key in given else GUESS for key in WORKLOAD}
    found = Description(whole, own | dict(origins), tuple(assumed), tuple(missing))
    from_document(parse(str(topology["name"]), found.text()), Path())
    return found


def _without_advice(found: Imported) -> tuple[str, ...]:
    """What is missing, links between clusters in the words of this file."""
    links = "links between the clusters; no plan spans clusters until they are filled in at the end of this file"
    return tuple(links if line.startswith("links between the clusters") else line for line in found.missing)


def _links(topology: Mapping[str, Any]) -> list[str]:
    """Comments with a link to fill in for each two clusters in order; nothing with links, or with one cluster."""
    clusters = topology["clusters"]
    if len(clusters) < 2 or topology.get("links"):
        return []
    hints, lines = list(commented.comment(FILL_IN)), ["# links:"]
    for a, b in pairwise(clusters):
        types = defaults.link_types(clusters[a], clusters[b])
        if not types:
            hints += commented.comment(NO_TYPE.format(a=a, b=b, why=defaults.no_common_type(clusters[a], clusters[b])))
        lines += [f"#   - between: [{a}, {b}]", f"#     type: {types[0] if types else 'ethernet'}"]
        lines += [f"#     bandwidth: {defaults.ETHERNET}", f"#     latency: {defaults.LATENCY}"]
    return [*hints, *lines]
