"""Questions about a fleet, each with a default, and the topology that the answers give.

How a question is put is up to the caller (`Ask`), so that the questions work on a terminal and in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

from holmes_sim.describing import defaults
from holmes_sim.describing.description import GUESS, Description, complete
from holmes_sim.importing import hardware
from sim.errors import HolmesError
from sim.formats import catalog
from sim.formats.documents import KeyPath
from sim.formats.suggestions import suggestion
from sim.formats.topology import load_model
from sim.formats.topology_facts import TOPOLOGY_FORMAT
from sim.units import parse

ANSWER = "your answer"
DEFAULT = f"{GUESS}: default"
NONE = "none"
"""Answer for no NICs, or no link."""
UNKNOWN = "unknown"
"""Answer for a fact that is left out of the file."""
FIRST_DEVICE = "h100-sxm5-80gb"


class Ask(Protocol):
    """Puts a question with a default, until `check` takes the answer; it raises HolmesError with what would be right."""

    def __call__(self, question: str, default: str, check: Callable[[str], Any]) -> tuple[Any, bool]:
        """The checked answer, and whether it was typed; Enter takes the default."""
        ...


class Questionnaire:
    """Asks for clusters, links between them and the workload."""

    def __init__(self, ask: Ask, name: str):
        self._ask, self._origins = ask, dict[KeyPath, str]()
        self._missing: list[str] = []
        self._found: list[dict[str, Any]] = []
        """Links, as the file has them."""
        self._topology: dict[str, Any] = {
            "format": TOPOLOGY_FORMAT, "name": name, "source": "answers to holmes-sim init", "clusters": {},
        }  # fmt: skip

    def description(self, given: dict[str, Any]) -> Description:
        """Ask everything; `given` are keys of the workload that need no question."""
        number, _ = self._ask("Number of clusters (equal nodes below one network)", "1", whole)
        for index in range(number):
            self._cluster(index)
        self._links()
        guessed = defaults.workload(self._clusters, bool(self._topology.get("links")))
        answers = dict(given)
        if "model" not in given:
            small = "" if isinstance(guessed["model"], str) else guessed["model"]["name"]
            question, default = "Model to train", small or guessed["model"]
            answer = self._noted(("workload", "model"), question, default, lambda text: text if text == small else model(text))
            answers |= {"model": answer} if answer != small else {}
        if "model" in answers:
            guessed["seq_len"] = defaults.length(load_model(answers["model"]))
        for key, question in (("global_batch_size", "Sequences per step"), ("seq_len", "Tokens per sequence")):
            if key not in given:
                answers[key] = self._noted(("workload", key), question, str(guessed[key]), whole)
        return complete(self._topology, self._origins, answers, missing=self._missing)

    @property
    def _clusters(self) -> dict[str, Any]:
        return dict(self._topology["clusters"])

    def _noted(self, path: KeyPath, question: str, default: str, check: Callable[[str], Any]) -> Any:
        """Ask, and note whether the answer was typed; a default that Enter takes is a guess."""
        answer, typed = self._ask(question, default, check)
        self._origins[path] = ANSWER if typed else DEFAULT
        return answer

    def _cluster(self, index: int) -> None:
        """Ask for a cluster."""
        name, _ = self._ask(f"Cluster {index + 1}: name", f"cluster{index + 1}", self._new_name)
        at: KeyPath = ("clusters", name)
        of = f"{name}: "
        nodes = self._noted((*at, "nodes"), f"{of}number of nodes", "4", whole)
        node_at: KeyPath = (*at, "node", "devices")
        device = self._noted((*node_at, "type"), f"{of}device (holmes-sim list devices)", FIRST_DEVICE, known_device)
        count = self._noted((*node_at, "count"), f"{of}devices in a node", defaults.count(catalog.device(device)), whole)
        usual = hardware.usual_link(device) or "pcie4"
        link = usual if count == 1 else self._noted((*at, "node", "intra_node"), f"{of}link between them", usual, known_link)
        node: dict[str, Any] = {"devices": {"type": device, "count": count}, "intra_node": link}
        memory, _ = self._ask(f"{of}memory of a host (its CPUs)", UNKNOWN, memory_of)
        if memory != UNKNOWN:
            node["host_memory"] = memory
            self._origins[*at, "node", "host_memory"] = ANSWER
        nics = self._nics(at, of, device, count, nodes)
        self._topology["clusters"][name] = {"nodes": nodes, "node": node | ({"nics": nics} if nics else {})}

    def _nics(self, at: KeyPath, of: str, device: str, count: int, nodes: int) -> list[dict[str, Any]]:
        """Ask for the NICs of a node: those of training, and Ethernet beside RDMA."""
        guess = defaults.nic(catalog.device(device), count)
        path: KeyPath = (*at, "node", "nics", 0)
        check = nic_type if nodes > 1 else optional(nic_type)
        kind = self._noted((*path, "type"), f"{of}type of NICs (holmes-sim list nics)", guess.type, check)
        if kind == NONE:
            return []
        rate = guess.bandwidth if kind != "ethernet" else defaults.ethernet(catalog.device(device))
        found = [{
            "type": kind,
            "bandwidth": self._noted((*path, "bandwidth"), f"{of}rate of one NIC", rate, rate_of),
            "count": self._noted((*path, "count"), f"{of}NICs in a node", str(guess.count), whole),
        }]  # fmt: skip
        if kind == "ethernet":
            return found
        question = f"{of}rate of an Ethernet NIC beside them, or {NONE}"
        other = self._noted((*at, "node", "nics", 1, "bandwidth"), question, defaults.ETHERNET, optional(rate_of))
        return found if other == NONE else [*found, {"type": "ethernet", "bandwidth": other, "count": 1}]

    def _links(self) -> None:
        """Ask for a network that joins all of three or more clusters, else for a link between each two that have a common NIC
        type."""
        if self._joined():
            return
        for a, b in combinations(self._clusters, 2):
            types = defaults.link_types(self._clusters[a], self._clusters[b])
            if not types:
                self._missing.append(
                    f"a link between {a} and {b}: {defaults.no_common_type(self._clusters[a], self._clusters[b])}; "
                    "give both an Ethernet NIC"
                )
                continue
            question = f"{a} to {b}: type of the link ({', '.join(types)}), or {NONE}"
            kind = self._noted(("links", len(self._found), "type"), question, types[0], optional(one_of(types)))
            if kind != NONE:
                self._linked([(a, b)], kind, f"{a} to {b}: bandwidth in each direction", f"{a} to {b}: latency")

    def _joined(self) -> bool:
        """Ask for one network that joins all clusters, where they are three or more, and add a link for each two; whether
        there is one."""
        pairs = list(combinations(self._clusters, 2))
        common = [defaults.link_types(self._clusters[a], self._clusters[b]) for a, b in pairs]
        types = [kind for kind in common[0] if all(kind in others for others in common)] if len(pairs) > 1 else []
        if not types:
            return False
        question = f"One network that joins all clusters, such as a switch: type of its NICs ({', '.join(types)}), or {NONE}"
        kind = self._noted(("links", 0, "type"), question, types[0], optional(one_of(types)))
        if kind != NONE:
            self._linked(
                pairs, kind, "Between any two clusters: bandwidth in each direction", "Between any two clusters: latency"
            )
        return bool(kind != NONE)

    def _linked(self, pairs: Sequence[tuple[str, str]], kind: str, bandwidth: str, latency: str) -> None:
        """Ask for the bandwidth and the latency of a link between each of these pairs of clusters."""
        at = len(self._found)
        rate = defaults.link_rate([self._clusters[name] for pair in pairs for name in pair], kind)
        facts = {
            "bandwidth": self._noted(("links", at, "bandwidth"), bandwidth, rate, rate_of),
            "latency": self._noted(("links", at, "latency"), latency, defaults.LATENCY, latency_of),
        }
        for index, pair in enumerate(pairs, at):
            self._found.append({"between": list(pair), "type": kind, **facts})
            for key in ("type", *facts):
                self._origins["links", index, key] = self._origins["links", at, key]
        self._topology["links"] = self._found

    def _new_name(self, text: str) -> str:
        """A name that a topology allows and that no other cluster has."""
        if not text or not all(one.isalnum() or one in "._-" for one in text) or not text[0].isalnum():
            raise HolmesError("write letters, digits, '.', '_' and '-' only")
        if text in self._clusters:
            raise HolmesError(f"{text!r} is the name of another cluster")
        return text


def whole(text: str) -> int:
    """A number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise HolmesError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def known_device(text: str) -> str:
    """A device of the catalogue, by name or by product name; the error names similar ones."""
    known = catalog.names("devices")
    found = text if text in known else hardware.device(text)
    if found:
        return found
    raise HolmesError(f"{text!r} is not in the catalogue{suggestion(text, known)}")


