"""What the page edits: the keys of a topology that have a control, and the topology after a form was sent.

A form can change only these keys, to the values that their controls offer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sim.errors import OptionError
from sim.formats import catalog, edits
from sim.formats.topology import written
from sim.hardware.topology import Topology
from sim.plan.offloading import CHOICES, PARAMETERS
from sim.units import BITS_PER_BYTE, GIGA, parse

MOST = 10_000
"""Largest count that a control takes, but for those of the workload. Guess: the page draws no larger cluster well."""
LARGEST_BATCH = 10**8
"""Largest batch and sequence length that a control takes. Guess."""
RATES = ("10 Gbit/s", "25 Gbit/s", "40 Gbit/s", "50 Gbit/s", "100 Gbit/s", "200 Gbit/s", "400 Gbit/s", "800 Gbit/s")
"""Rates of NICs to choose from: those that are sold."""
STEPS = tuple(
    f"{digit * 10.0**power:g} Gbit/s"
    for power in (-1, 0, 1, 2)
    for digit in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
)  # fmt: skip
"""Rates of a slider from 0.1 to 800 Gbit/s, in nearly equal ratios."""
OF_A_NIC_TYPE = ("names", "gid_index", "sharp", "efficiency", "price")
"""Keys of a NIC that belong to its type and rate, and are deleted when these change."""
WORKLOAD = "workload"
OFFLOAD = tuple(name for name, kept in CHOICES.items() if PARAMETERS not in kept)
"""What plans may be required to keep in host memory; parameters only where each device trains alone."""


@dataclass(frozen=True, slots=True)
class Control:
    """A key of the topology file with a control. `kind`: count, choice or slider.

    `value`: what the form has while nothing changes: a count, a choice, or the number of the slider's step. `choices`: values
    to choose from, or the rates of the steps. `step`, `most`: of a count. `also`: keys to delete when the value changes."""

    path: str
    label: str
    kind: str
    value: str
    choices: tuple[str, ...] = ()
    step: int = 1
    most: int = MOST
    also: tuple[str, ...] = ()

    def changed(self, text: str) -> object:
        """The new value of the key for the text of a form. Raises OptionError."""
        if self.kind == "count":
            if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= self.most:
                raise OptionError(f"{self.path}: {text[:40]!r} is not a whole number from 1 to {self.most}")
            return int(text)
        if self.kind == "slider":
            if not text.isascii() or not text.isdigit() or int(text) >= len(self.choices):
                raise OptionError(f"{self.path}: {text[:40]!r} is not a step of the slider, 0 to {len(self.choices) - 1}")
            return self.choices[int(text)]
        if text not in self.choices:
            raise OptionError(f"{self.path}: {text[:40]!r} is not one of the choices")
        return text


def controls(topology: Topology) -> dict[str, tuple[Control, ...]]:
    """The controls of each cluster (`clusters.ib`), each link (`links[0]`) and the `workload`."""
    facts = written(topology)
    found = {
        f"clusters.{cluster.name}": tuple(
            _of_cluster(f"clusters.{cluster.name}", facts["clusters"][cluster.name], cluster.node.hosts)
        )
        for cluster in topology.fleet.clusters
    }
    for index, link in enumerate(facts.get("links") or ()):
        found[f"links[{index}]"] = (_of_link(f"links[{index}].bandwidth", link),)
    found[WORKLOAD] = (*_of_workload(facts.get(WORKLOAD) or {}), _offload(facts.get("require") or {}))
    return found


def edited(topology: Topology, form: Mapping[str, str]) -> Topology:
    """The topology with the values of a form; fields without a control are ignored. Raises OptionError, TopologyError."""
    changes: dict[str, object] = {}
    for control in (control for group in controls(topology).values() for control in group):
        text = form.get(control.path, control.value)
        if text != control.value:
            changes |= dict.fromkeys(control.also)
            changes[control.path] = control.changed(text)
            if control.path.endswith(".devices.type"):
                changes |= _joined(control.path, text)
    if topology.workload is None:
        given = {path.removeprefix(f"{WORKLOAD}."): changes.pop(path) for path in tuple(changes) if path.startswith(WORKLOAD)}
        changes |= {WORKLOAD: given} if given else {}
    return edits.edited(topology, changes) if changes else topology


def differences(one: Topology, other: Topology) -> Iterator[tuple[str, str, str]]:
    """(key, value here, value there) of each control that differs or exists in one topology only."""
    mine, theirs = (
        {control.path: _shown(control) for group in controls(topology).values() for control in group}
        for topology in (one, other)
    )
    for path in dict.fromkeys((*mine, *theirs)):
        if mine.get(path, "–") != theirs.get(path, "–"):
            yield path, mine.get(path, "–"), theirs.get(path, "–")


def _shown(control: Control) -> str:
    return control.choices[int(control.value)] if control.kind == "slider" else control.value


def _of_cluster(at: str, facts: Mapping[str, Any], hosts: int) -> Iterator[Control]:
    node = facts["node"]
    devices, own = node["devices"], _present
    yield Control(f"{at}.nodes", "nodes", "count", str(facts["nodes"]), step=hosts, also=own(at, facts, "hosts"))
    yield _choice(
        f"{at}.node.devices.type",
        "device",
        devices["type"],
        catalog.names("devices"),
        own(f"{at}.node.devices", devices, "price"),
    )
    for index, nic in enumerate(node.get("nics") or ()):
        where = f"{at}.node.nics[{index}]"
        also = own(where, nic, *OF_A_NIC_TYPE)
        yield _choice(f"{where}.type", "NIC type", nic["type"], catalog.names("nics"), also)
        yield _choice(f"{where}.bandwidth", "rate", nic["bandwidth"], RATES, also)
        yield Control(f"{where}.count", "NICs per node", "count", str(nic.get("count", 1)), also=own(where, nic, "names"))


def _of_link(path: str, link: Mapping[str, Any]) -> Control:
    gbit = parse(link["bandwidth"], "rate") * BITS_PER_BYTE / GIGA
    nearest = min(range(len(STEPS)), key=lambda step: abs(math.log(float(STEPS[step].split()[0]) / gbit)))
    steps = (*STEPS[:nearest], str(link["bandwidth"]), *STEPS[nearest + 1 :])
    also = _present(path.removesuffix(".bandwidth"), link, "price")
    return Control(path, " – ".join(map(str, link["between"])), "slider", str(nearest), steps, also=also)


def _of_workload(facts: Mapping[str, Any]) -> Iterator[Control]:
    yield _choice(f"{WORKLOAD}.model", "model", facts.get("model", ""), catalog.names("models"), ())
    for key, label in (("global_batch_size", "batch"), ("seq_len", "sequence length")):
        yield Control(f"{WORKLOAD}.{key}", label, "count", str(facts.get(key, "")), most=LARGEST_BATCH)


def _offload(required: Mapping[str, Any]) -> Control:
    return _choice("require.offload", "offload to the hosts", required.get("offload", "none"), OFFLOAD, ())


def _choice(path: str, label: str, value: object, known: tuple[str, ...], also: tuple[str, ...]) -> Control:
    """A choice among names of the catalogue and the value of the file; facts in place are shown by their name."""
    text = value if isinstance(value, str) else str(value.get("name", "as in the file") if isinstance(value, dict) else value)
    return Control(path, label, "choice", text, known if text in known else (text, *known), also=also)


def _present(at: str, facts: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    return tuple(f"{at}.{key}" for key in keys if key in facts)


def _joined(path: str, device: str) -> dict[str, object]:
    """The edit that joins other devices with the interconnect of their usual board, where the catalogue names one."""
    usual = catalog.device_facts(device).intra_node.usual if device in catalog.names("devices") else ""
    return {path.removesuffix(".devices.type") + ".intra_node": usual} if usual else {}
