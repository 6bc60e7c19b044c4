"""Importer of `ibnetdiscover`: hosts below each InfiniBand switch, their number of ports, and the rate of each port.

Format: infiniband-diags 44, ibnetdiscover(8). One record for each switch (`Switch N "S-guid" # "name" ...`) and adapter (`Ca N
"H-guid" # "host adapter"`), followed by one line for each port, `[1] "H-guid"[1](guid) # "name" lid 5 4xHDR`. Adapters are
identified by their description, by convention `HOST ADAPTER`. Width and generation of a port give its rate. If the adapters of
a host are connected to several leaves (one per rail), these leaves are merged into one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holmes_sim.importing.facts import FABRIC, Facts, Host, Nics, Parts
from sim.errors import HolmesError
from sim.units import BITS_PER_BYTE, GIGA, BytesPerSecond

NAME = "ibnetdiscover"
ROOT = "infiniband"
"""Name of the fabric; the source does not name it."""
LANES = {"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200}
"""Gbit/s of one lane by generation, as NCCL counts them (NVIDIA/nccl 5067397c src/transport/net_ib/init.cc, ibvSpeeds)."""
_RECORD = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"(?:.*?#\s*"([^"]*)")?')
_PORT = re.compile(r'^\[(\d+)\](?:\([^)]*\))?\s*"([^"]+)"\s*\[(\d+)\](?:\([^)]*\))?(?:\s*#(.*))?$')
_RATE = re.compile(r"\b(\d+)x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
_DESCRIBED = re.compile(r'"([^"]*)"')
_ADAPTER = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)\s+((?:mlx\d|hfi\d|ibp|mthca)\w*|HCA-\d+)")
_NAMED = re.compile(r"(?:mlx\d|hfi\d|ibp|mthca)\w*")


@dataclass(frozen=True, slots=True)
class _Port:
    """A port of a switch: where it was read, the switch, the GUID and description at the other end, and the rate."""

    where: str
    switch: str
    peer: str
    described: str
    rate: BytesPerSecond


def recognises(text: str) -> bool:
    """Whether the text has records of switches or adapters."""
    return re.search(r'^(?:Switch|Ca)\s+\d+\s+"', text, re.MULTILINE) is not None


def read(text: str, name: str) -> Facts:
    """Hosts by leaf, their NICs, and the bandwidth of each leaf to its hosts and to other switches. Raises HolmesError."""
    labels, ports, adapters = _records(text, name)
    hosts: dict[str, list[tuple[_Port, str]]] = defaultdict(list)
    silent = 0
    for port in ports:
        if port.peer.startswith("S-"):
            continue
        match = _ADAPTER.fullmatch(port.described or adapters.get(port.peer, ""))
        if match is None:
            silent += "Aggregation Node" not in port.described
        else:
            hosts[match[1]].append((port, match[2]))
    if not hosts:
        raise HolmesError(f"{name}:1: no switch port is connected to an adapter with a description of the form HOST ADAPTER")
    group = _groups(_rails(hosts))
    leaves = {host: _first(group, own[0][0].switch) for host, own in hosts.items()}
    fabrics = _fabrics(ports, hosts)
    found = [
        Host(host, own[0][0].where, labels.get(leaves[host], leaves[host]), (fabrics[host],)) for host, own in hosts.items()
    ]
    notes = [f"{name}: {silent} ports are left out: the description of their adapter does not name a host"] if silent else []
    downlinks = _downlinks(ports, leaves, hosts, labels)
    return Facts(name, tuple(found), FABRIC, tuple(_parts(hosts)), downlinks=downlinks, notes=tuple(notes))


def _records(text: str, name: str) -> tuple[dict[str, str], list[_Port], dict[str, str]]:
    """(name of each switch, ports of switches, description of each adapter), names and descriptions by GUID."""
    labels: dict[str, str] = {}
    adapters: dict[str, str] = {}
    ports: list[_Port] = []
    kind = own = ""
    for number, line in enumerate(text.splitlines(), 1):
        if record := _RECORD.match(line):
            kind, own = record[1], record[2]
            (labels if kind == "Switch" else adapters)[own] = _plain(record[3] or own) if kind == "Switch" else record[3] or ""
        elif line.startswith("["):
            match = _PORT.match(line.rstrip())
            if match is None or not own:
                raise HolmesError(
                    f'{name}:{number}: expected a port such as [1] "H-0002c903"[1](2c903) # "gpu1 mlx5_0" lid 5 4xHDR'
                )
            if kind == "Switch":
                ports.append(_port(f"{name}:{number}", own, match[2], match[4] or ""))
    return labels, ports, adapters


def _port(where: str, switch: str, peer: str, remark: str) -> _Port:
    """The port of a line of a switch's record; the rate is 0 if the line does not give it."""
    described = _DESCRIBED.search(remark)
    rate = _RATE.search(remark.rpartition('"')[2])
    bandwidth = int(rate[1]) * LANES[rate[2]] * GIGA / BITS_PER_BYTE if rate else 0.0
    return _Port(where, switch, peer, described[1] if described else "", bandwidth)


