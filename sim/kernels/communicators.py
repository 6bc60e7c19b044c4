"""Bytes of a device that torch does not count: CUDA's context, and the buffers of NCCL's communicators.

A rank has a communicator for each group of ranks that it exchanges something with. Megatron-LM (NVIDIA/Megatron-LM d98e8a64,
megatron/core/parallel_state.py) and nanotron make the same: all ranks (barriers, times), the tensor-parallel ranks, those of
context parallelism, those that sum gradients, experts' ranks and those that sum experts' gradients, the ranks of a pipeline,
and the ranks of one replica (norm of the gradients). torch opens a communicator at its first use, and none is counted for a
group of one rank, which has no connection.

NCCL allocates, for each channel of a ring, what it receives into (LL 0.5, LL128 4.69 and Simple 4 MiB, rounded to 10) and the
counters of what it sends (2 MiB): computeBuffSizes of src/init.cc and p2pSendSetup, p2pRecvSetup of src/transport/p2p.cc
(NVIDIA/nccl 5067397c); NVIDIA/nccl issue 1685 lists allocations of these two sizes. Groups on NVLink of A100 and H100 have 24
channels ("24 coll channels" in logs of NCCL). A tree adds up to as much, and is connected at its first use since NCCL 2.22
(NCCL_RUNTIME_CONNECT), before that at once: 0.57 GB for two ranks of A100 and 0.72 for more (issue 964)."""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.units import GIGA, MEBI, Bytes

CONTEXT: Bytes = 1.06 * GIGA
"""Bytes beside torch's before the first exchange of tokens, on H100: CUDA's context and loaded kernels (NVIDIA/nccl issue
1685). With more, fewer plans fit."""
CHANNELS = 24
"""Channels of a communicator on the NVLink of A100 and H100, in logs of NCCL. Between nodes they are 16 or fewer, and where
there is no NVLink 2 to 8: there this is too much."""
CHANNEL: Bytes = (10 + 2) * MEBI
"""Bytes of a channel of a ring: what is received, and the counters of what is sent (source above)."""
COMMUNICATOR: Bytes = CHANNELS * CHANNEL
"""Bytes of a communicator with a ring: 0.3 GB."""


def outside_torch(config: ParallelConfig) -> Bytes:
    """Bytes that a rank takes on its device in addition to what torch reserves."""
    return CONTEXT + number(config) * COMMUNICATOR


def number(config: ParallelConfig) -> int:
    """Communicators of two or more ranks that a rank is in; as many in a pipeline of 2 stages as in any longer one.

    It does not grow where dp, cp, ep or pp are 1 instead, as in bounds that leave them out. Ranks of other pipelines count for
    the groups of gradients and of all ranks."""
    replica, gradients = config.tp * config.pp, config.gradient_ranks
    sizes = [config.tp, config.cp, gradients, config.pp, replica, replica * gradients]
    experts = [config.ep, config.expert_gradient_ranks] if config.ep > 1 else []
    return sum(size > 1 for size in (*sizes, *experts))
