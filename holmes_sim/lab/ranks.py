"""Runs one program per rank in the lab: its environment, its output, and the end of all ranks if one fails."""

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
from holmes_sim.lab.wiring import CONTROL, RankLocation, Wiring
from sim.errors import HolmesError
from sim.units import Seconds

PORT = 29500
"""Port of the rendezvous on the host of rank 0 (torchrun's default). Each lab has its own network, so it is always free."""
POLL_INTERVAL: Seconds = 0.02
"""Time between two checks whether ranks have ended."""


@dataclass(frozen=True, slots=True)
class RankOutput:
    """Standard output and errors of a rank."""

    rank: int
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class _Running:
    """A rank's process and the files of its output."""

    location: RankLocation
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def read_output(self) -> RankOutput:
        """What the rank has written."""
        texts = []
        for file in (self.output, self.errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return RankOutput(self.location.rank, *texts)


def environment(wiring: Wiring, location: RankLocation) -> dict[str, str]:
    """Environment of a rank: torch's variables, its node (`ib/node0`), the lab's scale, and its interfaces by NIC type."""
    interfaces = {kind: list(names) for kind, names in location.interfaces} | {"intra_node": ["lo"]}
    return {
        "RANK": str(location.rank), "WORLD_SIZE": str(len(wiring.ranks)), "LOCAL_RANK": str(location.local_rank),
        "MASTER_ADDR": wiring.hosts[wiring.ranks[0].host].control, "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": CONTROL, "HOLMES_SIM_INTERFACES": json.dumps(interfaces),
        "HOLMES_SIM_HOST": str(wiring.hosts[location.host]), "HOLMES_SIM_SCALE": repr(wiring.scale),
    }  # fmt: skip


def run_ranks(
    namespaces: Namespaces, wiring: Wiring, command: Callable[[RankLocation], list[str]], timeout: Seconds | None
) -> tuple[RankOutput, ...]:
    """Run a command for every rank at once and wait for all. Raises HolmesError if a rank fails, or after `timeout`."""
    with ExitStack() as stack:
        running: list[_Running] = []
        stack.callback(_end, running)
        for location in wiring.ranks:
            output, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = subprocess.Popen(
                namespaces.inside(location.host + 1, command(location), is_program=True),
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
                env={"OMP_NUM_THREADS": "1"} | os.environ | environment(wiring, location),
            )  # fmt: skip
            running.append(_Running(location, process, output, errors))
        _wait(running, timeout)
        return tuple(rank.read_output() for rank in running)


def _wait(running: list[_Running], timeout: Seconds | None) -> None:
    """Wait until all ranks have ended without error. Raises HolmesError."""
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        codes = [rank.process.poll() for rank in running]
        for rank, code in zip(running, codes, strict=True):
            if code:
                raise HolmesError(
                    f"rank {rank.location.rank} ({rank.location.device}) failed: {_reason(rank.read_output(), code)}"
                )
        if None not in codes:
            return
        if until is not None and time.monotonic() > until:
            waiting = ", ".join(str(r.location.rank) for r, code in zip(running, codes, strict=True) if code is None)
            raise HolmesError(f"after {timeout:g} s these ranks were still running: {waiting}")
        time.sleep(POLL_INTERVAL)


def _reason(output: RankOutput, code: int) -> str:
    """The last line a failed rank wrote, and its exit code or signal."""
    lines = [line for line in (output.errors or output.output).splitlines() if line.strip()]
    ending = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{lines[-1].strip()} ({ending})" if lines else ending


def _end(running: list[_Running]) -> None:
    """Kill the ranks that still run, with all processes they started."""
    for rank in running:
        if rank.process.poll() is None:
            os.killpg(rank.process.pid, signal.SIGKILL)
    for rank in running:
        rank.process.wait()
