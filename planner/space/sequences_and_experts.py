"""Degrees of context and expert parallelism that are searched, by sequence length and number of experts."""

from __future__ import annotations

from planner.request import Request
from sim.errors import Infeasible
from sim.workload.workload import Workload

LEAST_TOKENS = 4096
"""Minimum number of tokens per rank for which cp is searched; a smaller value adds larger cp to the search. With fewer tokens
per rank, more replicas or tensor parallelism need less communication for the same effect (a guess). Llama 3 uses 8,192 (arXiv
2407.21783, table 4: cp 16 for 131,072)."""

SHORT_TOKENS = 2048
"""Minimum number of tokens per rank with which cp of 4 and more is tried without a proof (a guess): larger cp has smaller
products, and is for long sequences, whose activations fill the memory. cp 2 is tried for shorter ones, too."""
LEAST_CHUNK = 128
"""Minimum number of tokens of each of the two chunks that a rank has of a sequence: the rows of a block of fused attention
(FlashAttention-2, arXiv 2307.08691, section 3.3). With fewer, part of a block is idle, which the costs do not know."""


def context_degrees(request: Request) -> list[int]:
    """1 and the powers of two that leave a rank at least `LEAST_TOKENS`, or the pinned cp."""
    if request.wishes.cp:
        return [request.wishes.cp]
    seq_len, limits = request.workload.seq_len, request.limits
    powers = (2**i for i in range(max(seq_len // LEAST_TOKENS, 1).bit_length()))
    degrees = sorted(map(int, limits.listed("cp"))) or powers
    return [cp for cp in degrees if limits.allows("cp", cp) and (cp == 1 or seq_len % (2 * cp) == 0)]


def short_degree(request: Request) -> int | None:
    """The degree of context parallelism that is tried without a proof: the least power of two above those that are searched.

    None where ranks would have too few tokens, where cp is pinned or limited, and on measured devices."""
    limits, seq_len = request.limits, request.workload.seq_len
    limited = (limits.dimensions, *(dimensions for _, dimensions in limits.on_clusters))
    if request.wishes.cp or any(name == "cp" for some in limited for name, _ in some) or is_measured(request):
        return None
    cp = 2 * max(context_degrees(request))
    few = seq_len < 2 * cp * LEAST_CHUNK or (cp > 2 and seq_len < cp * SHORT_TOKENS)
    return None if few or seq_len % (2 * cp) else cp


def is_measured(request: Request) -> bool:
    """Whether some device has a profile. Profiles do not tell of cp > 1 (`sim.kernels.compute`): formulas would price plans
    with cp, measurements those without, and the former may be faster only for that."""
    return any(cluster.node.device.profile is not None for cluster in request.clusters())


def expert_degrees(request: Request) -> list[int]:
    """All divisors of the number of experts, or the pinned ep; only 1 with `zero_shard_size`, which is not modelled with ep."""
    experts = request.workload.model.experts
    if request.wishes.ep or request.wishes.zero_shard_size or not experts:
        return [request.wishes.ep or 1]
    return [ep for ep in range(1, experts + 1) if experts % ep == 0 and request.limits.allows("ep", ep)]


def expert_tensor_degrees(request: Request) -> list[int | None]:
    """Tensor-parallel degrees of experts: the pinned one; else that of all layers (None), 1 and those that limits list, or only
    that without experts or with `zero_shard_size`. Whole experts need no collectives of their own and have the larger products
    (arXiv 2504.14960)."""
    if request.wishes.etp or not request.workload.model.experts or request.wishes.zero_shard_size:
        return [request.wishes.etp]
    listed = sorted(int(etp) for etp in request.limits.listed("etp") if request.workload.model.ffn_hidden % int(etp) == 0)
    return [None, *dict.fromkeys([1, *listed])]


def check_degrees(workload: Workload, cp: int, ep: int, etp: int | None = None) -> None:
    """Raise Infeasible where a pinned cp does not divide the sequence, a pinned ep the experts or a pinned etp each of them."""
    if cp > 1 and workload.seq_len % (2 * cp):
        raise Infeasible(f"cp {cp}: seq_len {workload.seq_len} must be a multiple of 2 x cp")
    if ep > 1 and (not workload.model.experts or workload.model.experts % ep):
        raise Infeasible(f"ep {ep} must divide experts {workload.model.experts} of {workload.model.name}")
    model = workload.model
    if etp and not model.experts:
        raise Infeasible(f"etp {etp}: model {model.name} has no experts; leave it out")
    if etp and model.ffn_hidden % etp:
        raise Infeasible(f"etp {etp} must divide ffn_hidden {model.ffn_hidden}, the width of an expert of {model.name}")
