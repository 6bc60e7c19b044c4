"""One of three ranks that measure what traffic of gloo costs the cores: CPU seconds of all_reduces inside a namespace (ranks 0
and 1) and between two (ranks 0 and 2).

`python -m holmes_sim.torch_backend.capacity_rank NBYTES TIMES`, started by `holmes_sim.lab.capacity`. Prints JSON: the CPU
seconds of this rank by NIC type of the pair.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from holmes_sim.torch_backend.groups import GLOO_INTERFACES, INTERFACES

PAIRS = {"intra_node": (0, 1), "ethernet": (0, 2)}
"""NIC type -> the ranks that communicate over it."""
PATIENCE = timedelta(seconds=60)
"""Timeout of the rendezvous and of gloo: far longer than the measurement takes (a guess)."""


def main(nbytes: int, times: int) -> dict[str, float]:
    """CPU seconds of this rank for `times` all_reduces of `nbytes`, by NIC type, after one that is not counted."""
    rank, near = int(os.environ["RANK"]), json.loads(os.environ[INTERFACES])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 3, rank == 0, timeout=PATIENCE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=3, timeout=PATIENCE)
    found, data = {}, torch.zeros(nbytes // 4)
    for kind, ranks in PAIRS.items():
        os.environ[GLOO_INTERFACES] = near[kind][0]
        group = dist.new_group(ranks, timeout=PATIENCE)
        if rank in ranks:
            dist.all_reduce(data, group=group)
            begun = time.process_time()
            for _ in range(times):
                dist.all_reduce(data, group=group)
            found[kind] = time.process_time() - begun
    dist.barrier()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
