"""What a rank computes on, and the order of work on it.

What is launched on a GPU goes on behind the host's back, in the order of its stream. Here the host waits for the stream behind
every action, exchange and job of a lane (`settle`): so what one thread has made is there when another takes it, memory is freed
when it is no longer used, and the seconds that are noted are the work's. It costs the launching ahead: each action pays the
host's time for its first kernels. It is this thread's stream that is waited for, never the whole device, on which a collective
may be waiting for other ranks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from holmes_sim.torch_backend.asked import Asked
from holmes_sim.torch_backend.backends import CPU, CUDA, ROCM
from sim.errors import HolmesError

HOST = torch.device("cpu")


def of(asked: Asked, rank: int, local_rank: int) -> torch.device:
    """The device of a rank: the GPU of its number on this host, where torch has any and the rank computes; else the CPU.

    Raises HolmesError where the host has some, but not that one."""
    if asked.compute != "real" or asked.device == "cpu" or not torch.cuda.is_available():
        return HOST
    if local_rank >= (known := torch.cuda.device_count()):
        raise HolmesError(f"rank {rank} should compute on cuda:{local_rank}; torch sees {known} here (--device cpu: on no GPU)")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def kind(device: torch.device) -> str:
    """What a device is (`backends.CPU` ...)."""
    if device.type == "cpu":
        return CPU
    return ROCM if torch.version.hip else CUDA


def name(device: torch.device) -> str:
    """What to call it: CPU, or as the GPU calls itself."""
    return "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)


def beside(device: torch.device) -> AbstractContextManager[object]:
    """What a thread does in here is beside what others do: it has a stream of its own."""
    return nullcontext() if device.type == "cpu" else torch.cuda.stream(torch.cuda.Stream(device))


def settle(device: torch.device) -> None:
    """Wait until all is done that this thread's stream was given."""
    if device.type != "cpu":
        torch.cuda.current_stream(device).synchronize()
