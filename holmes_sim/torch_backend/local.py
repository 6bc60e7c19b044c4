"""All ranks of a plan on this machine, one process each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from holmes_sim.torch_backend import nursery
from holmes_sim.torch_backend.asked import HOST, Asked, node_of
from holmes_sim.torch_backend.nursery import Seat
from sim import planfile
from sim.errors import HolmesError
from sim.plan import Plan


def run(plan: Plan, asked: Asked, seat: Callable[[Seat, int], Seat] = lambda seat, rank: seat) -> None:
    """Start every rank and wait for all. Raises HolmesError with the reason of the first that fails, when all have ended.

    `seat` may change where a rank stands.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        (folder / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
        ranks = range(plan.config.world_size)
        nursery.write(folder, asked.words(), [seat(_seat(plan, rank, port), rank) for rank in ranks])
        command = [sys.executable, "-m", nursery.__name__, name]
        path = os.pathsep.join([*sys.path[:1], *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path})
        try:
            _, told = process.communicate()
        finally:
            process.terminate()
            process.wait()
    if process.returncode:
        lines = told.strip().splitlines()
        raise HolmesError(lines[-1] if lines else f"the ranks ended with exit code {process.returncode}")


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
