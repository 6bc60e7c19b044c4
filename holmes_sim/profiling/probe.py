"""Times collectives among processes of this machine: with NCCL (or RCCL) where each has a GPU of its own, otherwise with gloo.

`python -m holmes_sim.profiling.probe RANK RANKS PORT SIZES` is one process; rank 0 prints the measurements as JSON. The GPU
path has not been run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import timedelta

import torch
import torch.distributed as dist

from holmes_sim.profiling import machine
from holmes_sim.profiling.links import LinkMeasurement, Point
from holmes_sim.profiling.timings import Timings
from holmes_sim.torch_backend import communication, local
from sim.errors import HolmesError
from sim.hardware.link_spec import OPERATIONS
from sim.units import Seconds

SIZES = tuple(4**power for power in range(5, 14))
"""Bytes of a payload, 1 KiB to 64 MiB."""
TIMES = 12
LONGEST: Seconds = 120.0
"""Seconds after which a process gives up waiting for the others."""


def probe(ranks: int, sizes: tuple[int, ...] = SIZES) -> LinkMeasurement:
    """Measure all operations and sizes among `ranks` processes. Raises HolmesError with the reason of the first process that
    fails."""
    if ranks < 2:
        raise HolmesError(f"--probe {ranks}: collectives need two processes or more")
    port, words = local.free_port(), json.dumps(sizes)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(rank), str(ranks), str(port), words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        outputs = [process.communicate() for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(started, outputs, strict=True):
        if process.returncode:
            lines = errors.strip().splitlines() or [f"exit code {process.returncode}"]
            raise HolmesError(f"a process of the probe ended: {lines[-1]}")
    facts = json.loads(outputs[0][0])
    points = tuple(Point(**point) for point in facts["points"])
    return LinkMeasurement(f"probe of {ranks} processes over {facts['backend']}", points, 1, (facts["device"],))


def main(rank: int, ranks: int, port: int, sizes: list[int]) -> None:
    """Run one process of the probe."""
    here = machine.at_hand()
    gpus = torch.cuda.device_count() if here.is_gpu else 0
    backend = "nccl" if gpus >= ranks else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=ranks, timeout=timedelta(seconds=LONGEST))
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    points = [asdict(point) for point in _measured(rank, ranks, sizes, device)]
    if rank == 0:
        sys.stdout.write(json.dumps({"backend": backend, "device": here.label, "points": points}))
    dist.destroy_process_group()


def _measured(rank: int, ranks: int, sizes: list[int], device: torch.device) -> Iterator[Point]:
    """Median over repetitions of the slowest rank's seconds, because a collective ends when all ranks have finished."""
    for operation in OPERATIONS:
        for nbytes in sizes:
            values = -(-nbytes // 4 // ranks) * ranks
            work = _work(operation, values, rank, ranks, device)
            seconds = []
            for _ in range(TIMES):
                _settle(device)
                start = time.perf_counter()
                work()
                if device.type == "cuda":
                    torch.cuda.synchronize()
                taken = torch.tensor([time.perf_counter() - start], device=device)
                dist.all_reduce(taken, dist.ReduceOp.MAX)
                seconds.append(float(taken))
            yield Point(operation, ranks, 4.0 * values, Timings.of(seconds[machine.WARM :]).median)


def _settle(device: torch.device) -> None:
    dist.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize()


def _work(operation: str, values: int, rank: int, ranks: int, device: torch.device) -> Callable[[], object]:
    """One operation with a payload of `values` fp32 values. A send goes to the next rank, as in nccl-tests."""
    whole, part = torch.zeros(values, device=device), torch.zeros(values // ranks, device=device)
    if operation == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if operation == "all_gather":
        return lambda: communication.all_gather(whole, part, None)
    if operation == "reduce_scatter":
        group = dist.group.WORLD
        assert group is not None
        return lambda: communication.reduce_scatter(part, whole, group)
    come = torch.zeros_like(whole)
    if operation == "all_to_all":
        return lambda: dist.all_to_all_single(come, whole)
    messages = [dist.P2POp(dist.isend, whole, (rank + 1) % ranks), dist.P2POp(dist.irecv, come, (rank - 1) % ranks)]
    return lambda: [request.wait() for request in dist.batch_isend_irecv(messages)]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
