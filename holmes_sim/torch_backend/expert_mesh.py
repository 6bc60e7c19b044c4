"""The ranks that divide the routed experts of a layer, and the exchange of tokens among them, with its backward pass.

ep ranks divide the experts, etp ranks divide each expert (`sim.plan.expert_parallelism` numbers them). Every rank routes tokens
of its own: those of its replica, with sequence parallelism its slice of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.communication import all_gather, all_to_all
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.plan.parallel_config import ParallelConfig

RunTimed: TypeAlias = Callable[[str, str, float, Callable[[], None]], None]
"""Runs a collective inside a layer, so that it can be timed: (kind of group, name, bytes, function that executes it)."""


@dataclass(slots=True)
class ExpertMesh:
    """The ranks that hold each routed expert once.

    - `group`, `rank`, `ranks`: the ep ranks, among which tokens travel to their experts.
    - `slices`: the etp ranks, over which the weights of every expert are sharded: the tensor-parallel ranks where etp is tp.
    - `run_timed`: runs every exchange among ep ranks, given its name, bytes and function, so that it can be timed.
    """

    group: dist.ProcessGroup | None = None
    rank: int = 0
    ranks: int = 1
    slices: TensorParallel = field(default_factory=TensorParallel)
    run_timed: Callable[[str, float, Callable[[], None]], None] = lambda name, nbytes, do: do()

    @property
    def gathers(self) -> bool:
        """Whether etp ranks hold different tokens, which they gather before the products of an expert."""
        return self.slices.ranks > 1 and self.slices.sequence

    def exchange_sizes(self, counts: Tensor) -> Tensor:
        """Number of tokens that ranks send to this rank's experts, in host memory: (etp rank, ep rank, expert of this rank). An
        etp rank's entries are the tokens that the etp rank receives, which it then shares.

        counts: number of this rank's tokens for each expert of the model."""
        received, slices = counts.clone(), self.slices
        every = counts.new_empty((slices.ranks if self.gathers else 1) * counts.numel())

        def work() -> None:
            if self.ranks > 1:
                all_to_all(received, counts, self.group)
            if self.gathers:
                all_gather(every, received, slices.group)
            else:
                every.copy_(received)

        if self.ranks > 1:
            self.run_timed("sizes", counts.nbytes, work)
        elif self.gathers:
            slices.run_timed("sizes", every.nbytes, work)
        else:
            work()
        return every.view(-1, self.ranks, counts.numel() // self.ranks).cpu()

    def all_to_all(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Rows that the ep ranks send to this one, `received[r]` of them from rank r, where it sends `sent[r]` of its own."""
        found = rows.new_empty((sum(received), *rows.shape[1:]))
        source = rows.contiguous()
        self.run_timed("all_to_all", source.nbytes, lambda: all_to_all(found, source, self.group, received, sent))
        return found


def mesh_of(
    config: ParallelConfig, own: int, groups: Mapping[str, dist.ProcessGroup], parallel: TensorParallel, run_timed: RunTimed
) -> ExpertMesh:
    """The expert mesh of a rank. `config` is that of its stage, `own` its number among the ranks of the stage."""
    width = config.expert_tp
    slices = parallel
    if config.etp is not None:
        timed = partial(run_timed, "etp")
        slices = TensorParallel(groups.get("etp"), own % width, width, True, timed, device=parallel.device)
    return ExpertMesh(groups.get("ep"), own // width % config.ep, config.ep, slices, partial(run_timed, "ep"))


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int], mesh: ExpertMesh) -> Tensor:
        ctx.sent, ctx.received, ctx.mesh = sent, received, mesh
        return mesh.all_to_all(rows, sent, received)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.mesh.all_to_all(grad, ctx.received, ctx.sent), None, None, None


def exchange(rows: Tensor, sent: list[int], received: list[int], mesh: ExpertMesh) -> Tensor:
    """Send rows to the ep ranks and receive theirs (`ExpertMesh.all_to_all`); the backward sends gradients the other way."""
    if mesh.ranks == 1:
        return rows
    found: Tensor = _Exchange.apply(rows, sent, received, mesh)  # type: ignore[no-untyped-call]
    return found
