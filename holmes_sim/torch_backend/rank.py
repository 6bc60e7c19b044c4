"""One rank of a launch: finds its place by the plan, builds its groups, plays its program, and tells what happened.

`holmes-sim run` under torchrun comes here on every rank; `holmes-sim run --local` and the lab start this module.
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

import torch
import torch.distributed as dist

from holmes_sim import files
from holmes_sim.torch_backend import clocks, devices, groups, suited
from holmes_sim.torch_backend.asked import COMPUTE, DEVICES, HOST, Asked, node_of
from holmes_sim.torch_backend.backends import WORLD
from holmes_sim.torch_backend.paced import Paced
from holmes_sim.torch_backend.player import Player
from holmes_sim.torch_backend.real import Real
from holmes_sim.torch_backend.recorder import Note, Recorder, spans
from holmes_sim.torch_backend.watch import Watch
from sim.engine import timeline
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.formats import planfile
from sim.plan.plan import Plan
from sim.units import Seconds

LONGEST = 1800.0
"""Seconds that any exchange may take."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What the launcher says of this rank."""

    rank: int
    world_size: int
    local_rank: int

    @classmethod
    def read(cls) -> Launch:
        """From the environment that torchrun sets. Raises HolmesError."""
        found = []
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            text = os.environ.get(name, "")
            if not text.isdigit():
                raise HolmesError(f"{name} is {text!r}: start the ranks with torchrun, or with holmes-sim run --local")
            found.append(int(text))
        return cls(*found)


def check(plan: Plan, launch: Launch, asked: Asked) -> None:
    """Raise HolmesError where the launch is not the plan's."""
    suited.check(plan)
    size = plan.config.world_size
    if launch.world_size != size:
        raise HolmesError(f"the launch has {launch.world_size} ranks, the plan {size}")
    if asked.compute not in COMPUTE:
        raise HolmesError(f"compute {asked.compute!r} is unknown; known: {', '.join(COMPUTE)}")
    if asked.device not in DEVICES:
        raise HolmesError(f"device {asked.device!r} is unknown; known: {', '.join(DEVICES)}")
    node, given = node_of(plan, launch.rank), os.environ.get(HOST)
    if given is not None and given != node:
        raise HolmesError(f"rank {launch.rank} stands on {given}, the plan has it on {node}")


def main(arguments: list[str]) -> None:
    """`python -m holmes_sim.torch_backend.rank PLAN '{"steps": 3}'`: run, and exit."""
    try:
        asked = Asked.read(arguments[1]) if len(arguments) > 1 else Asked()
        run(planfile.load(Path(arguments[0])), asked)
    except HolmesError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def run(plan: Plan, asked: Asked) -> Timeline | None:
    """Be one rank of a launch; rank 0 has the timeline. What goes wrong on any rank ends all of them."""
    launch = Launch.read()
    store = _store(launch, asked.connect)
    watch = Watch(store.clone() if hasattr(store, "clone") else store, launch.rank, launch.world_size)
    try:
        check(plan, launch, asked)
        _check_hosts(plan, launch, store)
        dist.init_process_group(
            WORLD, store=dist.PrefixStore("world", store), rank=launch.rank, world_size=launch.world_size,
            timeout=timedelta(seconds=LONGEST),
        )  # fmt: skip
        found = _play(plan, asked, launch, watch)
        dist.barrier()
        watch.close()
        dist.barrier()
        return found
    except HolmesError as error:
        watch.fail(str(error))
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        watch.fail(f"rank {launch.rank} ({plan.placement[launch.rank]}): {type(error).__name__}: {lines[0]}")
    raise SystemExit(1)


def _store(launch: Launch, within: Seconds) -> dist.Store:
    """The launch's store, which torchrun or rank 0 keeps. Raises HolmesError."""
    try:
        store, _, _ = next(iter(dist.rendezvous("env://", launch.rank, launch.world_size, timeout=timedelta(seconds=within))))
    except (ValueError, RuntimeError) as error:
        raise HolmesError(f"rank {launch.rank} cannot join the launch: {str(error).splitlines()[0]}") from None
    return dist.PrefixStore("holmes-sim", store)


