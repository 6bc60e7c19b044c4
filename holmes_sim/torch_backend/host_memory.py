"""Whether the memory of this machine can hold all ranks of a run. This module does not need torch."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from holmes_sim.torch_backend.run_options import RunOptions
from sim.engine.durations import Durations
from sim.engine.rank_plans import RankPlans
from sim.errors import HolmesError
from sim.kernels import frozen_weights, lowering, memory
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import GIBI, KIBI, MEBI, Bytes

MEMINFO = Path("/proc/meminfo")
"""Linux' table of memory, in KiB."""
RANK_PROCESS = 17 * MEBI
"""Memory of a paced rank without buffers that it shares with no other one: measured of 16 ranks with torch 2 on Linux."""


def check_memory(plans: Iterable[Plan], options: RunOptions, available: Bytes | None = None) -> None:
    """Raise HolmesError where ranks need more memory than is available on this machine, in bytes (default: as the operating
    system says): weights, gradients, optimizer state and activations of ranks that compute on CPUs, or what paced ranks hold,
    which are no weights."""
    on_cpus = options.device == "cpu" or not any(map(shutil.which, ("nvidia-smi", "rocm-smi")))
    is_paced = options.compute == "paced"
    if not is_paced and not on_cpus:
        return
    every = list(plans)
    needed, ranks = sum(map(paced_bytes if is_paced else computing_bytes, every)), sum(plan.config.world_size for plan in every)
    free = available_bytes() if available is None else available
    if needed > free:
        what = (
            "processes and buffers of messages and collectives"
            if is_paced
            else "weights, gradients, optimizer state and activations"
        )
        remedy = "" if is_paced else ", or add --compute paced, which holds no weights"
        raise HolmesError(
            f"{what} of {ranks} ranks take {needed / GIBI:.3g} GiB at least, and this machine has {free / GIBI:.3g} GiB "
            f"available; plan a smaller model (--model) or fewer devices (--set){remedy}"
        )


def paced_bytes(plan: Plan) -> Bytes:
    """Memory of all paced ranks of a plan, at least: their processes, and a buffer for each size of message or collective.

    What the allocator keeps beside them is not counted: eight ranks with 41 MiB of buffers held up to 270 MiB each."""
    durations, each = Durations(plan), dict[tuple[int, int], Bytes]()
    programs = [(rank, RankPlans(plan).program(rank)[1:]) for rank in range(plan.config.world_size)]
    for rank, program in programs:
        if program not in each:
            buffers = {
                (action.kind if action.kind in ("send", "recv") else action.group, action.nbytes)
                for action in lowering.program(plan, *program)
                if not durations.include(rank, action)
            }
            each[program] = RANK_PROCESS + sum(nbytes for _, nbytes in buffers)
    return sum(each[program] for _, program in programs)


def computing_bytes(plan: Plan) -> Bytes:
    """Memory of all ranks of a plan that compute, at least: their training state, and activations that wait for a backward."""
    return training_state(plan) + kept_activations(plan)


def kept_activations(plan: Plan) -> Bytes:
    """Activations that all ranks of a plan keep for the backward of the microbatches in flight, without buffers, the embedding
    and the head. In the steady state of a pipeline all ranks hold theirs at once."""
    ranks, kept = Counter(plan.config.coordinates(rank)[2] for rank in range(plan.config.world_size)), 0.0
    for pp_rank, count in ranks.items():
        stages = plan.stages_of(pp_rank)
        layers, config = sum(plan.stages[stage].layers for stage in stages), plan.config_of(stages)
        held = memory.activation_bytes(plan.workload_of(stages), config, layers, *plan.ends(stages))
        kept += count * (held.kept + held.away) / config.vpp * max(held for held, _ in memory.in_flight(plan, pp_rank))
    return kept


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
