"""Compares plan and certificate of `certified` with the fastest plan of the certified space, for one seed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from benchmarks.certificates.bounds import Bounds
from benchmarks.certificates.brute import STRICT, best
from benchmarks.certificates.fleets import LARGEST, draw, size
from benchmarks.certificates.space import pipelines, shapes
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.mixed import is_mixed
from planner.space.shape import Shape
from planner.strategies import certified as strategy
from sim.errors import Infeasible
from sim.hardware.cluster import Node
from sim.hardware.stack import DEFAULT
from sim.kernels import payloads
from sim.plan.plan import Plan
from sim.units import Seconds

NEAR = 0.005
"""Relative difference by which a certified plan may take longer than the fastest: the gap at which the search stops."""
KINDS = {
    "bound": "bound above the best",
    "step": f"more than {NEAR:.1%} above the best",
    "order": "bound above its own plan",
    "feasible": "only one of both finds a plan",
    "closed form": "engine faster than the closed form",
}
"""Possible faults of a seed, with their texts in the table."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one seed; seconds are infinite if there is no plan.

    `step_s` and `bound_s` are step and bound of the certified plan; `mixed`: it has mixed stages, which brute force does not
    search. `best_s` and `best_plan` are the result of brute force, `pipelines` is the number of pipelines in its space,
    `features` names properties of the best plan, and of the space (`surveyed`). `planning_s` and `brute_s` are the seconds of
    both searches."""

    seed: int
    step_s: Seconds
    bound_s: Seconds
    mixed: bool
    best_s: Seconds
    best_plan: str
    certified_plan: str
    wishes: str
    pipelines: int
    broken: int
    features: tuple[str, ...]
    planning_s: Seconds
    brute_s: Seconds

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults of this seed, as keys of `KINDS`."""
        both = self.best_s < float("inf") and self.step_s < float("inf")
        found = {
            "bound": both and self.bound_s > self.best_s * (1 + STRICT),
            "step": both and self.step_s > self.best_s * (1 + NEAR),
            "order": both and not self.mixed and self.bound_s > self.step_s * (1 + STRICT),
            "feasible": (self.step_s < float("inf")) < (self.best_s < float("inf")) or self._only_certified,
            "closed form": self.broken > 0,
        }
        return tuple(kind for kind, wrong in found.items() if wrong)

    @property
    def _only_certified(self) -> bool:
        """Whether the planner has a plan without mixed stages and brute force has none."""
        return self.step_s < self.best_s == float("inf") and not self.mixed


def _whole_bound(plan: Plan) -> float:
    """What the certificate says of plans with each stage on one cluster, which the brute force tries."""
    assert plan.certificate is not None
    return plan.certificate.whole_lower_bound_s or plan.certificate.lower_bound_s


def judge(seed: int, largest: int = LARGEST, changed: Callable[[Request, int], Request] | None = None) -> Verdict:
    """Plan the request of a seed, which `changed` may change (`limits`, `scarce`), with `certified` and with brute force, and
    compare the results."""
    drawn = draw(seed, largest)
    request = changed(drawn, seed) if changed is not None else drawn
    begun = time.perf_counter()
    plan = certified(request)
    planned = time.perf_counter()
    found = best(request)
    done = time.perf_counter()
    return Verdict(
        seed=seed,
        step_s=step(plan) if plan else float("inf"),
        bound_s=_whole_bound(plan) if plan else float("inf"),
        mixed=plan is not None and is_mixed(plan),
        best_s=found.seconds,
        best_plan=layout(found.plan),
        certified_plan=layout(plan),
        wishes=" ".join(filter(None, (str(request.wishes), ", ".join(request.limits.words())))),
        pipelines=size(request),
        broken=len(found.broken),
        features=_of_plan(found.plan),
        planning_s=planned - begun,
        brute_s=done - planned,
    )


def surveyed(seed: int, largest: int = LARGEST) -> Verdict:
    """The verdict of a seed, which names the properties of its space, too."""
    verdict = judge(seed, largest)
    return replace(verdict, features=features(draw(seed, largest)) + verdict.features)


def certified(request: Request) -> Plan | None:
    """The plan of the default strategy with its certificate, from the space that the certificate holds for; None if no plan
    fits."""
    with suppress(Infeasible):
        return strategy.plan(request, PlanningContext(request), replace(Budgets(), unlike_layouts=0, short_shapes=0))
    return None


