"""Run a few read-only commands on a host, this one or one that ssh reaches, and split what they print into sources."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holmes_sim import importers
from holmes_sim.imported import SourceText
from sim.errors import HolmesError

SCRIPT = r"""
echo '=== hostname'; uname -n
echo '=== nvidia-smi'; nvidia-smi -L </dev/null; nvidia-smi topo -m </dev/null
echo '=== nvidia-smi --query-gpu'; nvidia-smi --query-gpu=name,memory.total --format=csv </dev/null
echo '=== rocm-smi'; rocm-smi --showproductname </dev/null
echo '=== /proc/meminfo'; grep -s '^MemTotal:' /proc/meminfo
echo '=== /sys'
grep -sH . /sys/class/infiniband/*/ports/*/rate /sys/class/infiniband/*/ports/*/link_layer \
  /sys/class/infiniband/*/ports/*/state /sys/class/net/*/speed /sys/class/net/*/operstate
for link in /sys/class/infiniband/*/device /sys/class/net/*/device; do
  [ -e "$link" ] && echo "$link:$(readlink -f "$link")"
done
true
"""
"""Commands of a probe, for any shell. All only read; programs that a host lacks print nothing. ibstat reads the same files of
/sys."""
SECONDS = 60.0
"""Time that a host has for all commands. Guess: nvidia-smi without persistence mode takes some seconds."""
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""ssh that never asks for a password, and gives up on a host that is off after ten seconds (a guess)."""
_TITLE = re.compile(r"^=== (.+)$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Answer:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str = ""


Run = Callable[[Sequence[str], str], Answer]
"""Runs a command with a text on its stdin."""


def run(command: Sequence[str], given: str) -> Answer:
    """Run a command. Raises HolmesError with the reason if it cannot be started or takes longer than `SECONDS`."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except FileNotFoundError:
        raise HolmesError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise HolmesError(f"no answer within {SECONDS:g} s") from None
    return Answer(done.returncode, done.stdout, done.stderr)


def here(runs: Run = run) -> tuple[SourceText, ...]:
    """The sources that this host gives; none that names devices if it has no GPU, none at all without a shell (Windows).

    Raises HolmesError if a program hangs.
    """
    if shutil.which("sh") is None:
        return ()
    return sources(runs(("sh", "-s"), SCRIPT).out, "")


def over_ssh(address: str, name: str, runs: Run = run) -> tuple[SourceText, ...]:
    """The sources that another host gives. Raises HolmesError with the reason if it does not answer."""
    answer = runs((*SSH, "--", address, "sh", "-s"), SCRIPT)
    if answer.code:
        said = [line.strip() for line in answer.err.splitlines() if line.strip()]
        raise HolmesError(said[-1].rstrip(".") if said else f"ssh ended with code {answer.code}")
    return sources(answer.out, name)


def sources(text: str, name: str) -> tuple[SourceText, ...]:
    """The parts of a probe's output that an importer recognises, of the host of that name (empty: as it calls itself)."""
    titles = list(_TITLE.finditer(text))
    ends = [*(title.start() for title in titles[1:]), len(text)]
    parts = {title[1]: text[title.end() + 1 : end] for title, end in zip(titles, ends, strict=True)}
    own = parts.pop("hostname", "").strip().split(".")[0]
    host = name or (own if _NAME.fullmatch(own) else "localhost")
    known = [importers.get(one) for one in importers.names()]
    return tuple(
        SourceText(f"{host} {title}", part, host=host)
        for title, part in parts.items()
        if sum(importer.recognises(part) for importer in known) == 1
    )


def has_devices(texts: Sequence[SourceText]) -> bool:
    """Whether one of the sources describes GPUs, not only memory and NICs."""
    return any(not text.name.endswith((" /proc/meminfo", " /sys")) for text in texts)
