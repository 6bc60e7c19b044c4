"""A plan of unlike pipelines: replicas of one model that are cut into stages of their own, and train in step.

Each entry of `PipelinesPlan.pipelines` is a plan by itself: replicas that are alike, with their own stages, layers of each
stage, tensor- and context-parallel degrees, devices, microbatches and recomputation. Every replica holds the whole model, so
the gradients of a layer are summed over the ranks that hold it, one or several of each replica: the context-parallel ranks of a
stage hold the same weights, too. A section is a run of layers that no stage of
any pipeline cuts: all its layers are on the same ranks, and their gradients are summed by the same groups. Malleus (arXiv
2410.13333) and HexiScale (arXiv 2409.01143) train so.

The tensor-parallel degrees of the stages that hold a section may differ. Its weights are then cut into as many slices as the
largest of these degrees; the ranks that hold a slice, cp of each replica, are a group, and a rank of a smaller degree is in
several groups (gen_layer_dp_rank_group of hexiscale/gen_hetero_groups.py, Relaxed-System-Lab/FlashFlex 5ee1726b; SplitAllReduce
of PKU-DAIR/Hetu 9e47240).

An entry may divide the routed experts of each stage otherwise than its other weights, among ep x etp of its ranks
(`sim.plan.expert_parallelism`). Experts are then cut into as many parts as the largest ep, each of them into as many slices as
the largest etp; the ranks that hold a slice of a part are a group, and a rank with several of them is in several. The gradients
of all other weights are summed as before.

Ranks are numbered pipeline by pipeline, those of a pipeline as in a plan of alike replicas.
"""

from __future__ import annotations

import bisect
import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from sim.errors import NotModelled, PlanError
from sim.hardware.cluster import Device, Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.topology import Topology
from sim.plan.certificate import SpaceBound
from sim.plan.expert_parallelism import matches_tp
from sim.plan.groups import Group, group_ranks, with_transport
from sim.plan.offloading import PARAMETERS
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan
from sim.plan.prediction import Prediction
from sim.plan.sections import Section
from sim.workload.workload import Workload

COMMON = (
    "schedule", "zero_stage", "sequence_parallel", "overlap_grad_reduce", "overlap_param_gather", "attention",
    "gradient_precision",
)  # fmt: skip
"""Settings of a configuration that all pipelines have in common."""
SOFTWARE = (
    "all_reduces", "tp_overlap", "tp_backward_overlap", "copied_sequences", "gathered_keys", "whole_latents",
    "separate_qkv", "separate_gate", "separate_scatters", "early_stop", "whole_messages", "fp8_param_gather", "current_scaling",
    "amax_reduction", "memory", "domain", "held_receivers",
)  # fmt: skip
"""Facts of the software and of the fleet."""
OWN = (
    "tp", "stage_tp", "pp", "dp", "cp", "ep", "etp", "microbatch_size", "num_microbatches", "recompute", "recompute_layers",
    "recompute_modules", "stage_recompute", "offload", "stage_offload", "other_dp_cp", "other_edp",
)  # fmt: skip
"""Those of each pipeline; all others have their defaults, but for `SOFTWARE`."""


