"""Check NCCL on one GPU: its version, and a group on a named network, as the groups of plans across fabrics have.

`python -m holmes_sim.torch_backend.nccl_check` sums a tensor in a group of one rank and prints one line.
"""

from __future__ import annotations

import sys
import tempfile

import torch
import torch.distributed as dist

from holmes_sim.torch_backend.backends import NCCL
from holmes_sim.torch_backend.groups import nccl_options

NETWORK = "Socket"
"""Network of the group. Every NCCL has this one (`NCCL_NET`)."""


def main() -> None:
    """Run the check; raises RuntimeError where NCCL refuses."""
    torch.cuda.set_device(0)
    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group(
            NCCL, init_method=f"file://{file.name}.store", rank=0, world_size=1, pg_options=nccl_options(NETWORK)
        )
        value = torch.ones(1024, device="cuda")
        dist.all_reduce(value)
        total = float(value.sum())
        dist.destroy_process_group()
    if total != 1024:
        raise RuntimeError(f"a sum of 1024 ones over one rank is {total:g}")
    version = ".".join(map(str, torch.cuda.nccl.version()))
    sys.stdout.write(f"NCCL {version}, a group of one rank on network {NETWORK}\n")


if __name__ == "__main__":
    main()
