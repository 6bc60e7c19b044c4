"""Importer of NIC files of Linux's /sys: rates, link layers and states of RDMA ports, and rates of network interfaces.

Format: lines `PATH:CONTENT` as `grep -sH . FILES` prints them, of /sys/class/infiniband/*/ports/*/{rate,link_layer,state} and
/sys/class/net/*/{speed,operstate} (Linux Documentation/ABI/stable/sysfs-class-infiniband, testing/sysfs-class-net; speed is in
Mbit/s), and lines `PATH/device:TARGET` with the target of that link. An interface without a device is virtual and left out; one
with the device of an RDMA adapter is the same port.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from holmes_sim.importing import ports
from holmes_sim.importing.facts import Facts, Parts
from holmes_sim.importing.ports import Port
from sim.errors import HolmesError

NAME = "NIC files of /sys"
_LINE = re.compile(r"^/sys/class/(infiniband|net)/([^/:]+)/(?:ports/(\d+)/)?([a-z_]+):(.*)$")
_START = re.compile(_LINE.pattern, re.MULTILINE)
_MBIT = 1000
"""Mbit/s in a Gbit/s."""

Given = dict[str, tuple[str, str]]
"""File -> (content, `name:line`)."""


def recognises(text: str) -> bool:
    """Whether a line is a file below /sys/class/infiniband or /sys/class/net with its content."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The NICs of the node. Raises HolmesError."""
    adapters: dict[str, Given] = defaultdict(dict)
    interfaces: dict[str, Given] = defaultdict(dict)
    for number, line in enumerate(text.splitlines(), 1):
        if match := _LINE.match(line):
            kind, device, port, file, content = match.groups()
            key = f"{port}/{file}" if port else file
            (adapters if kind == "infiniband" else interfaces)[device][key] = content.strip(), f"{name}:{number}"
    found = [*_rdma(adapters), *_ethernet(interfaces, {given["device"][0] for given in adapters.values() if "device" in given})]
    nics, notes = ports.nics(found, name)
    if not nics:
        notes += (f"{name}: no NIC has a known rate (a virtual machine may hide it)",)
    return Facts(name, parts=(Parts(nics=nics),) if nics else (), notes=notes)


def _rdma(adapters: Mapping[str, Given]) -> Iterator[Port]:
    """The ports of RDMA adapters. Raises HolmesError."""
    for device, given in adapters.items():
        for key, (content, where) in given.items():
            port, _, file = key.partition("/")
            if file != "rate":
                continue
            rate = re.match(r"\d+(?:\.\d+)?", content)
            if rate is None:
                raise HolmesError(f"{where}: rate {content!r} is not a number of Gbit/s, such as '400 Gb/sec (4X NDR)'")
            layer, _ = given.get(f"{port}/link_layer", ("", ""))
            state, _ = given.get(f"{port}/state", ("4: ACTIVE", ""))
            yield Port(device, ports.TYPES.get(layer.lower(), ""), float(rate[0]), "ACTIVE" in state, where)


def _ethernet(interfaces: Mapping[str, Given], taken: set[str]) -> Iterator[Port]:
    """Network interfaces with a device that is not among those taken. The speed of an interface that is down is -1."""
    linked = any("device" in given for given in interfaces.values())
    for interface, given in interfaces.items():
        device = given.get("device", ("", ""))[0]
        speed, where = given.get("speed", ("", ""))
        if (linked and not device) or device in taken or not speed.isdecimal() or speed == "0":
            continue
        yield Port(interface, "ethernet", int(speed) / _MBIT, given.get("operstate", ("up", ""))[0] == "up", where)
