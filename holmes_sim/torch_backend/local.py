"""All ranks of a plan on this machine, one process each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from holmes_sim.torch_backend import nursery
from holmes_sim.torch_backend.asked import HOST, Asked, node_of
from holmes_sim.torch_backend.nursery import Seat
from sim.errors import HolmesError
from sim.formats import planfile
from sim.plan.plan import Plan

Change: TypeAlias = Callable[[Seat, int], Seat]
"""Changes where a rank stands: (its seat, rank) -> its seat."""


class Local:
    """This machine, ready for one launch after the other. `within` puts the command that starts the ranks inside another."""

    def __init__(self, within: Callable[[list[str]], list[str]] = lambda command: command):
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        command = within([sys.executable, "-m", nursery.__name__])
        self._nursery = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is ours: we end it
        )  # fmt: skip

    def __enter__(self) -> Local:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._nursery.terminate()
        self._nursery.communicate()

    def run(self, plan: Plan, asked: Asked, seat: Change = lambda seat, rank: seat) -> None:
        """Start every rank and wait until all have ended. Raises HolmesError with the reason of the first that fails."""
        nursing = self._nursery
        assert nursing.stdin is not None
        assert nursing.stdout is not None
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
            port, ranks = free_port(), range(plan.config.world_size)
            output, weights = (str(Path(path).resolve()) if path else "" for path in (asked.output, asked.weights))
            away = replace(asked, output=output, weights=weights)
            nursery.write(Path(name), away.words(), [seat(_seat(plan, rank, port), rank) for rank in ranks])
            try:
                nursing.stdin.write(f"{name}\n")
                nursing.stdin.flush()
                told = nursing.stdout.readline()
            except BrokenPipeError:
                told = ""
        if not told:
            raise HolmesError("the process that starts the ranks has ended")
        if told.strip():
            raise HolmesError(told.strip())


def run(plan: Plan, asked: Asked, seat: Change = lambda seat, rank: seat) -> None:
    """One launch on this machine, as `Local.run`."""
    with Local() as here:
        here.run(plan, asked, seat)


def free_port() -> int:
    """A port of this host that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _seat(plan: Plan, rank: int, port: int) -> Seat:
    ranks, device = plan.config.world_size, plan.placement[rank]
    given = os.environ.get("OMP_NUM_THREADS", "")
    threads = given if given.isdecimal() else str(max((os.cpu_count() or 1) // ranks, 1))
    environment = {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(device.index), "OMP_NUM_THREADS": threads,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), HOST: node_of(plan, rank),
    }  # fmt: skip
    return Seat(str(device), environment)
