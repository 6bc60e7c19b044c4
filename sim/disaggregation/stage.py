"""A stage with two sets of ranks: attention ranks hold everything but the routed experts, expert ranks hold these.

Zebra parallelism (HeterMoE, Wu et al., arXiv 2504.03871, section 4.1): `microbatches` pass the layers side by side, so that
attention of one microbatch overlaps with the experts of another one. Asymmetric expert assignment (section 4.2): attention
ranks may keep some experts of a layer. The stage is the whole model: pp 1, tp 1, and a set of ranks is data parallel in what it
holds once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.errors import NotModelled, PlanError
from sim.hardware.cluster import Device, Fleet
from sim.hardware.stack import software_facts
from sim.hardware.topology import Topology
from sim.network.routes import Devices
from sim.plan.parallel_config import USUAL_GRADIENTS, ParallelConfig
from sim.workload.routing import BALANCED
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class DisaggregatedStage:
    """A model on attention ranks and expert ranks.

    `groups` equal groups are data-parallel replicas; each has consecutive ranks of both sets, and all experts once. A group
    passes `microbatches` microbatches at once, forward and backward, `rounds` times a step. `kept`: routed experts of each
    layer that the attention ranks of a group hold together; empty: none. `recompute`: none or full; each rank recomputes its
    own part of a layer, so no token travels again.

    Raises PlanError, with the name of the field in front, where numbers do not divide each other or devices do not exist or are
    given twice, and NotModelled for models and workloads that have no such stage."""

    topology: Topology
    workload: Workload
    attention: Devices
    experts: Devices
    groups: int = 1
    microbatches: int = 2
    rounds: int = 1
    kept: tuple[int, ...] = ()
    recompute: str = "none"

    def __post_init__(self) -> None:
        if not self.kept:
            object.__setattr__(self, "kept", (0,) * self.workload.model.layers)
        self._check_workload()
        self._check_devices()
        if min(self.groups, self.microbatches, self.rounds) < 1:
            raise PlanError("groups, microbatches and rounds: at least 1 each")
        for name, devices in (("attention", self.attention), ("experts", self.experts)):
            if not devices or len(devices) % self.groups:
                raise PlanError(f"{name}: {len(devices)} ranks are not {self.groups} equal groups")
        passes = len(self.attention) * self.microbatches * self.rounds
        if self.workload.global_batch_size % passes:
            raise PlanError(
                f"microbatches: {len(self.attention)} attention ranks x {self.microbatches} microbatches x {self.rounds} "
                f"rounds do not divide global_batch_size {self.workload.global_batch_size}"
            )
        self._check_kept()

    def _check_workload(self) -> None:
        model = self.workload.model
        if not model.experts or not model.is_uniform:
            raise NotModelled(f"workload.model: {model.name}: experts on ranks of their own need equal layers with experts")
        if self.workload.adapter is not None:
            raise NotModelled("workload.adapter: adapters beside experts on ranks of their own are not modelled")
        if self.workload.routing != BALANCED:
            raise NotModelled("workload.routing: uneven experts on ranks of their own are not modelled; balanced")
        if self.recompute not in ("none", "full"):
            raise NotModelled(f"recompute: {self.recompute!r} is not modelled here; none or full")

    def _check_devices(self) -> None:
        seen: dict[Device, str] = {}
        for name, devices in (("attention", self.attention), ("experts", self.experts)):
            for index, device in enumerate(devices):
                key = f"{name}[{index}]"
                try:
                    self.topology.fleet.check(device)
                    self.topology.fleet.spec(device).peak_of(self.workload.precision)
                except PlanError as error:
                    raise PlanError(f"{key}: {error}") from None
                if seen.setdefault(device, key) != key:
                    raise PlanError(f"{key}: {device} is already {seen[device]}")

    def _check_kept(self) -> None:
        experts, layers = self.workload.model.experts, self.workload.model.layers
        if len(self.kept) != layers:
            raise PlanError(f"kept: {len(self.kept)} numbers; {layers} layers need one each")
        for number in set(self.kept):
            if not 0 <= number < experts or number % self.attention_ranks or (experts - number) % self.expert_ranks:
                raise PlanError(
                    f"kept: {number} of {experts} experts cannot be kept: {self.attention_ranks} attention ranks of a group "
                    f"share them equally, and {self.expert_ranks} expert ranks the others"
                )

    def on(self, fleet: Fleet) -> DisaggregatedStage:
        """The stage on another fleet that has its devices."""
        return replace(self, topology=replace(self.topology, fleet=fleet))

    @property
    def attention_ranks(self) -> int:
        """Attention ranks of a group."""
        return len(self.attention) // self.groups

    @property
    def expert_ranks(self) -> int:
        """Expert ranks of a group."""
        return len(self.experts) // self.groups

    @property
    def microbatch_size(self) -> int:
        """Sequences of a microbatch on one attention rank."""
        return self.workload.global_batch_size // (len(self.attention) * self.microbatches * self.rounds)

    @property
    def by_group(self) -> tuple[Devices, ...]:
        """Devices of each group, attention ranks first."""
        m, n = self.attention_ranks, self.expert_ranks
        both = range(self.groups)
        return tuple(self.attention[g * m : (g + 1) * m] + self.experts[g * n : (g + 1) * n] for g in both)

    @property
    def config(self) -> ParallelConfig:
        """The configuration by which kernels and memory of the attention ranks are priced: data parallel, ZeRO 1."""
        ranks = len(self.attention)
        return ParallelConfig(
            dp=ranks,
            microbatch_size=self.microbatch_size,
            num_microbatches=(self.microbatches * self.rounds,) * ranks,
            recompute=self.recompute,
            gradient_precision=USUAL_GRADIENTS.get(self.workload.precision, "fp32"),
            **software_facts(self.topology.stack, self.topology.fleet, 1),
        )

    def __str__(self) -> str:
        sets = [" and ".join(dict.fromkeys(d.cluster for d in devices)) for devices in (self.attention, self.experts)]
        parts = [
            f"attention on {len(self.attention)} devices of {sets[0]}",
            f"experts on {len(self.experts)} of {sets[1]}",
            *([f"in {self.groups} groups"] if self.groups > 1 else []),
            f"{self.rounds} x {self.microbatches} microbatches of {self.microbatch_size}",
            *(["all recomputed"] if self.recompute == "full" else []),
            *([f"{sum(self.kept) / len(self.kept):.3g} experts a layer kept beside attention"] if any(self.kept) else []),
        ]
        return ", ".join(parts)
