"""Score a launch: the job that runs today, simulated on a topology, beside the best plan for the same work.

Ranks are placed as the framework would: over the topology's clusters and nodes in their order. Collectives are the fastest
ones, as in plans. The best plan is searched for the same model, batch, precision and framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from holmes_sim import commands, launch_readers
from holmes_sim.intervals import step_range
from holmes_sim.launch_reading.given import Given
from holmes_sim.launch_reading.job import Job
from holmes_sim.pins import Cancel
from holmes_sim.results import Planned, Simulated
from planner.placement.ranks import with_collectives
from planner.placement.simulation import fits
from sim import __version__
from sim.errors import HolmesError, Infeasible, PlanError
from sim.formats.topology import load_model
from sim.hardware.cluster import Device, Fleet
from sim.hardware.stack import software_facts
from sim.hardware.topology import Topology
from sim.kernels import memory
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.results.explain import Explanation
from sim.units import time_text
from sim.workload.workload import Workload

SCORE_FORMAT = "holmes-sim/score/1"


@dataclass(frozen=True, slots=True)
class Scored:
    """A job as it runs today, where its seconds go, and the best plan; `reason` says why there is no best plan."""

    job: Job
    today: Simulated
    explanation: Explanation
    best: Planned | None
    reason: str = ""

    def __repr__(self) -> str:
        more = f"the best plan is {self.faster:.1%} faster" if self.faster is not None else f"no better plan: {self.reason}"
        return f"{self.job.target} today: a step of {time_text(self.today.prediction.step_s)}; {more}"

    @property
    def faster(self) -> float | None:
        """Today's step over that of the best plan, less 1; None without a best plan."""
        if self.best is None or self.best.plan.prediction is None:
            return None
        return self.today.prediction.step_s / self.best.plan.prediction.step_s - 1

    @property
    def fits(self) -> bool:
        """Whether today's job fits the memory of every device, without head-room."""
        peaks, limits = memory.peak_memory(self.today.plan), memory.limits(self.today.plan)
        return all(peak <= limit for peak, limit in zip(peaks, limits, strict=True))

    @property
    def has_headroom(self) -> bool:
        """Whether today's job leaves the topology's head-room of memory free, as plans do."""
        return fits(self.today.plan)

    def facts(self) -> dict[str, Any]:
        """The score as plain data (format holmes-sim/score/1)."""
        found: dict[str, Any] = {
            "format": SCORE_FORMAT,
            "target": self.job.target,
            "today": self.today.facts() | {"fits": self.fits, "has_headroom": self.has_headroom},
            "explanation": self.explanation.facts(),
            "not_modelled": list(self.job.not_modelled),
            "assumed": list(self.job.assumed),
            "best": None,
            "faster": self.faster,
            "reason_if_none": self.reason or None,
        }
        if self.best is not None and self.best.plan.prediction is not None:
            plan, predicted = self.best.plan, self.best.plan.prediction
            config = plan.config
            keys = ("tp", "pp", "dp", "cp", "ep", "vpp", "microbatch_size", "schedule", "zero_stage", "recompute")
            found["best"] = {key: getattr(config, key) for key in keys} | {
                "step_s": predicted.step_s,
                "tokens_per_s": predicted.tokens_per_s,
                "mfu": predicted.mfu,
                **step_range(predicted.step_s, plan).facts(),
            }
        return found


def score(
    launch: str | Path,
    where: Topology,
    variables: Mapping[str, str] | None = None,
    model: str | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    cancel: Cancel | None = None,
) -> Scored:
    """What the job of a launch file (Megatron-LM or torchtitan) should reach on a topology, beside the best plan for it.

    `variables` are values of the script's shell variables, in place of its own; `model` (name or file) replaces the model of
    the launch. `time_limit` is in seconds, for the search of the best plan; 0 leaves it out. `progress` receives status lines.
    `cancel`, such as a threading.Event that another thread sets, ends the search with the best plan so far.

    Raises HolmesError if the file is wrong or the job does not fit the topology's devices, PlanError and NotModelled if it
    cannot be simulated. If no plan fits, `best` is None and `reason` says why.
    """
    return score_job(read(launch, variables, model), where, time_limit, progress, cancel)


def read(path: str | Path, variables: Mapping[str, str] | None = None, model: str | None = None) -> Job:
    """The job of a launch file. Raises HolmesError."""
    return launch_readers.read(path, Given(dict(variables or {}), None if model is None else load_model(model)))


