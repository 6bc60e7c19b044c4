"""All ranks of a plan on this machine, one process each, forked from one that has imported torch."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from holmes_sim.torch_backend.rank import HOST, Asked, node_of, words
from sim import planfile
from sim.errors import HolmesError
from sim.plan import Plan

LOOK = 0.02


def run(plan: Plan, asked: Asked) -> None:
    """Start every rank and wait for all. Raises HolmesError with the reason of the first that fails, when all have ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["holmes_sim.torch_backend.rank"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
        port = _free_port()
        processes = [
            context.Process(target=_be, args=(name, words(asked), _environment(plan, rank, port)), daemon=True)
            for rank in range(plan.config.world_size)
        ]
        try:
            for process in processes:
                process.start()
            _wait(plan, processes, folder)
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _environment(plan: Plan, rank: int, port: int) -> dict[str, str]:
    ranks, device = plan.config.world_size, plan.placement[rank]
    threads = max((os.cpu_count() or 1) // ranks, 1)
    return {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(device.index), "OMP_NUM_THREADS": str(threads),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), HOST: node_of(plan, rank),
    }  # fmt: skip


def _be(folder: str, asked: str, environment: dict[str, str]) -> None:
    """Be one rank; what it says goes into a file of its own."""
    import torch

    from holmes_sim.torch_backend import rank

    os.environ.update(environment)
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    told = os.open(Path(folder) / f"{environment['RANK']}.err", os.O_WRONLY | os.O_CREAT)
    os.dup2(told, 1)
    os.dup2(told, 2)
    rank.main([str(Path(folder) / "plan.json"), asked])


def _wait(plan: Plan, processes: list[BaseProcess], folder: Path) -> None:
    while True:
        states = [process.exitcode for process in processes]
        failed = [rank for rank, state in enumerate(states) if state]
        if failed:
            rank = min(failed, key=lambda r: ((states[r] or 0) > 0, r))  # one that was killed is the reason of the others
            raise HolmesError(_reason(plan, rank, states[rank] or 0, folder))
        if all(state == 0 for state in states):
            return
        time.sleep(LOOK)


def _reason(plan: Plan, rank: int, state: int, folder: Path) -> str:
    if state < 0:
        return f"rank {rank} ({plan.placement[rank]}) was killed by signal {-state}"
    lines = (folder / f"{rank}.err").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return told[0] if told else f"rank {rank} ({plan.placement[rank]}) ended: {lines[-1] if lines else f'exit code {state}'}"
