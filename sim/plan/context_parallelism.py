"""How the ranks of a context-parallel group share the attention of their sequences.

ring        keys and values travel around a ring of all ranks (Megatron-Core's --cp-comm-type p2p)
ulysses     all_to_alls give each rank the whole sequence of some heads (a2a; DeepSpeed-Ulysses, arXiv 2309.14509, section 3.1)
all_gather  each rank gathers the keys and values of all (`sim.kernels.key_gathers`)
hybrid      all_to_alls among the ranks on a node, or in an NVLink domain, and rings between these, each of the ranks with the
            same heads (a2a+p2p; USP, arXiv 2405.07719, section 3; NVIDIA/TransformerEngine d0067d0d, AttnFuncWithCPAndKVP2P
            of pytorch/attention/dot_product_attention/context_parallel.py: cp_size_a2a ranks, then a ring)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

GATHER, HYBRID = "all_gather", "hybrid"
CP_ALGORITHMS = ("ring", "ulysses", GATHER, HYBRID)
"""Values of `cp_algo`."""


class Context(Protocol):
    """Fields of a parallel configuration that say how its cp ranks share attention."""

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""

    @property
    def cp(self) -> int:
        """Context-parallel degree."""

    @property
    def cp_algo(self) -> str:
        """One of `CP_ALGORITHMS`."""

    @property
    def domain(self) -> int:
        """Devices of a node or NVLink domain; 0 where that is not known."""


def ring_ranks(config: Context) -> int:
    """Ranks of a ring around which keys and values travel; 1 where there is none."""
    return {"ring": config.cp, HYBRID: config.cp // head_ranks(config)}.get(config.cp_algo, 1)


def head_ranks(config: Context) -> int:
    """Ranks that divide the heads of the same tokens by all_to_alls; 1 where none do.

    Under `hybrid` consecutive ranks of a cp group that are on one node, or in one domain (`ParallelConfig.domain`; all of them
    where that is not known): as many as divide both the group and the rows of ranks that a node has."""
    if config.cp_algo == HYBRID:
        return math.gcd(config.cp, max(config.domain // config.tp, 1)) if config.domain else config.cp
    return config.cp if config.cp_algo == "ulysses" else 1


def parts(config: Context, operation: str, width: int) -> list[slice]:
    """The ranks of a cp group of `width` ranks, in their order, that run an operation together: all but under `hybrid`, where
    those of a node exchange heads, and one rank of each node is in a ring."""
    if config.cp_algo != HYBRID:
        return [slice(0, width)]
    inside = head_ranks(config)
    if operation == "all_to_all":
        return [slice(first, first + inside) for first in range(0, width, inside)]
    return [slice(first, width, inside) for first in range(inside)]


def operations(config: Context) -> Sequence[str]:
    """Operations that a cp group may run."""
    if config.cp_algo != HYBRID:
        return {"ring": ("send_recv",), GATHER: ("all_gather", "reduce_scatter")}.get(config.cp_algo, ("all_to_all",))
    wanted = ("send_recv", ring_ranks(config)), ("all_to_all", head_ranks(config))
    return tuple(operation for operation, ranks in wanted if ranks > 1)