def score_job(
    job: Job,
    where: Topology,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    cancel: Cancel | None = None,
) -> Scored:
    """The score of a job on a topology; arguments and errors as of `score`."""
    plan = plan_of(job, where)
    progress("simulating today's job")
    today = commands.simulate(plan)
    explanation = commands.explain(today)
    if not time_limit:
        return Scored(job, today, explanation, None, "not searched: the time limit is 0")
    progress("searching the best plan")
    try:
        best = commands.plan(where, plan.workload, time_limit=time_limit, progress=progress, target=job.target, cancel=cancel)
    except Infeasible as error:
        return Scored(job, today, explanation, None, str(error))
    return Scored(job, today, explanation, best)


def plan_of(job: Job, where: Topology) -> Plan:
    """The plan that a job runs today. Raises HolmesError, PlanError, NotModelled."""
    placement = devices_of(where.fleet)
    if job.devices not in (0, len(placement)):
        raise HolmesError(
            f"the launch has {job.devices} devices, and topology {where.name} has {len(placement)}; give a topology of "
            f"{job.devices} devices (--set clusters.NAME.nodes=N), or the launch's number of nodes (--var NAME=VALUE)"
        )
    dp = _dp(job, len(placement), where.name)
    micro = job.config["microbatch_size"]
    whole = job.global_batch_size or dp * job.local_batch_size
    count, rest = divmod(whole, dp * micro)
    if rest or not count:
        what = f"global batch {whole} is not a multiple of dp {dp} x microbatch size {micro}"
        raise HolmesError(f"{what}, with {len(placement)} devices")
    workload = Workload(job.model, whole, job.seq_len, job.precision, optimizer=job.optimizer)
    config = ParallelConfig(
        dp=dp,
        num_microbatches=(count,) * dp,
        zero_shard_size=_shards(job, dp),
        **job.config | _software(job, where),
    )
    groups = groups_of(where.fleet, config, placement)
    plan = Plan(where, workload, config, _stages(job, config), placement, groups, MadeBy("launch", __version__))
    plan = replace(plan, topology=replace(where, workload=workload))
    return with_collectives(plan)


def _software(job: Job, where: Topology) -> dict[str, Any]:
    """The facts of the topology's software, and what the launch says of the overlap of tensor parallelism where it differs."""
    said = job.config.get("own_tp_overlap")
    usual, found = (software_facts(where.stack, where.fleet, job.config["tp"], own) for own in (None, said))
    return found | {"own_tp_overlap": None if found == usual else said}


def devices_of(fleet: Fleet) -> tuple[Device, ...]:
    """All devices in the order of clusters and nodes."""
    return tuple(
        Device(cluster.name, node, index)
        for cluster in fleet.clusters
        for node in range(cluster.nodes)
        for index in range(cluster.node.count)
    )


def _dp(job: Job, devices: int, name: str) -> int:
    """Replicas on these devices. Raises HolmesError where the degrees do not divide them."""
    degrees = {key: job.config[key] for key in ("tp", "pp", "cp")}
    product: int = degrees["tp"] * degrees["pp"] * degrees["cp"]
    dp, rest = divmod(devices, product)
    if rest or not dp:
        words = " x ".join(f"{key} {degree}" for key, degree in degrees.items())
        raise HolmesError(
            f"{words} = {product} does not divide the {devices} devices of topology {name}; give a topology of the launch's "
            "devices (--set clusters.NAME.nodes=N; --set clusters.NAME=null leaves a cluster out)"
        )
    if job.sharded and job.sharded * job.replicated != dp:
        raise HolmesError(
            f"data parallel {job.replicated} x {job.sharded} with tp, pp and cp needs {job.sharded * job.replicated * product} "
            f"devices; topology {name} has {devices}"
        )
    return dp


def _shards(job: Job, dp: int) -> int | None:
    """Ranks that share the optimizer state, where they are not all. Raises HolmesError where blocks do not divide the ranks."""
    if job.replicated <= 1 or not job.config["zero_stage"]:
        return None
    ranks: int = dp * job.config["cp"]
    if ranks % job.replicated:
        raise HolmesError(f"{job.replicated} instances of the optimizer do not divide {ranks} ranks of dp x cp")
    return ranks // job.replicated if ranks > job.replicated else None


def _stages(job: Job, config: ParallelConfig) -> tuple[Stage, ...]:
    """The stages of the job. Raises PlanError where they are not equal."""
    layers, stages = job.model.layers, config.num_stages
    if job.layers:
        cuts = [sum(job.layers[:index]) for index in range(stages + 1)]
    elif job.ends_count and stages > 1:
        cuts = [0, *((layers + 2) * index // stages - 1 for index in range(1, stages)), layers]
    elif layers % stages:
        raise PlanError(f"{layers} layers are not a multiple of {stages} stages (pp {config.pp} x vpp {config.vpp})")
    else:
        cuts = [layers // stages * index for index in range(stages + 1)]
    return tuple(Stage(first, past) for first, past in pairwise(cuts))
