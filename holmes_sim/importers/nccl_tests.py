"""Importer of the output of nccl-tests or rccl-tests (text, or JSON of -J): device names, and measured rates of the links.

`holmes_sim.profiling.links` reads both forms and fits them. Each rank has one device unless the output gives another number.
Hosts in containers have the names of their pods.
"""

from __future__ import annotations

import json
import re
from collections import Counter

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Facts, Host, Nics, Parts
from holmes_sim.profiling import links

NAME = "nccl-tests output"
_TABLE = re.compile(r"#\s+Rank\s+\d+\s.*\bon\s+\S+\s+device\s+\d+|#.*\btime\s+algbw\s+busbw\b")
_REPORT = re.compile(r'"(?:nccl_version|out_of_place)"\s*:')
_RANK = re.compile(r"#\s+Rank\s+\d+\s")


def recognises(text: str) -> bool:
    """Whether the text has the lines of ranks or the table header; a JSON report: NCCL's version or out-of-place times."""
    return (_REPORT if text.lstrip().startswith("{") else _TABLE).search(text) is not None


def read(text: str, name: str) -> Facts:
    """Hosts, the devices of each, and the measurements. Raises HolmesError."""
    measured = links.parse(text, name)
    where = f"{name}:{_line(text)}"
    ranks = Counter(measured.placed)
    label = measured.devices[0] if len(measured.devices) == 1 else ""
    parts = [Parts(hosts=tuple(ranks), nics=_gid(text, name))]
    for count in dict.fromkeys(ranks.values()):
        hosts = tuple(host for host, own in ranks.items() if own == count)
        parts.append(Parts(hosts=hosts, devices=Devices(where, hardware.device(label), label, count, True)))
    notes = (
        ()
        if label
        else (f"{name}: devices of several kinds ({', '.join(measured.devices)}); it does not say which host has which",)
    )
    return Facts(name, tuple(Host(host, where) for host in ranks), parts=tuple(parts), measured=(measured,), notes=notes)


def _line(text: str) -> int:
    """Number of the first line that describes a rank; 1 if there is none."""
    match = _RANK.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def _gid(text: str, name: str) -> tuple[Nics, ...]:
    """The GID index of RoCE NICs, if the environment in the report sets NCCL_IB_GID_INDEX."""
    environment = json.loads(text).get("env", []) if text.lstrip().startswith("{") else []
    set_to = dict(str(entry).partition("=")[::2] for entry in environment).get("NCCL_IB_GID_INDEX", "")
    return (Nics(f"{name}:1", "roce", gid_index=int(set_to)),) if set_to.isdecimal() else ()