@dataclass(frozen=True, slots=True)
class PipelinesPlan:
    """Plans of unlike pipelines on the devices of one fleet, which together train one model; `alike` makes its entries.
    `certificate`: a bound on all such plans, where it is known (`planner.bounds.unlike_pipelines`).

    Raises PlanError if there are fewer than two pipelines, if they do not train the same model in the same way on the same
    fleet, or if two use the same device; NotModelled for what is not modelled in unlike pipelines."""

    pipelines: tuple[Plan, ...]
    made_by: MadeBy
    prediction: Prediction | None = None
    certificate: SpaceBound | None = None

    def __post_init__(self) -> None:
        if len(self.pipelines) < 2:
            raise PlanError(f"pipelines: {len(self.pipelines)} given; a plan of alike replicas needs no pipelines")
        first, owner = self.pipelines[0], dict[Device, int]()
        for index, pipeline in enumerate(self.pipelines):
            where, config = f"pipelines[{index}]", pipeline.config
            check_modelled(where, pipeline)
            if pipeline.fleet != first.fleet or _trained(pipeline.workload) != _trained(first.workload):
                raise PlanError(f"{where}: its topology and workload, but for global_batch_size, must be those of pipelines[0]")
            for key in COMMON:
                if getattr(config, key) != getattr(first.config, key):
                    raise PlanError(
                        f"{where}.config.{key}: {getattr(config, key)}, but {getattr(first.config, key)} in pipelines[0]; "
                        "pipelines differ in stages, tp, cp, ep, microbatches and recomputation only"
                    )
            if config.gradient_ranks != self.gradient_ranks:
                raise PlanError(f"{where}: other_dp_cp {config.other_dp_cp} is not {self.gradient_ranks - config.dp_cp}")
            if config.other_edp != (wanted := other_edp([one.config for one in self.pipelines], index)):
                raise PlanError(f"{where}: other_edp {config.other_edp} is not {wanted}")
            for device in pipeline.placement:
                if owner.setdefault(device, index) != index:
                    raise PlanError(f"{where}.placement: {device} is already a device of pipelines[{owner[device]}]")
        _check_slices(self.pipelines)
        is_shared = first.workload.model.tied_embeddings and first.workload.adapter is None  # adapters leave it frozen
        if is_shared and len({pipeline.config.pp == 1 for pipeline in self.pipelines}) > 1:
            raise NotModelled(
                "pipelines: some have one stage and some several, and both ends share a tied embedding; its gradient is not "
                "summed between them; an untied head, or several stages in all"
            )

    def annotated(self, prediction: Prediction, certificate: SpaceBound | None = None) -> PipelinesPlan:
        """The plan with a prediction and a certificate, without repeating its checks, which do not depend on them."""
        found = copy.copy(self)
        object.__setattr__(found, "prediction", prediction)
        object.__setattr__(found, "certificate", certificate)
        return found

    @property
    def topology(self) -> Topology:
        """The topology, with the workload of all pipelines."""
        return replace(self.pipelines[0].topology, workload=self.workload)

    @property
    def fleet(self) -> Fleet:
        """The machines of the topology."""
        return self.pipelines[0].fleet

    @property
    def workload(self) -> Workload:
        """A step of all pipelines together."""
        samples = sum(pipeline.workload.global_batch_size for pipeline in self.pipelines)
        return replace(self.pipelines[0].workload, global_batch_size=samples)

    @property
    def schedule(self) -> str:
        """The schedule of all pipelines."""
        return self.pipelines[0].config.schedule

    @property
    def gradient_ranks(self) -> int:
        """Ranks that hold the same weights and reduce their gradients together: the sum of dp x cp of all pipelines."""
        return sum(pipeline.config.dp_cp for pipeline in self.pipelines)

    @property
    def placement(self) -> tuple[Device, ...]:
        """Device of every rank."""
        return tuple(itertools.chain.from_iterable(pipeline.placement for pipeline in self.pipelines))

    @property
    def specs(self) -> tuple[DeviceSpec, ...]:
        """Device types of the ranks, in the order of the ranks."""
        return tuple(dict.fromkeys(spec for pipeline in self.pipelines for spec in pipeline.specs))

    @property
    def nodes(self) -> int:
        """Number of nodes with a rank."""
        return len({(device.cluster, device.node) for device in self.placement})

    @property
    def first_ranks(self) -> tuple[int, ...]:
        """Number of the first rank of each pipeline."""
        sizes = [pipeline.config.world_size for pipeline in self.pipelines]
        return tuple(sum(sizes[:index]) for index in range(len(sizes)))

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections of the model, in order."""
        layers = self.workload.model.layers
        every = ((plan, stage) for plan in self.pipelines for stage in range(plan.config.pp))
        held = [(_units(plan, stage), plan.config.of_pp_rank(stage)) for plan, stage in every]
        held = [(units, config) for units, config in held if units[0] < units[1]]
        cuts = sorted({end for units, _ in held for end in units})
        found = []
        for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
            own = [config for (low, high), config in held if low <= begin and end <= high]
            slices, *of_experts = (max(getattr(one, name) for one in own) for name in ("tp", "ep", "expert_tp"))
            first, past_last = max(begin - 1, 0), min(end - 1, layers)
            found.append(Section(number, first, past_last, begin == 0, end == layers + 2, slices, *of_experts))
        return tuple(found)

    def sections_of(self, pipeline: int, stage: int) -> tuple[Section, ...]:
        """The sections that a stage of a pipeline consists of, in order; none where it is behind the head."""
        low, high = _units(self.pipelines[pipeline], stage)
        return tuple(one for one in self.sections if low <= one.begin < high)

    def gradient_groups(self) -> tuple[tuple[Section, tuple[Group, ...]], ...]:
        """Every section with the groups that sum its gradients, one for each slice of its weights, in the order of slices.

        A group has the rank of each replica, or its cp ranks, on the NIC of `common_transport`, in a ring. Routed experts have
        groups of their own where some pipeline divides them (`expert_gradient_groups`)."""
        return self._summed("dp")

    def expert_gradient_groups(self) -> tuple[tuple[Section, tuple[Group, ...]], ...]:
        """Every section with the groups that sum the gradients of its routed experts, one for each slice of each part of them:
        the slices of the first part, then those of the next. None where no pipeline divides experts."""
        return self._summed("edp") if self.pipelines[0].config.other_edp is not None else ()

    def _summed(self, kind: str) -> tuple[tuple[Section, tuple[Group, ...]], ...]:
        placement, found = self.placement, []
        ends = [[_units(plan, stage)[1] for stage in range(plan.head_stage + 1)] for plan in self.pipelines]
        for section in self.sections:
            ranks: list[list[int]] = [[] for _ in range(section.number_of_slices(kind))]
            for first, pipeline, past in zip(self.first_ranks, self.pipelines, ends, strict=True):
                stage = bisect.bisect_right(past, section.begin)
                config = pipeline.config.of_pp_rank(stage)
                begin = first + pipeline.config.first_rank(stage)
                for own in range(config.tp * config.dp_cp):
                    for number in section.slices_of(config, own, kind):
                        ranks[number].append(begin + own)
            groups = with_transport(self.fleet, placement, ((kind, tuple(members), "ring") for members in ranks))
            found.append((section, tuple(groups)))
        return tuple(found)


def other_edp(configs: Sequence[ParallelConfig], index: int) -> int | None:
    """The sum of `edp` of all pipelines but one; None where none of all divides experts otherwise than dense weights."""
    if not any(one.splits_experts for one in configs):
        return None
    return sum(one.edp for number, one in enumerate(configs) if number != index)


def alike(plan: Plan, other_dp_cp: int, other_edp: int | None = None) -> Plan:
    """Alike replicas as an entry of a plan of unlike pipelines, whose other entries have these sums of dp x cp and, where some
    entry divides experts, of edp."""
    config = replace(plan.config, other_dp_cp=other_dp_cp, other_edp=other_edp)
    kept = {(kind, ranks) for kind, ranks in group_ranks(config)}
    groups = tuple(group for group in plan.groups if (group.kind, tuple(sorted(group.ranks))) in kept)
    return replace(plan, config=config, groups=groups, prediction=None, certificate=None)


def of_plans(plans: Sequence[Plan], made_by: MadeBy) -> PipelinesPlan:
    """The plan of unlike pipelines whose entries are plans of alike replicas, each with its own share of the batch."""
    configs = [plan.config for plan in plans]
    ranks = sum(config.dp_cp for config in configs)
    entries = (alike(plan, ranks - plan.config.dp_cp, other_edp(configs, index)) for index, plan in enumerate(plans))
    return PipelinesPlan(tuple(entries), made_by)


def _units(plan: Plan, stage: int) -> tuple[int, int]:
    """What a stage holds of the embedding (unit 0), the layers (1 to n) and the head (n + 1): (first unit, past the last)."""
    own, layers = plan.stages[stage], plan.workload.model.layers
    return own.first + 1 if stage else 0, layers + 2 if stage == plan.head_stage else own.past_last + 1


def check_modelled(where: str, plan: Plan) -> None:
    """Raise NotModelled for settings that are not modelled in unlike pipelines."""
    routed = plan.workload.routing.of_config(plan.config.ep)
    for field in fields(ParallelConfig):
        value = getattr(plan.config, field.name)
        if field.name in routed and value == routed[field.name]:
            continue
        if field.name not in (*COMMON, *OWN, *SOFTWARE) and value != field.default:
            raise NotModelled(f"{where}.config.{field.name}: {value} is not modelled in unlike pipelines; leave it out")
    if plan.config.zero_stage > 1:
        raise NotModelled(f"{where}.config.zero_stage: {plan.config.zero_stage} is not modelled in unlike pipelines; 0 or 1")
    if plan.config.offloads_parameters:
        raise NotModelled(f"{where}.config.offload: {PARAMETERS} is not modelled in unlike pipelines; optimizer, activations")
    if plan.config.splits_experts and plan.workload.adapter is not None:
        raise NotModelled(f"{where}.config.ep: {plan.config.ep} with adapters is not modelled in unlike pipelines")


def _check_slices(pipelines: Sequence[Plan]) -> None:
    """Check that the slices of all tensor-parallel degrees match, and the parts and slices of routed experts."""
    stages = [plan.config.of_pp_rank(stage) for plan in pipelines for stage in range(plan.config.pp)]
    every = {"tp": {one.tp for one in stages}, "ep": {one.ep for one in stages}, "etp": {one.expert_tp for one in stages}}
    for name, degrees in every.items():
        for small, large in itertools.pairwise(sorted(degrees)):
            if large % small:
                raise NotModelled(f"pipelines: {name} {small} and {name} {large}; of two degrees, one must divide the other")
    tp, ep, etp = (max(degrees) for degrees in every.values())
    if not matches_tp(tp, ep, etp):
        raise NotModelled(f"pipelines: etp {etp} x ep {ep} with tp {tp}, the largest of each; one must divide the other")


def _trained(workload: Workload) -> Workload:
    """What pipelines have in common: the workload without its batch."""
    return replace(workload, global_batch_size=1)
