"""The keys of a parallel configuration in plans and cases, and their reader and writer."""

from __future__ import annotations

import math
from typing import Any, Literal

from sim import compression
from sim.errors import PlanError
from sim.formats.fields import Count, Flag, Measured, NonNegative, StrictModel, Whole, Wholes, Words
from sim.plan.expert_parallelism import DISPATCHERS, REAL_IMBALANCE
from sim.plan.parallel_config import CP_ALGORITHMS, ParallelConfig

ROUTING = {"balanced": 1.0, "real": REAL_IMBALANCE}
"""How a router divides tokens among experts -> tokens of the busiest rank over the mean."""
ROUTING_KEYS = ("imbalance", "exchange", "capacity_factor", "pad_to_capacity")
"""Keys of a configuration that a plan file has under `routing`."""
BALANCED = ParallelConfig()
"""A configuration with the defaults of `ROUTING_KEYS`."""


class RoutingFacts(StrictModel):
    """How uneven the tokens of the experts are: those of the busiest rank of an ep group over the mean, at least 1, or the
    tokens that each expert was given, from which that follows: consecutive experts are on one rank. exchange: seconds that the
    bytes of an exchange of tokens take over those of equal shares among all ranks; default: as imbalance. capacity_factor: most
    tokens that an expert takes, over the mean; those above it are dropped, which changes what is trained. pad_to_capacity:
    experts with fewer tokens get rows of padding up to it. With a capacity_factor the default of imbalance is 1."""

    imbalance: Measured | None = None
    exchange: NonNegative | None = None
    tokens: tuple[Whole, ...] = ()
    capacity_factor: Measured | None = None
    pad_to_capacity: Flag = False

    def of_busiest(self, ep: int) -> float:
        """Tokens of the busiest of `ep` ranks over the mean, at least 1; with a capacity those that its experts take. Raises
        PlanError where tokens or the imbalance are wrong."""
        limited = self.capacity_factor is not None or self.pad_to_capacity
        if limited and self.imbalance is None and not self.tokens:
            return 1.0
        if (self.imbalance is None) == (not self.tokens):
            raise PlanError("routing: give either imbalance, such as 1.3, or tokens, a number for each expert")
        if self.imbalance is not None:
            return self.imbalance
        each, rest = divmod(len(self.tokens), ep)
        if rest or not sum(self.tokens):
            raise PlanError(
                f"routing.tokens: {len(self.tokens)} experts with {sum(self.tokens)} tokens for ep {ep}; a multiple of it"
            )
        most = math.inf if self.capacity_factor is None else self.capacity_factor * sum(self.tokens) / len(self.tokens)
        taken = [min(tokens, most) for tokens in self.tokens]
        return max(1.0, *(sum(taken[first : first + each]) * ep / sum(self.tokens) for first in range(0, len(taken), each)))


class ConfigFacts(StrictModel):
    """Parallel degrees and options of the training run. `num_microbatches` has one number for each replica, `recompute_layers`
    one for all stages, or one for each. `stage_tp` has the tensor-parallel degree of each pipeline rank, where they differ;
    `tp` is the largest. `stage_dp` has the data-parallel degree of each pipeline rank, where they differ; `dp`, the number of
    replicas, is the smallest, and the ranks of a replica divide the samples of each microbatch. `etp` is the tensor-parallel
    degree of routed experts, where it is not `tp`. `offload` is what the hosts keep: optimizer.
    `message_compression` is how the pipeline's messages between clusters are written: none, int8, int4, top-k=10%,
    adaptive-top-k=10%."""

    tp: Count
    pp: Count
    dp: Count
    cp: Count = 1
    ep: Count = 1
    etp: Count | None = None
    dispatcher: str = DISPATCHERS[0]
    routing: Literal["balanced", "real"] | RoutingFacts = "balanced"
    overlap_expert_communication: Flag = False
    vpp: Count = 1
    schedule: str
    microbatch_size: Count
    num_microbatches: list[Count]
    zero_stage: Whole = 1
    zero_shard_size: Count | None = None
    recompute: str
    recompute_layers: Wholes = ()
    recompute_modules: tuple[str, ...] = ()
    sequence_parallel: Flag
    overlap_grad_reduce: Flag = True
    overlap_param_gather: Flag = True
    attention: str = "flash"
    gradient_precision: str = "fp32"
    tied_shards: Flag = False
    cuda_graphs: tuple[str, ...] = ()
    cp_algo: str = CP_ALGORITHMS[0]
    offload: Words = ()
    stage_tp: tuple[Count, ...] = ()
    stage_dp: tuple[Count, ...] = ()
    message_compression: str = compression.NONE


OPTIONAL = (
    "etp", "dispatcher", "routing", "overlap_expert_communication", "recompute_layers", "recompute_modules", "tied_shards",
    "cuda_graphs", "cp_algo", "offload", "stage_tp", "stage_dp", "message_compression",
)  # fmt: skip
"""Keys that a plan file has only where their value is not the default."""


def config_facts(config: ParallelConfig) -> dict[str, Any]:
    """A parallel configuration as plain data; facts of the software stack are not part of it."""
    found = {name: getattr(config, name) for name in ConfigFacts.model_fields if name not in OPTIONAL}
    for name in ("etp", "dispatcher", "overlap_expert_communication", "tied_shards", "cp_algo", "message_compression"):
        if (value := getattr(config, name)) != ConfigFacts.model_fields[name].default:
            found[name] = value
    routing = {key: getattr(config, key) for key in ROUTING_KEYS if getattr(config, key) != getattr(BALANCED, key)}
    if routing:
        found["routing"] = {"imbalance": config.imbalance} | routing
    if counts := config.recompute_layers:
        found["recompute_layers"] = list(counts) if len(counts) > 1 else counts[0]
    for name in ("recompute_modules", "cuda_graphs", "offload", "stage_tp", "stage_dp"):
        if values := getattr(config, name):
            found[name] = list(values)
    return found | {"num_microbatches": list(config.num_microbatches)}


def config_values(written: ConfigFacts) -> dict[str, Any]:
    """The written configuration as arguments of a `ParallelConfig`, without the facts of the software stack."""
    found = {name: getattr(written, name) for name in ConfigFacts.model_fields if name != "routing"}
    routing = written.routing
    if isinstance(routing, str):
        found["imbalance"] = ROUTING[routing]
    else:
        found |= {key: getattr(routing, key) for key in ROUTING_KEYS} | {"imbalance": routing.of_busiest(written.ep)}
    return found | {"num_microbatches": tuple(written.num_microbatches)}
