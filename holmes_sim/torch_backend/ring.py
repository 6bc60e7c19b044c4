"""reduce_scatter as a ring of messages, because gloo's own moves as many bytes as an all_reduce.

Each of n ranks sends n - 1 parts of 1/n (Patarasu and Yuan, Bandwidth optimal all-reduce algorithms, J. Parallel Distrib.
Comput. 69, 2009, section 4.1). The simulator assumes the same volume for a reduce_scatter.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.waiting import finish

TAG = 1 << 20


def reduce_scatter(part: Tensor, whole: Tensor, group: dist.ProcessGroup) -> None:
    """Write this rank's part of the sum over ranks into `part`; `whole` is overwritten."""
    rank, ranks = group.rank(), group.size()
    parts = list(whole.chunk(ranks))
    received = torch.empty_like(part)
    next_rank, previous_rank = (rank + 1) % ranks, (rank - 1) % ranks
    for step in range(ranks - 1):  # the part of rank r starts at rank r + 1 and ends at rank r
        sending, receiving = (rank - step - 1) % ranks, (rank - step - 2) % ranks
        sent = group.send([parts[sending]], next_rank, TAG + step)
        finish(group.recv([received], previous_rank, TAG + step))
        finish(sent)
        parts[receiving].add_(received)
    part.copy_(parts[rank])
