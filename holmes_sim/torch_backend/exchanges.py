"""What ranks exchange, whatever their group is built with: the tensors of a rank lie on its device.

Gloo is given copies in the host's memory, which the simulator calls staged through the host. NCCL has its own reduce_scatter;
gloo's moves as many bytes as an all_reduce, so that it has a ring instead (`holmes_sim.torch_backend.ring`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import ring
from holmes_sim.torch_backend.backends import GLOO


def all_reduce(value: Tensor, group: dist.ProcessGroup | None, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
    """Sum over ranks, in place; or another operation."""
    with _carried(value, group) as near:
        dist.all_reduce(near, operation, group)


def all_gather(whole: Tensor, part: Tensor, group: dist.ProcessGroup | None) -> None:
    """Put the parts of all ranks into `whole`, in order. torch 2.13 has another name for what was all_gather_into_tensor."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    with _carried(whole, group) as near:
        gather(near, part.to(near.device), group=group)


def reduce_scatter(part: Tensor, whole: Tensor, group: dist.ProcessGroup) -> None:
    """Put this rank's part of the sum over ranks into `part`; `whole` may be written over."""
    if dist.get_backend(group) == GLOO:
        with _carried(part, group) as near:
            ring.reduce_scatter(near, whole.to(near.device), group)
        return
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(part, whole, group=group)


def send(value: Tensor, group: dist.ProcessGroup, to: int, tag: int) -> None:
    """Send to a rank of a gloo group; comes back when it has left."""
    group.send([value.cpu()], to, tag).wait()


def receive(room: Tensor, group: dist.ProcessGroup, of: int, tag: int) -> Callable[[], None]:
    """Ask a rank of a gloo group for a message into host memory; what comes back waits until it has come."""
    work = group.recv([room], of, tag)

    def wait() -> None:
        work.wait()

    return wait


@contextmanager
def _carried(value: Tensor, group: dist.ProcessGroup | None) -> Iterator[Tensor]:
    """A tensor that the group can write: itself, or for gloo a copy in the host's memory that is copied back."""
    if value.device.type == "cpu" or dist.get_backend(group) != GLOO:
        yield value
        return
    near = value.cpu()
    yield near
    value.copy_(near)
