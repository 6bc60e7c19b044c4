"""The device of a rank, and synchronization with it.

A GPU executes kernels asynchronously, in the order of their stream. Here the host synchronizes with the stream after every
action, collective and job (`synchronize`). So another thread can use the result, memory is freed as soon as it is unused, and
recorded times are those of the work. The cost: kernels are not launched ahead, so each action includes the launch time of its
first kernels. Only the stream of the current thread is synchronized, never the whole device, because a collective on the device
may wait for other ranks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from holmes_sim.torch_backend.backends import CPU, CUDA, ROCM
from holmes_sim.torch_backend.run_options import RunOptions
from sim.engine.timeline import PeakBytes
from sim.errors import HolmesError

HOST = torch.device("cpu")


def device_of(options: RunOptions, rank: int, local_rank: int) -> torch.device:
    """The device of a rank: the GPU with its local rank, where torch sees GPUs and the rank computes; otherwise the CPU.

    Raises HolmesError where the host has GPUs, but not that one.
    """
    if options.compute != "real" or options.device == "cpu" or not torch.cuda.is_available():
        return HOST
    if local_rank >= (known := torch.cuda.device_count()):
        raise HolmesError(
            f"rank {rank} should compute on cuda:{local_rank}; torch sees {known} here (--device cpu computes on the CPU)"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def kind(device: torch.device) -> str:
    """Kind of a device: `backends.CPU`, `CUDA` or `ROCM`."""
    if device.type == "cpu":
        return CPU
    return ROCM if torch.version.hip else CUDA


def name(device: torch.device) -> str:
    """Name of a device: "CPU", or the name that the GPU reports."""
    return "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)


def own_stream(device: torch.device) -> AbstractContextManager[object]:
    """A context in which the current thread uses a CUDA stream of its own. It does nothing for a CPU."""
    return nullcontext() if device.type == "cpu" else torch.cuda.stream(torch.cuda.Stream(device))


def synchronize(device: torch.device) -> None:
    """Wait until all work on this thread's stream is complete."""
    if device.type != "cpu":
        torch.cuda.current_stream(device).synchronize()


def peak_bytes(device: torch.device) -> PeakBytes | None:
    """Most memory that this process has taken of a GPU, and what else is in use there now; None for a CPU, whose memory holds
    the whole program."""
    if device.type == "cpu":
        return None
    free, every = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device)
    return PeakBytes(
        torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device), max(every - free - held, 0)
    )