def _plain(label: str) -> str:
    """The name of a switch without what its vendor adds: `MF0;leaf-1:MQM9700/U1` -> `leaf-1`."""
    return re.sub(r"^MF\d+;", "", label).partition(":")[0] or label


def _groups(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Union-find over pairs of names: each name -> a name closer to the representative of its set (see `_first`)."""
    group: dict[str, str] = {}
    for one, other in pairs:
        group[_first(group, other)] = _first(group, one)
    return group


def _first(group: dict[str, str], name: str) -> str:
    """The representative of the set that contains a name."""
    while group.setdefault(name, name) != name:
        group[name] = group[group[name]]
        name = group[name]
    return name


def _rails(hosts: dict[str, list[tuple[_Port, str]]]) -> Iterator[tuple[str, str]]:
    """Pairs of leaves that share a host."""
    for own in hosts.values():
        yield from ((own[0][0].switch, port.switch) for port, _ in own[1:])


def _fabrics(ports: list[_Port], hosts: dict[str, list[tuple[_Port, str]]]) -> dict[str, str]:
    """Host -> name of its fabric. Switches joined by cables, and switches of one host, belong to the same fabric."""
    joined = [(port.switch, port.peer) for port in ports if port.peer.startswith("S-")]
    group = _groups([*joined, *_rails(hosts)])
    roots = list(dict.fromkeys(_first(group, own[0][0].switch) for own in hosts.values()))
    names = {root: ROOT if len(roots) == 1 else f"{ROOT}-{index}" for index, root in enumerate(roots, 1)}
    return {host: names[_first(group, own[0][0].switch)] for host, own in hosts.items()}


def _parts(hosts: dict[str, list[tuple[_Port, str]]]) -> list[Parts]:
    """NICs of each host. If a host has ports of several rates, only those of the most frequent rate count."""
    found = []
    for host, own in hosts.items():
        rate = Counter(port.rate for port, _ in own).most_common(1)[0][0]
        kept = sorted((adapter, port.where) for port, adapter in own if port.rate == rate)
        names = tuple(adapter for adapter, _ in kept)
        known = names if all(_NAMED.fullmatch(adapter) for adapter in names) and len(set(names)) == len(names) else ()
        found.append(Parts((host,), nics=(Nics(own[0][0].where, "infiniband", rate, len(kept), known),)))
    return found


def _downlinks(
    ports: list[_Port], leaves: dict[str, str], hosts: dict[str, list[tuple[_Port, str]]], labels: dict[str, str]
) -> tuple[tuple[str, BytesPerSecond, BytesPerSecond], ...]:
    """(leaf, bandwidth to hosts, bandwidth to other switches); merged leaves are added up."""
    of = {port.switch: leaves[host] for host, own in hosts.items() for port, _ in own}
    down: dict[str, float] = defaultdict(float)
    up: dict[str, float] = defaultdict(float)
    for port in ports:
        if port.switch in of and port.peer.startswith("S-"):
            up[of[port.switch]] += port.rate
    for own in hosts.values():
        for port, _ in own:
            down[of[port.switch]] += port.rate
    return tuple((labels.get(leaf, leaf), down[leaf], up[leaf]) for leaf in down)