def layout(plan: Plan | None) -> str:
    """A plan in one line: its degrees, and clusters and layers of each pipeline rank."""
    if plan is None:
        return "none"
    config = plan.config
    stages = []
    for pp_rank, layers in enumerate(plan.layers):
        devices = plan.placement[config.first_rank(pp_rank) : config.first_rank(pp_rank + 1)]
        stages.append(f"{'+'.join(dict.fromkeys(device.cluster for device in devices))}:{layers}")
    behind = "" if config.overlap_param_gather else " gathers-behind"
    schedule = config.schedule + (f"-{config.vpp}" if config.vpp > 1 else "")
    degrees = f"tp{config.tp_text} dp{config.dp} mb{config.microbatch_size} x {config.num_microbatches[0]}"
    recomputed = config.recompute + (f" {list(config.recompute_layers)}" if config.recompute_layers else "")
    return f"{degrees} {recomputed} {schedule} zero{config.zero_stage}{behind} {' '.join(stages)}"


def features(request: Request) -> tuple[str, ...]:
    """Properties of the space of a request, by name."""
    clusters, model = list(request.clusters()), request.workload.model
    every, bounds = list(shapes(request)), Bounds(request)
    fitting = {shape: any(bounds.fits(shape, stages) for stages in pipelines(request, shape)) for shape in every}
    able = [shape for shape, fits in fitting.items() if fits]
    sizes = {shape.microbatch_size for shape in able}
    many = any(_buckets(request, shape) for shape in able)
    transports = {_rdma(a.node, b.node) for a, b in itertools.combinations(clusters, 2)}
    facts = {
        f"{len(clusters)} classes": True,
        "tied": model.tied_embeddings,
        "untied": not model.tied_embeddings,
        "several buckets": many,
        "one bucket": not many,
        "NIC faster than inside": any(_slow_inside(cluster.node) for cluster in clusters),
        "some pair without common RDMA": False in transports,
        "memory binds": _binds(request, bounds, every),
        "interleaved fits": any(shape.schedule == "interleaved" for shape in able),
        "ZeRO 2 or 3 fits": any(shape.zero_stage > 1 and shape.dp > 1 for shape in able),
        "tensor parallel fits": any(shape.tp > 1 for shape in able),
        "microbatch size 3 fits": 3 in sizes,
        "microbatch size 5 or 6 fits": bool(sizes & {5, 6}),
        "pinned": bool(str(request.wishes)),
        "NVLink domains": any(cluster.node.hosts > 1 for cluster in clusters),
        "software stack": request.topology.stack != DEFAULT,
        "all_reduces": request.topology.stack.all_reduces and any(shape.dp > 1 for shape in able),
        "launch_per_rank": any(one.node.device.launch_per_rank for one in clusters) and any(shape.tp > 1 for shape in able),
        "waits for messages": request.topology.stack.held_receivers or any(request.topology.stack.message_calls),
        "NICs on one socket": any(cluster.node.socket_link for cluster in clusters),
        "leaf switches": any(cluster.fabric is not None for cluster in clusters),
        "reduction in switches": any(nic.sharp for cluster in clusters for nic in cluster.node.nics),
        "gathers in fp8": request.topology.stack.fp8_param_gather,
    }
    return tuple(name for name, true in facts.items() if true)


def _of_plan(plan: Plan | None) -> tuple[str, ...]:
    """Properties of the best plan of a request, by name."""
    if plan is None:
        return ("no plan fits",)
    crosses = len({device.cluster for device in plan.placement}) > 1
    several, switches = plan.config.pp > 1, any(group.collective == "sharp" for group in plan.groups)
    found = {"best plan has several stages": several, "best plan crosses clusters": crosses, "best plan has sharp": switches}
    found["best plan has unlike tp"] = bool(plan.config.stage_tp)
    found["best plan recomputes some layers"] = bool(plan.config.recompute_layers)
    return tuple(name for name, true in found.items() if true)


def _binds(request: Request, bounds: Bounds, every: list[Shape]) -> bool:
    """Whether some pipelines fit and some do not."""
    alike = {shape.tp * 1000 + shape.dp: shape for shape in every}.values()
    return len({bounds.fits(shape, stages) for shape in alike for stages in pipelines(request, shape)}) == 2


def _buckets(request: Request, shape: Shape) -> bool:
    """Whether a stage of two layers reduces its gradients in several buckets."""
    config = shape.config(request.workload, 2)
    return shape.dp > 1 and payloads.buckets(request.workload, config, 2, False, False) > 1


def _slow_inside(node: Node) -> bool:
    """Whether some NICs of a node have more bandwidth than the links inside it."""
    inside = node.intra_node.port_bandwidth(2) * node.intra_node.efficiency_of("all_reduce")
    return node.count > 1 and any(
        nic.bandwidth * nic.count * nic.spec.efficiency_of("all_reduce") > inside for nic in node.nics
    )


def _rdma(a: Node, b: Node) -> bool:
    """Whether two nodes have an RDMA type in common and devices of one vendor."""
    common = {nic.kind for nic in a.nics if nic.spec.rdma} & {nic.kind for nic in b.nics}
    return bool(common) and a.device.vendor == b.device.vendor
