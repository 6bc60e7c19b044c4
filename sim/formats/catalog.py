"""Reader of the catalogue: one YAML file per device, interconnect, NIC type, model, profile and software stack, with sources.

The folder is the registry: a new file `devices/<name>.yaml` is a new device. No code depends on a name.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import TypeVar

from sim.errors import TopologyError
from sim.formats.catalog_facts import DeviceFacts, GemmFacts, LinkFacts, NicTypeFacts, RoutingTable
from sim.formats.documents import Document, check, parse
from sim.formats.fields import StrictModel
from sim.formats.model_facts import ModelFacts
from sim.formats.stack_facts import StackFacts
from sim.formats.suggestions import suggestion
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.link_spec import LinkSpec
from sim.workload.model import Model

Facts = TypeVar("Facts", bound=StrictModel)

KINDS: dict[str, str] = {
    "devices": "device",
    "links": "interconnect",
    "nics": "NIC type",
    "models": "model",
    "profiles": "profile",
    "stacks": "stack",
}
"""Folder -> name of one entry in messages."""


@functools.cache
def names(folder: str) -> tuple[str, ...]:
    """Sorted names of the entries of a folder."""
    found = (entry.name for entry in (files("sim.catalog") / folder).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def document(folder: str, name: str) -> Document:
    """The parsed file of an entry; raises TopologyError for an unknown name."""
    if name not in names(folder):
        near = suggestion(name, names(folder))
        raise TopologyError(f"{KINDS[folder]} {name!r} is not in the catalogue{near}")
    text = (files("sim.catalog") / folder / f"{name}.yaml").read_text(encoding="utf-8")
    return parse(f"catalog/{folder}/{name}.yaml", text)


def _facts(folder: str, name: str, schema: type[Facts]) -> Facts:
    return check(document(folder, name), schema)


@functools.cache
def device_facts(name: str) -> DeviceFacts:
    """All facts of a device, sources included; raises TopologyError for an unknown name."""
    return _facts("devices", name, DeviceFacts)


@functools.cache
def link_facts(name: str) -> LinkFacts:
    """All facts of an interconnect; raises TopologyError for an unknown name."""
    return _facts("links", name, LinkFacts)


@functools.cache
def nic_facts(name: str) -> NicTypeFacts:
    """All facts of a NIC type; raises TopologyError for an unknown name."""
    return _facts("nics", name, NicTypeFacts)


@functools.cache
def model_facts(name: str) -> ModelFacts:
    """All facts of a model; raises TopologyError for an unknown name."""
    return _facts("models", name, ModelFacts)


@functools.cache
def stack_facts(name: str) -> StackFacts:
    """A fitted software stack: numbers, cases and errors; raises TopologyError for an unknown name."""
    return _facts("stacks", name, StackFacts)


def stack_family(name: str) -> str | None:
    """The stack of that name, or else the one whose name differs in its version only (the text after the last hyphen): the
    newest one that is not newer, or the oldest one; None if there is none."""
    known = names("stacks")
    related = [one for one in known if one.rpartition("-")[0] == name.rpartition("-")[0]]
    older = [one for one in related if one <= name]
    return max(older) if older else min(related, default=None)


@functools.cache
def routings() -> dict[str, float]:
    """Name of a way in which leaf switches choose uplinks -> share of the rate that RoCE flows between leaves reach."""
    text = (files("sim.catalog") / "routing.yaml").read_text(encoding="utf-8")
    return {name: facts.share for name, facts in check(parse("catalog/routing.yaml", text), RoutingTable).root.items()}


def device(name: str) -> DeviceSpec:
    """A device of the catalogue, at the rates of the default stack."""
    return device_facts(name).spec()


def completed(device: DeviceFacts) -> DeviceFacts:
    """A device in place; if its curve of products is a copy of one in the catalogue, with what that one says beyond it.

    Whoever copies a device to change its memory copies `launch`, the efficiencies and `wave_exponent`, maybe from an older
    version of the catalogue. `sustained` and `older` belong to these four constants."""
    known = (device_facts(name).gemm for name in names("devices"))
    same = next((curve for curve in known if _constants(curve) == _constants(device.gemm)), None)
    if same is None or {"sustained", "older"} & device.gemm.model_fields_set:
        return device
    gemm = device.gemm.model_copy(update={"sustained": same.sustained, "older": same.older})
    return device.model_copy(update={"gemm": gemm})


def _constants(curve: GemmFacts) -> tuple[float, ...]:
    return curve.launch, curve.compute_efficiency, curve.memory_efficiency, curve.wave_exponent


def link(name: str) -> LinkSpec:
    """An interconnect of the catalogue, at the rates of the default stack."""
    return link_facts(name).spec()


def nic(name: str) -> LinkSpec:
    """A NIC type of the catalogue, at the rates of the default stack."""
    return nic_facts(name).spec()


def model(name: str) -> Model:
    """A model of the catalogue."""
    return model_facts(name).model()
