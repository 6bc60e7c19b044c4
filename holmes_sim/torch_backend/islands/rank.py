"""Runs one rank of a launch of islands: the executor of its island's plan, unchanged, and the exchanges with other islands.

All ranks belong to one launch and are numbered island by island (`IslandsPlan.first_ranks`). Each island has a group of all its
own ranks as torch's default group, so that its plan runs as it would alone; groups between islands are made directly on the
store of the launch, one for each link."""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from holmes_sim import files
from holmes_sim.torch_backend.backends import GLOO, WORLD
from holmes_sim.torch_backend.executor import Executor
from holmes_sim.torch_backend.groups import gloo_interfaces, interfaces
from holmes_sim.torch_backend.islands.links import Cell, Link, links_of
from holmes_sim.torch_backend.islands.measured import MeasuredPeriods, RankTimes, measured
from holmes_sim.torch_backend.islands.outer_loop import OuterLoop
from holmes_sim.torch_backend.islands.paced_values import PacedReducer, PacedUpdate, PacedValues
from holmes_sim.torch_backend.islands.supported import check
from holmes_sim.torch_backend.islands.training import reducer_of, training_values
from holmes_sim.torch_backend.rank import LaunchInfo, check_hosts, executor_of, gathered, store_of
from holmes_sim.torch_backend.rank import check as check_island
from holmes_sim.torch_backend.run_options import RunOptions
from holmes_sim.torch_backend.training_worker import TrainingWorker
from holmes_sim.torch_backend.waiting import COLLECTIVE_TIMEOUT
from holmes_sim.torch_backend.watchdog import Watchdog
from sim.errors import HolmesError
from sim.formats import islandsfile
from sim.islands.exchange import ExchangeCost, exchange_cost
from sim.plan.islands import IslandsPlan
from sim.sync.adaptive_sgd import NAME as ADAPTIVE
from sim.sync.adaptive_sgd import learning_rates
from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class IslandRank:
    """A rank of the launch: its island, and its number there."""

    plan: IslandsPlan
    island: int
    launch: LaunchInfo
    whole: LaunchInfo

    @classmethod
    def of(cls, plan: IslandsPlan, launch: LaunchInfo) -> IslandRank:
        """The rank of the launch. Raises HolmesError where the launch has another number of ranks than the plan."""
        total = sum(island.config.world_size for island in plan.islands)
        if launch.world_size != total:
            raise HolmesError(f"the launch has {launch.world_size} ranks, but the islands {total}")
        island = max(index for index, first in enumerate(plan.first_ranks) if first <= launch.rank)
        size = plan.islands[island].config.world_size
        return cls(plan, island, replace(launch, rank=launch.rank - plan.first_ranks[island], world_size=size), launch)


def main(arguments: list[str]) -> None:
    """Run a rank: `python -m holmes_sim.torch_backend.islands.rank ISLANDS '{"steps": 3}'`."""
    try:
        options = RunOptions.from_json(arguments[1]) if len(arguments) > 1 else RunOptions()
        run(islandsfile.load(Path(arguments[0])), options)
    except HolmesError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def run(plan: IslandsPlan, options: RunOptions) -> MeasuredPeriods | None:
    """Run one rank of a launch for `options.steps` outer periods, after an untimed one. Returns the measured periods on rank 0.
    A failure of any rank ends all ranks."""
    launch = LaunchInfo.read()
    store = store_of(launch, options.connect)
    watchdog = Watchdog(store.clone() if hasattr(store, "clone") else store, launch.rank, launch.world_size)
    try:
        check(plan)
        rank = IslandRank.of(plan, launch)
        own = plan.islands[rank.island]
        check_island(own, rank.launch, options)
        check_hosts(own, rank.launch, store)
        dist.init_process_group(
            WORLD, store=dist.PrefixStore(f"island {rank.island}", store), rank=rank.launch.rank,
            world_size=rank.launch.world_size, timeout=timedelta(seconds=COLLECTIVE_TIMEOUT),
        )  # fmt: skip
        everyone = _gloo(dist.PrefixStore("everyone", store), launch.rank, launch.world_size, options.connect)
        found = _execute(rank, options, store, everyone, watchdog)
        everyone.barrier().wait()
        watchdog.close()
        everyone.barrier().wait()
        return found
    except HolmesError as error:
        watchdog.fail(str(error))
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        watchdog.fail(f"rank {launch.rank}: {type(error).__name__}: {lines[0]}")
    raise SystemExit(1)


def _gloo(store: dist.Store, rank: int, ranks: int, connect: Seconds) -> dist.ProcessGroup:
    """A gloo group that torch's registry of groups does not know. Raises HolmesError where it cannot connect."""
    try:
        group: dist.ProcessGroup = dist.ProcessGroupGloo(store, rank, ranks, timedelta(seconds=connect))  # type: ignore
        group.barrier().wait()  # connect before anything is timed
        group.set_timeout(timedelta(seconds=COLLECTIVE_TIMEOUT))
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rsplit("] ", 1)[-1]
        raise HolmesError(f"a group of one rank of each of {ranks} islands cannot connect: {reason}") from None
    return group


