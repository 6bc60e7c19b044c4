"""Runs one rank of a launch: builds its process groups, executes its program and measures it.

`holmes-sim run` under torchrun calls this module on every rank; `holmes-sim run --local` and the lab start it through the fork
server.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import torch
import torch.distributed as dist

from holmes_sim import files
from holmes_sim.launching.hosts import Placed
from holmes_sim.torch_backend import clocks, devices, groups, supported
from holmes_sim.torch_backend.backends import WORLD
from holmes_sim.torch_backend.emulated_worker import EmulatedWorker
from holmes_sim.torch_backend.executor import Executor
from holmes_sim.torch_backend.recorder import Event, Recorder, spans
from holmes_sim.torch_backend.run_options import COMPUTE, DEVICES, HOST, RunOptions, host_of, node_of
from holmes_sim.torch_backend.training_worker import TrainingWorker
from holmes_sim.torch_backend.waiting import COLLECTIVE_TIMEOUT
from holmes_sim.torch_backend.watchdog import Watchdog
from sim.engine import timeline
from sim.engine.rank_plans import RankPlans
from sim.engine.timeline import PeakBytes, Timeline
from sim.errors import HolmesError, PlanError
from sim.formats import documents, pipelinesfile, planfile
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class LaunchInfo:
    """Rank, world size and local rank from the launcher."""

    rank: int
    world_size: int
    local_rank: int

    @classmethod
    def read(cls) -> LaunchInfo:
        """Read the environment variables that torchrun sets. Raises HolmesError where one is missing."""
        found = []
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            text = os.environ.get(name, "")
            if not text.isdigit():
                raise HolmesError(f"{name} is {text!r}: start the ranks with torchrun, or with holmes-sim run --local")
            found.append(int(text))
        return cls(*found)


class HasLoss(Protocol):
    """A worker whose steps are timed: the sum of its losses of a step, and its device."""

    loss: torch.Tensor | float
    device: torch.device


AnyPlan = TypeVar("AnyPlan", bound=Placed)
"""The kind of plan that a launch runs."""


class Measured(NamedTuple):
    """What a rank measured: begin and end of each timed step on its clock, its CPU seconds in each, how late that clock is, and
    its memory."""

    times: list[tuple[Seconds, Seconds]]
    cpu_s: list[Seconds]
    offset: Seconds
    peak: PeakBytes | None


def check(plan: Plan | PipelinesPlan, launch: LaunchInfo, options: RunOptions) -> None:
    """Raise HolmesError where the backend does not support the plan, or the launch does not match it."""
    supported.check(plan)
    _check_launch(plan, launch, options)


def _check_launch(plan: Placed, launch: LaunchInfo, options: RunOptions) -> None:
    """Raise HolmesError where the launch does not match the plan."""
    size = len(plan.placement)
    if launch.world_size != size:
        raise HolmesError(f"the launch has {launch.world_size} ranks, but the plan {size}")
    if options.compute not in COMPUTE:
        raise HolmesError(f"compute {options.compute!r} is unknown; known: {', '.join(COMPUTE)}")
    if options.device not in DEVICES:
        raise HolmesError(f"device {options.device!r} is unknown; known: {', '.join(DEVICES)}")
    node, given = node_of(plan, launch.rank), os.environ.get(HOST)
    if given is not None and given != node:
        raise HolmesError(f"rank {launch.rank} runs on {given}, but the plan places it on {node}")


def main(arguments: list[str]) -> None:
    """Run a rank: `python -m holmes_sim.torch_backend.rank PLAN '{"steps": 3}'`."""
    try:
        options = RunOptions.from_json(arguments[1]) if len(arguments) > 1 else RunOptions()
        run(_load(Path(arguments[0])), options)
    except HolmesError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def _load(path: Path) -> Plan | PipelinesPlan:
    text = documents.read_text(path, PlanError)
    return pipelinesfile.from_text(str(path), text) if pipelinesfile.is_pipelines(text) else planfile.from_text(str(path), text)


def run(plan: Plan | PipelinesPlan, options: RunOptions) -> Timeline | None:
    """Run one rank of a launch. Returns the timeline on rank 0. A failure of any rank ends all ranks."""
    return launched(plan, options, supported.check, _execute)


def launched(
    plan: AnyPlan,
    options: RunOptions,
    supports: Callable[[AnyPlan], None],
    execute: Callable[[AnyPlan, RunOptions, LaunchInfo, Watchdog], Timeline | None],
) -> Timeline | None:
    """Join the launch, and `execute` one rank of a plan that passes the check `supports`. A failure of any rank ends all."""
    launch = LaunchInfo.read()
    store = store_of(launch, options.connect)
    watchdog = Watchdog(store.clone() if hasattr(store, "clone") else store, launch.rank, launch.world_size)
    try:
        supports(plan)
        _check_launch(plan, launch, options)
        check_hosts(plan, launch, store)
        dist.init_process_group(
            WORLD, store=dist.PrefixStore("world", store), rank=launch.rank, world_size=launch.world_size,
            timeout=timedelta(seconds=COLLECTIVE_TIMEOUT),
        )  # fmt: skip
        found = execute(plan, options, launch, watchdog)
        dist.barrier()
        watchdog.close()
        dist.barrier()
        return found
    except HolmesError as error:
        watchdog.fail(str(error))
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        watchdog.fail(f"rank {launch.rank} ({plan.placement[launch.rank]}): {type(error).__name__}: {lines[0]}")
    raise SystemExit(1)


def store_of(launch: LaunchInfo, within: Seconds) -> dist.Store:
    """The key-value store of the launch, kept by torchrun or rank 0. Raises HolmesError where it cannot be reached."""
    try:
        store, _, _ = next(iter(dist.rendezvous("env://", launch.rank, launch.world_size, timeout=timedelta(seconds=within))))
    except (ValueError, RuntimeError) as error:
        raise HolmesError(f"rank {launch.rank} cannot join the launch: {str(error).splitlines()[0]}") from None
    return dist.PrefixStore("holmes-sim", store)


def check_hosts(plan: Placed, launch: LaunchInfo, store: dist.Store) -> None:
    """Check that ranks of one host of the plan run on one host and other ranks elsewhere. Skipped for a local launch."""
    if os.environ.get(HOST) is not None:
        return
    own = socket.gethostname()
    node = host_of(plan, launch.rank)
    first = store.compare_set(f"host/{own}", "", node).decode()
    if first != node:
        raise HolmesError(
            f"rank {launch.rank} of {node} runs on host {own}, where ranks of {first} run; each node needs a host of its own"
        )
    first = store.compare_set(f"node/{node}", "", own).decode()
    if first != own:
        raise HolmesError(f"rank {launch.rank} of {node} runs on host {own}, but other ranks of that node run on {first}")


def _execute(plan: Plan | PipelinesPlan, options: RunOptions, launch: LaunchInfo, watchdog: Watchdog) -> Timeline | None:
    executor, computed_on = executor_of(plan, options, launch, watchdog.fail)
    worker = executor.worker
    events, losses, own = timed_steps(launch, options.steps, worker, executor.step)
    executor.close()
    if isinstance(worker, TrainingWorker) and options.weights:
        found = {"losses": losses, "weights": gathered(worker)}
        worker.optimizer.put_moments()
        torch.save(found | {"moments": gathered(worker)}, Path(options.weights) / f"{launch.rank}.pt")
    return measured_timeline(plan, RankPlans(plan).digest, options, launch, computed_on, events, own)


def timed_steps(
    launch: LaunchInfo, steps: int, worker: HasLoss, step: Callable[[], list[Event]]
) -> tuple[list[list[Event]], torch.Tensor, Measured]:
    """Execute an untimed step and `steps` timed ones: (events of each timed step, losses of all steps, what was measured)."""
    events: list[list[Event]] = []
    times: list[tuple[Seconds, Seconds]] = []
    cpu: list[Seconds] = []
    losses = torch.zeros(steps + 1)
    before = clocks.offset(launch.rank, launch.world_size)
    for index in range(steps + 1):
        worker.loss = 0.0
        dist.barrier()
        start, used = time.perf_counter(), time.process_time()
        events.append(step())
        times.append((start, time.perf_counter()))
        cpu.append(time.process_time() - used)
        losses[index] = float(worker.loss)
    after = clocks.offset(launch.rank, launch.world_size)
    return events[1:], losses, Measured(times[1:], cpu[1:], (before + after) / 2, devices.peak_bytes(worker.device))


def executor_of(
    plan: Plan | PipelinesPlan, options: RunOptions, launch: LaunchInfo, on_timeout: Callable[[str], None]
) -> tuple[Executor, tuple[str, ...]]:
    """(executor of a rank with its process groups and its worker, names of the devices that all ranks compute on)."""
    rank, (device, on) = launch.rank, device_and_kinds(options, launch)
    built = groups.build(plan, rank, device, [kind for kind, _ in on], options.connect, COLLECTIVE_TIMEOUT, on_timeout)

    def run_timed(group: str, name: str, nbytes: float, work: Callable[[], None]) -> None:
        executor.timed_collective(group, name, nbytes, work)

    worker = (
        EmulatedWorker(plan, rank, built, options.scale)
        if options.compute == "paced"
        else TrainingWorker(plan, rank, built, run_timed, options.seed, device)
    )
    executor = Executor(plan, rank, built, worker, Recorder())
    return executor, tuple(sorted({name for _, name in on})) if options.compute == "real" else ()


def device_and_kinds(options: RunOptions, launch: LaunchInfo) -> tuple[torch.device, list[tuple[str, str]]]:
    """(the device of this rank, (kind, name) of the device of each rank)."""
    device = devices.device_of(options, launch.rank, launch.local_rank)
    on: list[tuple[str, str]] = [("", "")] * launch.world_size
    dist.all_gather_object(on, (devices.kind(device), devices.name(device)))
    return device, on


def gathered(worker: TrainingWorker) -> dict[str, torch.Tensor]:
    """Name -> value of the weights, with the shards of all ranks."""
    worker.gather()
    return {name: weight.cpu().clone() for name, weight in worker.weights()}


def measured_timeline(
    plan: Placed,
    digest: str,
    options: RunOptions,
    launch: LaunchInfo,
    computed_on: tuple[str, ...],
    events: list[list[Event]],
    own: Measured,
) -> Timeline | None:
    """The timeline of the median step, on rank 0; `digest` is that of the plan. A step begins when the last rank begins it, and
    ends when the last rank ends it."""
    of_ranks: list[Measured | None] = [None] * launch.world_size
    dist.all_gather_object(of_ranks, own)
    known = [entry for entry in of_ranks if entry is not None]
    begins = [max(one.times[step][0] + one.offset for one in known) for step in range(options.steps)]
    ends = [max(one.times[step][1] + one.offset for one in known) for step in range(options.steps)]
    seconds = [end - begin for begin, end in zip(begins, ends, strict=True)]
    chosen = seconds.index(statistics.median_low(seconds))
    gathered: list[list[Event] | None] | None = [None] * launch.world_size if launch.rank == 0 else None
    dist.gather_object(events[chosen], gathered)
    if gathered is None:
        return None
    peaks = [one.peak for one in known if one.peak is not None]
    found = Timeline(
        name=f"{plan.topology.name} {plan.workload.model.name}",
        origin="measured",
        plan_digest=digest,
        step_s=seconds[chosen],
        tokens=plan.workload.tokens,
        flops=plan.workload.flops,
        alike=tuple((rank,) for rank in range(launch.world_size)),
        spans=spans([part or [] for part in gathered], [one.offset for one in known], begins[chosen], ends[chosen]),
        steps_s=tuple(seconds),
        scale=options.scale,
        compute=options.compute,
        computed_on=computed_on,
        peak_bytes=tuple(peaks) if len(peaks) == launch.world_size else (),
        cpu_s=tuple(one.cpu_s[chosen] for one in known),
    )
    if options.output:
        files.write(Path(options.output), timeline.to_json(found))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
