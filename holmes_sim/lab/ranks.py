"""Runs one program per rank inside the lab: what it is told, what it says, and the end of all where one fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from holmes_sim.lab.namespaces import Namespaces
from holmes_sim.lab.wiring import CONTROL, Seat, Wiring
from sim.errors import HolmesError
from sim.units import Seconds

PORT = 29500
"""Port of the rendezvous at the first rank's host (torchrun's own); each lab has its own network, so it is always free."""
GLANCE: Seconds = 0.02
"""How often the ranks are looked at."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a rank wrote."""

    rank: int
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class _Running:
    seat: Seat
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def said(self) -> Said:
        texts = []
        for file in (self.output, self.errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return Said(self.seat.rank, *texts)


def environment(wiring: Wiring, seat: Seat) -> dict[str, str]:
    """What a rank is told: torch's own variables, its node (`ib/node0`), the lab's scale, and its interfaces by NIC type."""
    interfaces = {kind: list(names) for kind, names in seat.interfaces} | {"intra_node": ["lo"]}
    return {
        "RANK": str(seat.rank), "WORLD_SIZE": str(len(wiring.seats)), "LOCAL_RANK": str(seat.local_rank),
        "MASTER_ADDR": wiring.hosts[wiring.seats[0].host].control, "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": CONTROL, "HOLMES_SIM_INTERFACES": json.dumps(interfaces),
        "HOLMES_SIM_HOST": str(wiring.hosts[seat.host]), "HOLMES_SIM_SCALE": repr(wiring.scale),
    }  # fmt: skip


def play(
    namespaces: Namespaces, wiring: Wiring, command: Callable[[Seat], list[str]], timeout: Seconds | None
) -> tuple[Said, ...]:
    """Run a command for every rank at once and wait for all. Raises HolmesError where one fails or time is up."""
    with ExitStack() as stack:
        running: list[_Running] = []
        stack.callback(_end, running)
        for seat in wiring.seats:
            output, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = subprocess.Popen(
                namespaces.inside(seat.host + 1, command(seat), is_program=True),
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
                env={"OMP_NUM_THREADS": "1"} | os.environ | environment(wiring, seat),
            )  # fmt: skip
            running.append(_Running(seat, process, output, errors))
        _wait(running, timeout)
        return tuple(rank.said() for rank in running)


def _wait(running: list[_Running], timeout: Seconds | None) -> None:
    """Until all have ended well."""
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        codes = [rank.process.poll() for rank in running]
        for rank, code in zip(running, codes, strict=True):
            if code:
                raise HolmesError(f"rank {rank.seat.rank} ({rank.seat.device}) failed: {_reason(rank.said(), code)}")
        if None not in codes:
            return
        if until is not None and time.monotonic() > until:
            waiting = ", ".join(str(r.seat.rank) for r, code in zip(running, codes, strict=True) if code is None)
            raise HolmesError(f"after {timeout:g} s these ranks had not ended: {waiting}")
        time.sleep(GLANCE)


def _reason(said: Said, code: int) -> str:
    lines = [line for line in (said.errors or said.output).splitlines() if line.strip()]
    ending = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{lines[-1].strip()} ({ending})" if lines else ending


def _end(running: list[_Running]) -> None:
    """Kill what still runs, with all that it has started."""
    for rank in running:
        if rank.process.poll() is None:
            os.killpg(rank.process.pid, signal.SIGKILL)
    for rank in running:
        rank.process.wait()
