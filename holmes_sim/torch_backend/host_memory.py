"""Whether the memory of this machine can hold the training state of all ranks of a run. This module does not need torch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from holmes_sim.torch_backend.run_options import RunOptions
from sim.errors import HolmesError
from sim.kernels import frozen_weights, memory
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import GIBI, KIBI, Bytes

MEMINFO = Path("/proc/meminfo")
"""Linux' table of memory, in KiB."""


def check_memory(plans: Iterable[Plan], options: RunOptions, available: Bytes | None = None) -> None:
    """Raise HolmesError where ranks compute on CPUs and their weights, gradients and optimizer state alone need more memory
    than is available on this machine, in bytes (default: as the operating system says).

    Ranks with paced compute hold no weights."""
    on_cpus = options.device == "cpu" or not any(map(shutil.which, ("nvidia-smi", "rocm-smi")))
    if options.compute != "real" or not on_cpus:
        return
    every = list(plans)
    needed, ranks = sum(map(training_state, every)), sum(plan.config.world_size for plan in every)
    free = available_bytes() if available is None else available
    if needed > free:
        raise HolmesError(
            f"run --local: weights, gradients and optimizer state of {ranks} ranks take {needed / GIBI:.3g} GiB, and this "
            f"machine has {free / GIBI:.3g} GiB available; plan a smaller model (--model), or add --compute paced, which holds "
            "no weights"
        )


def training_state(plan: Plan) -> Bytes:
    """Weights, gradients and optimizer state of all ranks of a plan, at least: of experts one copy is counted, and of adapters
    the frozen weights of layers alone."""
    workload, config = plan.workload, plan.config
    if workload.adapter is not None:
        copies = 1 if config.shards_parameters else config.gradient_ranks
        return copies * workload.model.layers * frozen_weights.layer_bytes(workload, ParallelConfig())
    if workload.model.experts:
        return memory.state_bytes(workload.model.parameters, workload, config, 1)
    return memory.state_bytes(workload.model.parameters, workload, config) * config.gradient_ranks


def available_bytes() -> Bytes:
    """Bytes that new processes can use without swapping; all physical memory where the system does not tell."""
    if MEMINFO.exists():
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * KIBI
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