def _check_hosts(plan: Plan, launch: Launch, store: dist.Store) -> None:
    """See that ranks of one node stand on one host, and others elsewhere; a local launch has one host for all."""
    if os.environ.get(HOST) is not None:
        return
    own = socket.gethostname()
    node = node_of(plan, launch.rank)
    first = store.compare_set(f"host/{own}", "", node).decode()
    if first != node:
        raise HolmesError(f"rank {launch.rank} of {node} stands on host {own}, where ranks of {first} stand")
    first = store.compare_set(f"node/{node}", "", own).decode()
    if first != own:
        raise HolmesError(f"rank {launch.rank} of {node} stands on host {own}, other ranks of that node on {first}")


def _play(plan: Plan, asked: Asked, launch: Launch, watch: Watch) -> Timeline | None:
    rank, recorder = launch.rank, Recorder()
    device = devices.of(asked, rank, launch.local_rank)
    on: list[tuple[str, str]] = [("", "")] * launch.world_size
    dist.all_gather_object(on, (devices.kind(device), devices.name(device)))
    built = groups.build(plan, rank, device, [kind for kind, _ in on], asked.connect, LONGEST, watch.fail)
    told: Callable[[str, float, Callable[[], None]], None] = lambda name, nbytes, work: player.told(name, nbytes, work)  # noqa: E731
    computed_on = tuple(sorted({name for _, name in on})) if asked.compute == "real" else ()
    body = (
        Paced(plan, rank, built, asked.scale) if asked.compute == "paced" else Real(plan, rank, built, told, asked.seed, device)
    )
    player = Player(plan, rank, built, body, recorder)
    noted: list[list[Note]] = []
    times: list[tuple[Seconds, Seconds]] = []
    losses = torch.zeros(asked.steps + 1)
    before = clocks.offset(rank, launch.world_size)
    for index in range(asked.steps + 1):
        body.loss = 0.0
        dist.barrier()
        start = time.perf_counter()
        noted.append(player.step())
        times.append((start, time.perf_counter()))
        losses[index] = float(body.loss)
    player.close()
    after = clocks.offset(rank, launch.world_size)
    if isinstance(body, Real) and asked.weights:
        body.gather()
        weights = {name: weight.cpu() for name, weight in body.weights()}
        torch.save({"losses": losses, "weights": weights}, Path(asked.weights) / f"{rank}.pt")
    return _gathered(plan, asked, launch, computed_on, noted[1:], times[1:], (before + after) / 2)


def _gathered(
    plan: Plan,
    asked: Asked,
    launch: Launch,
    computed_on: tuple[str, ...],
    noted: list[list[Note]],
    times: list[tuple[Seconds, Seconds]],
    offset: Seconds,
) -> Timeline | None:
    """The timeline of the median step, on rank 0: a step begins when its last rank does, and ends when its last rank has."""
    everyone: list[tuple[list[tuple[Seconds, Seconds]], Seconds] | None] = [None] * launch.world_size
    dist.all_gather_object(everyone, (times, offset))
    known = [entry for entry in everyone if entry is not None]
    begins = [max(own[step][0] + late for own, late in known) for step in range(asked.steps)]
    ends = [max(own[step][1] + late for own, late in known) for step in range(asked.steps)]
    seconds = [end - begin for begin, end in zip(begins, ends, strict=True)]
    chosen = seconds.index(statistics.median_low(seconds))
    notes: list[list[Note] | None] | None = [None] * launch.world_size if launch.rank == 0 else None
    dist.gather_object(noted[chosen], notes)
    if notes is None:
        return None
    found = Timeline(
        name=f"{plan.topology.name} {plan.workload.model.name}",
        origin="measured",
        plan_digest=planfile.digest(plan),
        step_s=seconds[chosen],
        tokens=plan.workload.tokens,
        flops=plan.workload.flops,
        alike=tuple((rank,) for rank in range(launch.world_size)),
        spans=spans([own or [] for own in notes], [late for _, late in known], begins[chosen], ends[chosen]),
        steps_s=tuple(seconds),
        scale=asked.scale,
        compute=asked.compute,
        computed_on=computed_on,
    )
    if asked.output:
        files.write(Path(asked.output), timeline.to_json(found))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
