"""Runs all ranks of a plan on this machine, one process per rank."""

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

from holmes_sim.launching.hosts import Placed
from holmes_sim.torch_backend import fork_server
from holmes_sim.torch_backend.fork_server import RankProcess
from holmes_sim.torch_backend.run_options import HOST, RunOptions, node_of
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import HolmesError
from sim.formats import disaggregatedfile, islandsfile, pipelinesfile, planfile
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

RANK, ISLAND_RANK = "holmes_sim.torch_backend.rank", "holmes_sim.torch_backend.islands.rank"
SET_RANK = "holmes_sim.torch_backend.disaggregated.rank"
"""Modules that run a rank of a plan, of a plan of islands, and of a plan with two sets of ranks."""
ProcessChange: TypeAlias = Callable[[RankProcess, int], RankProcess]
"""A function that changes the process of a rank: (process, rank) -> process."""


class Local:
    """This machine, ready to run one launch after another. `wrap` may wrap the fork server's command in another command."""

    def __init__(self, wrap: Callable[[list[str]], list[str]] = lambda command: command):
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        command = wrap([sys.executable, "-m", fork_server.__name__])
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C goes to this process, which ends the server
        )  # fmt: skip

    def __enter__(self) -> Local:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.terminate()
        self._server.communicate()

    def run(
        self, plan: Plan | PipelinesPlan, options: RunOptions, change: ProcessChange = lambda process, rank: process
    ) -> None:
        """Start every rank and wait until all have ended. Raises HolmesError with the reason of the first rank that fails."""
        port = free_port()
        processes = [change(_rank_process(plan, rank, port), rank) for rank in range(len(plan.placement))]
        text = pipelinesfile.to_json(plan) if isinstance(plan, PipelinesPlan) else planfile.to_json(plan)
        self._launch(text, options, processes, RANK)

    def run_disaggregated(
        self, plan: DisaggregatedPlan, options: RunOptions, change: ProcessChange = lambda process, rank: process
    ) -> None:
        """Start every rank of both sets and wait until all have ended. Raises HolmesError with the reason of the first rank
        that fails."""
        port = free_port()
        processes = [change(_rank_process(plan, rank, port), rank) for rank in range(len(plan.placement))]
        self._launch(disaggregatedfile.to_json(plan), options, processes, SET_RANK)

    def run_islands(
        self, plan: IslandsPlan, options: RunOptions, change: ProcessChange = lambda process, rank: process
    ) -> None:
        """Start every rank of every island, numbered one after the other, and wait until all have ended. Raises HolmesError
        with the reason of the first rank that fails."""
        port, processes, total = free_port(), list[RankProcess](), sum(island.config.world_size for island in plan.islands)
        for first, island in zip(plan.first_ranks, plan.islands, strict=True):
            for rank in range(island.config.world_size):
                made = _rank_process(island, rank, port, first, total)
                processes.append(change(made, first + rank))
        self._launch(islandsfile.to_json(plan), options, processes, ISLAND_RANK)

    def _launch(self, text: str, options: RunOptions, processes: list[RankProcess], module: str) -> None:
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "plan.json").write_text(text, encoding="utf-8")
            output, weights = (str(Path(path).resolve()) if path else "" for path in (options.output, options.weights))
            absolute = replace(options, output=output, weights=weights)
            fork_server.write(Path(name), absolute.to_json(), processes, module)
            try:
                server.stdin.write(f"{name}\n")
                server.stdin.flush()
                reason = server.stdout.readline()
            except BrokenPipeError:
                reason = ""
        if not reason:
            raise HolmesError("the fork server of the ranks has ended unexpectedly")
        if reason.strip():
            raise HolmesError(reason.strip())


def run(plan: Plan | PipelinesPlan, options: RunOptions, change: ProcessChange = lambda process, rank: process) -> None:
    """Run one launch on this machine; see `Local.run`."""
    with Local() as here:
        here.run(plan, options, change)


def free_port() -> int:
    """A free TCP port of this host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _rank_process(plan: Placed, rank: int, port: int, first: int = 0, ranks: int = 0) -> RankProcess:
    """The process of a rank of a plan whose ranks are `first` and following of `ranks` in all."""
    ranks, device = ranks or len(plan.placement), plan.placement[rank]
    omp = os.environ.get("OMP_NUM_THREADS", "")
    threads = omp if omp.isdecimal() else str(max((os.cpu_count() or 1) // ranks, 1))
    environment = {
        "RANK": str(first + rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(device.index), "OMP_NUM_THREADS": threads,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), HOST: node_of(plan, rank),
    }  # fmt: skip
    return RankProcess(str(device), environment)
