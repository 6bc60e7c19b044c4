"""Collectives and messages on tensors of a rank's device, with any backend.

Gloo works on copies in host memory; the simulator calls this transport "host staged". NCCL has a native reduce_scatter. Gloo's
moves as many bytes as an all_reduce, so a ring replaces it (`holmes_sim.torch_backend.ring`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import ring
from holmes_sim.torch_backend.backends import GLOO
from holmes_sim.torch_backend.waiting import finish

TAG = 0
"""Tag of the messages of an exchange; those of two ranks match in their order."""
Work = Callable[[], None]
"""A collective to run."""


def all_reduce(value: Tensor, group: dist.ProcessGroup | None, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
    """Reduce `value` over ranks in place; the default operation is the sum."""
    with _host_staged(value, group) as staged:
        dist.all_reduce(staged, operation, group)


def all_gather(whole: Tensor, part: Tensor, group: dist.ProcessGroup | None) -> None:
    """Write the parts of all ranks into `whole`, in rank order. Newer torch renames all_gather_into_tensor to
    all_gather_single; either is used."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    with _host_staged(whole, group) as staged:
        gather(staged, part.to(staged.device), group=group)


def broadcast(value: Tensor, group: dist.ProcessGroup | None, source: int) -> None:
    """Replace `value` by that of rank `source` of the group."""
    with _host_staged(value, group) as staged:
        dist.broadcast(staged, group=group, group_src=source)


def reduce_scatter(part: Tensor, whole: Tensor, group: dist.ProcessGroup) -> None:
    """Write this rank's part of the sum over ranks into `part`. `whole` may be overwritten."""
    if dist.get_backend(group) == GLOO:
        with _host_staged(part, group) as staged:
            ring.reduce_scatter(staged, whole.to(staged.device), group)
        return
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(part, whole, group=group)


def all_to_all(
    received: Tensor,
    sent: Tensor,
    group: dist.ProcessGroup | None,
    received_sizes: list[int] | None = None,
    sent_sizes: list[int] | None = None,
) -> None:
    """Send one part of `sent` to each rank, and write the parts that come from the ranks into `received`, in rank order.

    The sizes of the parts are in rows, the first dimension; without sizes all parts are equal."""
    if group is None or dist.get_backend(group) != GLOO:
        dist.all_to_all_single(received, sent, received_sizes, sent_sizes, group=group)
        return
    with _host_staged(received, group) as staged:
        ranks = group.size()
        parts = staged.split(received_sizes or staged.shape[0] // ranks)
        _exchange_messages(parts, sent.to(staged.device).contiguous().split(sent_sizes or sent.shape[0] // ranks), group)


def _exchange_messages(received: Sequence[Tensor], sent: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Send a part to each rank of a gloo group, all receives posted before the first send.

    A receive tells the sender that its buffer is free, on the connection that also carries the data of the other direction.
    Gloo's own all_to_all sends first, so this notice waits behind the data, and two ranks send one after the other."""
    own, ranks = group.rank(), group.size()
    peers = [(own + index) % ranks for index in range(1, ranks)]
    works = [group.recv([received[peer]], peer, TAG) for peer in reversed(peers) if received[peer].numel()]
    works += [group.send([sent[peer]], peer, TAG) for peer in peers if sent[peer].numel()]
    received[own].copy_(sent[own])
    for work in works:
        finish(work)


def send(value: Tensor, group: dist.ProcessGroup, target: int, tag: int) -> None:
    """Send to a rank of a gloo group; returns when the message has left."""
    finish(group.send([value.cpu()], target, tag))


def receive(buffer: Tensor, group: dist.ProcessGroup, source: int, tag: int) -> Callable[[], None]:
    """Post a receive from a rank of a gloo group into host memory. The returned function waits for the message."""
    return functools.partial(finish, group.recv([buffer], source, tag))


@contextmanager
def _host_staged(value: Tensor, group: dist.ProcessGroup | None) -> Iterator[Tensor]:
    """A tensor that the group can write to: `value` itself, or for gloo a copy in host memory, copied back at the end."""
    if value.device.type == "cpu" or dist.get_backend(group) != GLOO:
        yield value
        return
    staged = value.cpu()
    yield staged
    value.copy_(staged)
