"""Runs one rank of a launch of a plan with two sets of ranks; `holmes_sim.torch_backend.rank` runs those of other plans.

Ranks are numbered set by set (`sim.disaggregation.plan`). All groups use gloo: tokens of GPUs travel through host memory."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from holmes_sim.torch_backend.backends import GLOO
from holmes_sim.torch_backend.disaggregated.executor import SetExecutor
from holmes_sim.torch_backend.disaggregated.paced_worker import SetPacedWorker
from holmes_sim.torch_backend.disaggregated.set_rank import SetRank
from holmes_sim.torch_backend.disaggregated.supported import check
from holmes_sim.torch_backend.disaggregated.training_worker import SetTrainingWorker
from holmes_sim.torch_backend.groups import connected, interfaces
from holmes_sim.torch_backend.rank import (
    LaunchInfo,
    device_and_kinds,
    launched,
    measured_timeline,
    timed_steps,
)
from holmes_sim.torch_backend.run_options import RunOptions
from holmes_sim.torch_backend.waiting import COLLECTIVE_TIMEOUT
from holmes_sim.torch_backend.watchdog import Watchdog
from sim.disaggregation.plan import DisaggregatedPlan
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.formats import disaggregatedfile


def main(arguments: list[str]) -> None:
    """Run a rank: `python -m holmes_sim.torch_backend.disaggregated.rank PLAN '{"steps": 3}'`."""
    try:
        options = RunOptions.from_json(arguments[1]) if len(arguments) > 1 else RunOptions()
        run(disaggregatedfile.load(Path(arguments[0])), options)
    except HolmesError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def run(plan: DisaggregatedPlan, options: RunOptions) -> Timeline | None:
    """Run one rank of a launch. Returns the timeline on rank 0. A failure of any rank ends all ranks."""
    return launched(plan, options, check, _execute)


def _execute(plan: DisaggregatedPlan, options: RunOptions, launch: LaunchInfo, watchdog: Watchdog) -> Timeline | None:
    place = SetRank(plan.stage, launch.rank)
    device, on = device_and_kinds(options, launch)
    known, timeouts = interfaces(), (options.connect, COLLECTIVE_TIMEOUT)
    groups = {group.kind: connected(group, GLOO, known, device, timeouts, watchdog.fail) for group in place.groups()}
    worker = (
        SetPacedWorker(place, groups, options.scale)
        if options.compute == "paced"
        else SetTrainingWorker(place, groups, options.seed, device)
    )
    executor = SetExecutor(place, worker)
    events, losses, own = timed_steps(launch, options.steps, worker, executor.step)
    executor.close()
    if isinstance(worker, SetTrainingWorker) and options.weights:
        found = {"losses": losses, "weights": _copied(worker)}
        worker.optimizer.put_moments()
        worker.gather()
        torch.save(found | {"moments": _copied(worker)}, Path(options.weights) / f"{launch.rank}.pt")
    computed_on = tuple(sorted({name for _, name in on})) if options.compute == "real" else ()
    return measured_timeline(plan, disaggregatedfile.digest(plan), options, launch, computed_on, events, own)


def _copied(worker: SetTrainingWorker) -> dict[str, torch.Tensor]:
    return {name: weight.cpu().clone() for name, weight in worker.named()}


if __name__ == "__main__":
    main(sys.argv[1:])