def known_link(text: str) -> str:
    """An interconnect of the catalogue."""
    return _known("links", text)


def nic_type(text: str) -> str:
    """A NIC type of the catalogue."""
    return _known("nics", text)


def _known(folder: str, text: str) -> str:
    if text not in catalog.names(folder):
        raise HolmesError(f"{text!r} is not in the catalogue{suggestion(text, catalog.names(folder))}")
    return text


def model(text: str) -> str:
    """A model of the catalogue, or the path of a config.json."""
    load_model(text, Path())
    return text


def rate_of(text: str) -> str:
    """A rate; a bare number is in Gbit/s, as NICs are sold."""
    return _quantity(f"{text} Gbit/s" if text.replace(".", "", 1).isdecimal() else text, "rate")


def memory_of(text: str) -> str:
    """A size, or unknown; a bare number is in GiB, as memory is sold."""
    if text.lower() == UNKNOWN:
        return UNKNOWN
    return _quantity(f"{text} GiB" if text.isdecimal() else text, "size")


def latency_of(text: str) -> str:
    """A time."""
    return _quantity(text, "time")


def _quantity(text: str, kind: str) -> str:
    try:
        value = parse(text, kind)
    except ValueError as error:
        raise HolmesError(str(error)) from None
    if value <= 0:
        raise HolmesError(f"{text!r} must be more than 0")
    return text


def one_of(words: list[str]) -> Callable[[str], str]:
    """A check for one of some words."""

    def check(text: str) -> str:
        if text not in words:
            raise HolmesError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return check


def optional(check: Callable[[str], str]) -> Callable[[str], str]:
    """A check that also takes `none`."""
    return lambda text: NONE if text.strip().lower() == NONE else check(text)
