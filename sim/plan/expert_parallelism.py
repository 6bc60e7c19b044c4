"""How routed experts are divided among the ranks of a stage, and how tokens reach them.

Experts have a mesh of their own (Megatron-Core's expert_decoder_rank_generator, megatron/core/parallel_state.py; "parallel
folding", arXiv 2504.14960): of consecutive ranks of a stage etp varies fastest, then ep, then edp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sim.errors import NotModelled, PlanError
from sim.plan.rank_numbering import RankNumbering, degrees_text
from sim.plan.reached_places import reached
from sim.workload.model import Model
from sim.workload.routing import Routing

DISPATCHERS = ("alltoall", "allgather", "deepep", "hybridep")
"""How tokens reach the ranks of an ep group; names as in Megatron-Core (--moe-token-dispatcher-type and
--moe-flex-dispatcher-backend).

alltoall          every token goes once to each of its experts
allgather         every token goes once to every rank
deepep, hybridep  every token goes once to each node, or NVLink domain, that has one of its experts, and is copied there; inside
                  one node, once to each rank (DeepEP, github.com/deepseek-ai/DeepEP README)"""
DEDUPLICATED = ("deepep", "hybridep")
"""Dispatchers that send a token once to a node or rank, however many of its experts are there."""
EXPOSED = 0.4
"""Share of the exchange of tokens that takes time of its own, where it overlaps the compute of another microbatch: a guess. One
pair of runs with and without overlap says 0.68 (Qwen3-235B-A22B on 256 H100 with ep 32 and DeepEP, 17.6 and 19.7 s,
github.com/yanring/Megatron-MoE-ModelZoo 020b8136, best_practice/qwen3/readme.md). DeepSeek-V3 on GB300 leaves room for little
(validation/mixtures/mlperf_v60_moe.yaml), but its compute is predicted too slow."""


def mesh_rows(tp: int, ep: int, etp: int | None) -> int:
    """Consecutive dp_cp indices over which etp x ep ranks are spread, where each index has tp ranks; etp None: as tp."""
    return max(1, (etp or tp) * ep // tp)


def matches_tp(tp: int, ep: int, etp: int | None) -> bool:
    """Whether one of etp x ep and tp divides the other, so that meshes of experts and tensor-parallel groups match."""
    mesh = (etp or tp) * ep
    return max(mesh, tp) % min(mesh, tp) == 0


def used_degrees(cp: int, ep: int, etp: int | None) -> dict[str, int]:
    """Name -> degree of context and expert parallelism, where they are used: cp and ep above 1, etp unlike tp."""
    return {name: degree for name, degree in (("cp", cp), ("ep", ep)) if degree > 1} | ({"etp": etp} if etp else {})


@dataclass(frozen=True, slots=True)
class ExpertParallelism(RankNumbering):
    """Degrees of expert parallelism: `ep` ranks divide the routed experts, `etp` ranks each of them.

    etp: None where it is `tp`. dispatcher: one of `DISPATCHERS`. imbalance: tokens of the busiest rank of an ep group over the
    mean; 1 is forced balance. exchange: seconds that the bytes of an exchange of tokens take over those of equal shares among
    all ranks, where the placement of experts is known; None: as `load`. capacity_factor: most tokens that an expert takes, over
    the mean; tokens above it are dropped, which changes what is trained. None: no token is dropped. pad_to_capacity: experts
    with fewer tokens get rows of padding up to it (Megatron-Core's --moe-expert-capacity-factor and
    --moe-pad-expert-input-to-capacity). `overlap_expert_communication`: tokens travel beside the compute of another microbatch
    (Megatron-Core's --overlap-moe-expert-parallel-comm). `overlap_shared_experts`: they travel beside shared experts of their
    own microbatch, which else compute before the router (--moe-shared-expert-overlap). domain: devices of a node or NVLink
    domain, a fact of the fleet; of unlike nodes the fewest. 0: unknown, one domain. other_edp: the sum of `edp` of other
    pipelines, where pipelines are unlike and some of them divide experts (`sim.plan.pipelines`); None: none of them does.
    `stage_ep` and `stage_etp`: ep and etp of every pipeline rank, where they differ; `ep` and `etp` are then those of the first
    one, and `of_pp_rank` has those of each."""

    ep: int = 1
    etp: int | None = None
    dispatcher: str = DISPATCHERS[0]
    imbalance: float = 1.0
    exchange: float | None = None
    capacity_factor: float | None = None
    pad_to_capacity: bool = False
    overlap_expert_communication: bool = False
    overlap_shared_experts: bool = False
    domain: int = 0
    other_edp: int | None = None
    stage_ep: tuple[int, ...] = ()
    stage_etp: tuple[int, ...] = ()

    @property
    def further_degrees(self) -> dict[str, int | str]:
        """`used_degrees` of the configuration; of stages with unlike ones as `tp_text`."""
        unlike = {"cp": self.stage_cp, "ep": self.stage_ep, "etp": self.stage_etp}
        return used_degrees(self.cp, self.ep, self.etp) | {key: degrees_text(of, 0) for key, of in unlike.items() if of}

    def ep_of(self, pp_rank: int) -> int:
        """Ranks of a pipeline rank that divide the routed experts."""
        return self.stage_ep[pp_rank] if self.stage_ep else self.ep

    def etp_of(self, pp_rank: int) -> int | None:
        """Tensor-parallel degree of routed experts on a pipeline rank; None where it is that of all other weights."""
        return self.stage_etp[pp_rank] if self.stage_etp else self.etp

    @property
    def expert_tp(self) -> int:
        """Tensor-parallel degree of routed experts."""
        return self.etp or self.tp

    @property
    def splits_experts(self) -> bool:
        """Whether routed experts are divided otherwise than dense weights: their gradients have groups of their own."""
        return self.ep > 1 or self.etp is not None or bool(self.stage_ep or self.stage_etp)

    @property
    def expert_mesh(self) -> int:
        """Consecutive ranks of a stage that hold each routed expert once: etp x ep."""
        return self.expert_tp * self.ep

    @property
    def expert_rows(self) -> int:
        """Consecutive dp_cp indices over which the ranks of an expert mesh are spread; of unlike stages those of replicas whose
        ranks make up whole meshes on each of them."""
        if not (self.has_stage_degrees or self.stage_ep or self.stage_etp):
            return mesh_rows(self.tp, self.ep, self.etp)
        rows = (mesh_rows(self.tp_of(rank), self.ep_of(rank), self.etp_of(rank)) for rank in range(self.pp))
        parts = (self.dp_cp_of(rank) // self.dp_cp for rank in range(self.pp))
        return math.lcm(*(math.lcm(one, part) // part for one, part in zip(rows, parts, strict=True)))

    @property
    def expert_replicas(self) -> int:
        """Consecutive replicas whose ranks divide the experts of a layer, with equally many microbatches each; 1 where each
        replica has all of them."""
        return math.lcm(self.expert_rows, self.cp) // self.cp if self.splits_experts else 1

    @property
    def edp(self) -> int:
        """Ranks of a stage that hold the same experts and reduce their gradients together (expert data parallel)."""
        return self.tp * self.dp_cp // self.expert_mesh

    @property
    def expert_gradient_ranks(self) -> int:
        """`edp`, and that of other pipelines: all ranks that reduce the gradients of the same experts."""
        return self.edp + (self.other_dp_cp if self.other_edp is None else self.other_edp)

    @property
    def sums_experts_apart(self) -> bool:
        """Whether the gradients of routed experts have groups of their own: experts are divided, here or in other pipelines."""
        return self.splits_experts or self.other_edp is not None

    @property
    def load(self) -> float:
        """Rows of the experts of the busiest rank, over the mean of routed tokens.

        With a capacity c at most c, since each of its experts takes at most c times the mean of an expert; with padding exactly
        c on every rank (Megatron-Core d98e8a64, megatron/core/transformer/moe: get_capacity and apply_router_token_dropping of
        moe_utils.py, preprocess of MoEAlltoAllTokenDispatcher in token_dispatcher.py). The capacity of an expert is not rounded
        up to whole tokens here."""
        if self.capacity_factor is None:
            return self.imbalance
        return self.capacity_factor if self.pad_to_capacity else min(self.imbalance, self.capacity_factor)

    @property
    def sent(self) -> float:
        """Copies of tokens that a rank sends to experts, over those that were routed: padded ones as well, dropped ones not."""
        if self.capacity_factor is None:
            return 1.0
        return self.capacity_factor if self.pad_to_capacity else min(1.0, self.capacity_factor)

    @property
    def exchange_factor(self) -> float:
        """Bytes by which an exchange of tokens is simulated, over those of equal shares."""
        return self.load if self.exchange is None else self.exchange

    def copies(self, experts: int, chosen: int, groups: int = 1, chosen_groups: int = 1) -> float:
        """Copies of a token that its rank sends into an ep group, its own node or rank included, where it chooses `chosen` of
        `experts` experts, from `chosen_groups` of `groups` groups (one group: from all).

        Of n nodes (or ranks) with experts / n each, a random choice hits n (1 - C(experts - experts/n, chosen) / C(experts,
        chosen)); a choice from groups at most as many nodes as these are on (`sim.plan.reached_places`)."""
        if self.dispatcher == "allgather":
            return float(self.ep)
        if self.dispatcher not in DEDUPLICATED:
            return float(chosen)
        nodes = math.ceil(self.expert_mesh / self.domain) if self.domain else 1
        return reached(nodes if nodes > 1 else self.ep, experts, chosen, groups, chosen_groups)

    def expert_slices(self, kind: str, ranks: int = 0) -> Iterator[slice]:
        """The etp, ep or edp groups of two or more ranks among the first `ranks` ranks of a stage (default: all).

        etp groups exist where etp is not tp, edp groups where experts are divided otherwise than dense weights."""
        ranks, mesh, width = ranks or self.tp * self.dp_cp, self.expert_mesh, self.expert_tp
        if kind == "etp" and self.etp is not None and width > 1:
            yield from (slice(first, first + width) for first in range(0, ranks, width))
        elif kind == "ep" and self.ep > 1:
            firsts = (block + one for block in range(0, ranks, mesh) for one in range(width))
            yield from (slice(first, first + mesh - first % width, width) for first in firsts)
        elif kind == "edp" and self.splits_experts and self.edp > 1:
            yield from (slice(first, ranks, mesh) for first in range(mesh))

    def check_experts(self, sequence_parallel: bool, keeps_domain: bool = False) -> None:
        """Leave out an etp that equals tp, and a domain on which neither tokens of experts nor anything else depends.

        Raises PlanError if the mesh of experts does not fit the ranks of a stage, and NotModelled if it does not match whole
        tensor-parallel groups or `sequence_parallel` is not set where it is needed."""
        if self.dispatcher not in DISPATCHERS:
            raise PlanError(f"dispatcher {self.dispatcher!r} is unknown; known: {', '.join(DISPATCHERS)}")
        if self.imbalance < 1:
            raise PlanError(f"routing: an imbalance is at least 1, not {self.imbalance:g}: the busiest rank over the mean")
        if self.exchange is not None and self.exchange < 0:
            raise PlanError(f"routing: exchange {self.exchange:g} is negative; 1 is that of equal shares among all ranks")
        self._check_capacity()
        if self.overlap_shared_experts and self.overlap_expert_communication:
            raise PlanError(
                "overlap_shared_experts with overlap_expert_communication: an exchange is beside shared experts of its own "
                "microbatch, or beside another microbatch; one of the two"
            )
        if self.overlap_shared_experts and self.dispatcher == "allgather":
            raise NotModelled("overlap_shared_experts with dispatcher allgather is not modelled; alltoall, deepep or hybridep")
        if self.etp == self.tp and not self.stage_tp:
            object.__setattr__(self, "etp", None)
        if self.dispatcher not in DEDUPLICATED and not keeps_domain:
            object.__setattr__(self, "domain", 0)
        if self.has_stage_degrees:  # `of_pp_rank` checks those of each
            return
        if self.etp is None:
            if self.dp_cp % self.ep:
                raise PlanError(f"ep {self.ep} does not divide dp {self.dp} x cp {self.cp}, the ranks of which it divides")
            return
        if self.etp < 1:
            raise PlanError(f"etp must be at least 1, not {self.etp}")
        if self.tp * self.dp_cp % self.expert_mesh:
            ranks = f"tp {self.tp} x cp {self.cp} x dp {self.dp}, the ranks of a stage"
            raise PlanError(f"etp {self.etp} x ep {self.ep} does not divide {ranks}")
        if not matches_tp(self.tp, self.ep, self.etp):
            raise NotModelled(f"etp {self.etp} x ep {self.ep} with tp {self.tp}: one must divide the other")
        if self.tp > 1 and not sequence_parallel:
            raise NotModelled(
                f"etp {self.etp} unlike tp {self.tp} is not modelled without sequence_parallel; Megatron-Core requires that "
                "for experts, too"
            )

    def check_routing(self, model: Model) -> None:
        """Raise PlanError where uneven tokens, or a capacity of experts, do not fit a model."""
        if self.exchange is not None and not model.experts:
            raise PlanError(f"config.routing.exchange: model {model.name} has no experts to exchange tokens with; leave it out")
        try:
            Routing(self.imbalance, (), self.capacity_factor, self.pad_to_capacity).check(model)
        except ValueError as error:
            raise PlanError(f"config.{error}") from None

    def _check_capacity(self) -> None:
        if self.capacity_factor is None:
            if self.pad_to_capacity:
                raise PlanError("routing: pad_to_capacity needs a capacity_factor, such as 1.1, up to which rows are padded")
            return
        if self.capacity_factor <= 0:
            raise PlanError(f"routing: capacity_factor {self.capacity_factor:g} must be above 0; leave it out to drop no token")
        if self.exchange is not None and self.pad_to_capacity:
            raise PlanError(f"routing: exchange {self.exchange:g} with pad_to_capacity: padded shares are equal; leave it out")
