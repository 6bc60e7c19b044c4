"""reduce_scatter as a ring of messages, because gloo's own moves as many bytes as an all_reduce.

Of n ranks each sends n - 1 parts of 1/n (Patarasu and Yuan, Bandwidth optimal all-reduce algorithms, J. Parallel Distrib.
Comput. 69, 2009, section 4.1): what the simulator takes a reduce_scatter to move.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

TAG = 1 << 20


def reduce_scatter(part: Tensor, whole: Tensor, group: dist.ProcessGroup) -> None:
    """Put this rank's part of the sum over ranks into `part`; `whole` is written over."""
    rank, ranks = group.rank(), group.size()
    parts = list(whole.chunk(ranks))
    come = torch.empty_like(part)
    ahead, behind = (rank + 1) % ranks, (rank - 1) % ranks
    for turn in range(ranks - 1):  # the part of rank r starts at r + 1 and comes round to r
        given, taken = (rank - turn - 1) % ranks, (rank - turn - 2) % ranks
        sent = group.send([parts[given]], ahead, TAG + turn)
        group.recv([come], behind, TAG + turn).wait()
        sent.wait()
        parts[taken].add_(come)
    part.copy_(parts[rank])