def _execute(
    rank: IslandRank, options: RunOptions, store: dist.Store, everyone: dist.ProcessGroup, watchdog: Watchdog
) -> MeasuredPeriods | None:
    plan, own = rank.plan, rank.plan.islands[rank.island]
    executor, computed_on = executor_of(own, options, rank.launch, watchdog.fail)
    loop, worker = _outer_loop(rank, options, store, executor), executor.worker
    worker.before_update = loop.before_optimizer
    everyone.barrier().wait()
    mine = replace(_timed(executor, loop, options.steps), island=rank.island, device=" and ".join(computed_on))
    loop.close()
    executor.close()
    if isinstance(worker, TrainingWorker) and options.weights:
        torch.save({"losses": mine.losses, "weights": gathered(worker)}, Path(options.weights) / f"{rank.whole.rank}.pt")
    store.set(f"times/{rank.whole.rank}", mine.to_json())
    if rank.whole.rank:
        return None
    every = [RankTimes.from_json(store.get(f"times/{number}").decode()) for number in range(rank.whole.world_size)]
    found = measured(every, plan.weights, options.scale, options.compute)
    if options.output:
        files.write(Path(options.output), found.to_json())
    return found


def _timed(executor: Executor, loop: OuterLoop, periods: int) -> RankTimes:
    """Execute an untimed outer period and `periods` timed ones."""
    seconds, waits, exchanges, losses, steps = list[Seconds](), list[Seconds](), list[Seconds](), list[float](), list[Seconds]()
    worker, times = executor.worker, loop.times
    for period in range(periods + 1):
        start, waited, before = time.perf_counter(), times.waited, len(times.exchanges)
        for _ in range(loop.sync.inner_steps):
            since, waits_before = time.perf_counter(), times.waited
            worker.loss = 0.0
            executor.step()
            if period:
                steps.append(time.perf_counter() - since - (times.waited - waits_before))
            losses.append(float(worker.loss) if executor.tp == 0 else 0.0)
            loop.after_step()
        if period:
            seconds.append(time.perf_counter() - start)
            waits.append(times.waited - waited)
            exchanges.append(sum(end - begin for begin, end in times.exchanges[before:]))
    inner, waited, spent = (statistics.mean(some) for some in (steps, waits, exchanges))
    return RankTimes(0, tuple(seconds), inner, waited, spent, tuple(losses))


def _outer_loop(rank: IslandRank, options: RunOptions, store: dist.Store, executor: Executor) -> OuterLoop:
    """The exchanges of a rank, with groups to the ranks of other islands that hold the same weights."""
    plan, sync, worker = rank.plan, rank.plan.sync, executor.worker
    cost = exchange_cost(plan)
    if not isinstance(worker, TrainingWorker):
        values = PacedValues(worker.plan, worker.rank)
        links = _links(rank, values.cells, store) if sync.exchanges else []
        groups = _groups(rank, links, cost, options, store)
        reducer = PacedReducer(plan, groups, cost, options.scale)
        update = cost.update * options.scale / max(sum(link.size for link in links), 1)
        return OuterLoop(sync, values, links, reducer, partial(PacedUpdate, update))
    worker.samples_before = sum(plan.batches[: rank.island])
    if sync.strategy == ADAPTIVE:
        for group in worker.optimizer.adam.param_groups:
            group["lr"] *= learning_rates(plan.batches)[rank.island]
    trained = training_values(worker, sync)
    links = _links(rank, trained.cells, store) if sync.exchanges else []
    groups = _groups(rank, links, cost, options, store)
    inside = dist.new_group(list(range(rank.launch.world_size)), backend=GLOO) if sync.aggregation != "mean" else None
    return OuterLoop(sync, trained, links, reducer_of(sync, links, groups, plan.weights[rank.island], inside))


def _links(rank: IslandRank, cells: list[Cell], store: dist.Store) -> list[Link]:
    """The links of this rank, from the cells that all ranks publish in the store."""
    store.set(f"cells/{rank.whole.rank}", json.dumps(cells))
    islands = []
    for first, island in zip(rank.plan.first_ranks, rank.plan.islands, strict=True):
        names = [f"cells/{first + number}" for number in range(island.config.world_size)]
        read = [json.loads(store.get(name).decode()) for name in names]
        islands.append([[Cell(key, start, stop, tuple(shape), kind) for key, start, stop, shape, kind in own] for own in read])
    return links_of(islands, rank.island, rank.launch.rank)


def _groups(
    rank: IslandRank, links: list[Link], cost: ExchangeCost, options: RunOptions, store: dist.Store
) -> list[dist.ProcessGroup]:
    """A gloo group for each link, its ranks in the simulator's order of islands. All ranks make groups in the same order."""
    found = []
    for link in links:
        name = "outer " + " ".join(map(str, link.owners)) + f" {link.kind}"
        position = cost.order.index(rank.island)
        with gloo_interfaces(interfaces().get(cost.nic, [])):
            found.append(_gloo(dist.PrefixStore(name, store), position, len(cost.order), options.connect))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
