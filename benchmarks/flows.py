"""One rank of `benchmarks.lab`: runs raw gloo over the lab's interfaces and measures its seconds.

`python -m benchmarks.flows CASES RANKS`. CASES is a JSON list of cases with `operation`, `nic`, `groups` (lists of ranks that
run the operation at the same time), `nbytes` and `times`; RANKS is the number of ranks that take part in any case. Prints a
JSON list of this rank's seconds in each case, null for cases in which it takes no part.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

PATIENCE = timedelta(seconds=300)
"""Timeout of the store and of gloo: far longer than any case takes (a guess)."""


def main(cases: list[dict[str, Any]], world: int) -> list[float | None]:
    """Run all cases, each started by all ranks at the same time; seconds of this rank by case."""
    rank = int(os.environ["RANK"])
    near = json.loads(os.environ["HOLMES_SIM_INTERFACES"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0, timeout=PATIENCE)

    def wait_for_all(name: str) -> None:
        if store.add(name, 1) == world:
            store.set(f"{name} done", "")
        store.wait([f"{name} done"])

    found: list[float | None] = []
    for number, case in enumerate(cases):
        mine = next((group for group in case["groups"] if rank in group), None)
        if mine is not None:
            options = dist.ProcessGroupGloo._Options()
            options._devices = [dist.ProcessGroupGloo.create_device(interface=name) for name in near[case["nic"]]]
            options._timeout = PATIENCE
            prefix = dist.PrefixStore(f"{number} {mine}", store)
            group = dist.ProcessGroupGloo(prefix, mine.index(rank), len(mine), options)
            data = torch.zeros(case["nbytes"] // 4)
            run(group, case["operation"], data[: 1024 * len(mine)])
        wait_for_all(f"{number} begins")
        begun = time.perf_counter()
        for _ in range(case["times"] if mine is not None else 0):
            run(group, case["operation"], data)
        found.append(None if mine is None else time.perf_counter() - begun)
        wait_for_all(f"{number} ends")
    return found


def run(group: dist.ProcessGroupGloo, operation: str, data: torch.Tensor) -> None:
    """Run one operation and wait for its end."""
    if operation == "all_reduce":
        group.allreduce([data]).wait()
    elif operation == "all_gather":
        group._allgather_base(data, data[: data.numel() // group.size()].clone()).wait()
    elif operation == "reduce_scatter":
        group._reduce_scatter_base(data[: data.numel() // group.size()].clone(), data).wait()
    elif group.rank() == 0:
        group.send([data], 1, 0).wait()
    else:
        group.recv([data], 0, 0).wait()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]), int(sys.argv[2]))))
