"""torchrun: any torch script, with each process at its rank in the plan."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import environment, islands_folder, run_folder, torch_launch, torchrun_run
from holmes_sim.launching.folder import Launch
from holmes_sim.torch_backend import supported
from holmes_sim.torch_backend.disaggregated import supported as two_sets
from holmes_sim.torch_backend.islands import supported as exchanges
from planner.target import Vendors
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import NotSupported
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "torchrun"
READERS = "torch 2.13"
ISLANDS_TITLE = "torchrun and holmes-sim run"
ISLANDS_READERS = "one launch of four ranks by torchrun (torch 2.13) has run such a plan on one machine; none on several hosts"
RUN_TITLE = ISLANDS_TITLE
RUN_READERS = "one launch of such a plan by torchrun (torch 2.13) has run on one machine; none on several hosts"
ORDER = 30
KIND = "launcher"
VENDORS: Vendors = "any"
EXCLUDED_VENDORS: tuple[str, ...] = ()
IN_ORDER = "torchrun fills hosts in order; ranks in the order of hosts and devices"


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Nothing: it starts any program."""
    return iter(())


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """What NCCL's environment cannot express; the shim assigns ranks for any placement."""
    return environment.unsupported(plan)


def launch(plan: Plan) -> Launch:
    """Environment and script of every host, rank table and shim. The user provides the training script."""
    return Launch(torch_launch.files(plan), torch_launch.HOW.format(words="train.py ARGUMENTS"), torch_launch.assumed(plan))


def unsupported_islands(plan: IslandsPlan) -> Iterator[str]:
    """What the torch backend cannot execute, and hosts whose ranks torchrun would number in another way."""
    faults = [fault for island in plan.islands for fault in supported.unsupported(island)]
    for fault in dict.fromkeys((*faults, *exchanges.unsupported(plan))):
        what, _, able = fault.partition(" (")
        yield f"{what}: the torch backend cannot execute it; {able.rstrip(')') or 'another plan'}"
    for index, island in enumerate(plan.islands):
        if not torchrun_run.fills_hosts(island):
            yield f"islands[{index}].placement: {IN_ORDER}"


def islands_launch(plan: IslandsPlan) -> Launch:
    """Environment and script of every host of all islands, which run the plan by the torch backend."""
    return torchrun_run.islands(plan, islands_folder.PLAN)


def run_launch(plan: PipelinesPlan | DisaggregatedPlan) -> Launch:
    """Environment and script of every host, which run the plan by the torch backend. Raises NotSupported where that cannot
    execute it, or torchrun would number its ranks in another way."""
    if isinstance(plan, PipelinesPlan):
        supported.check(plan)
    else:
        two_sets.check(plan)
    if not torchrun_run.fills_hosts(plan):
        raise NotSupported(f"torchrun cannot express placement: {IN_ORDER}")
    return torchrun_run.whole(plan, run_folder.name(plan))
