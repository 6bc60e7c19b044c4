"""The values and the reducer of a rank that trains, for a sync strategy."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.communication import all_reduce
from holmes_sim.torch_backend.compressors import codec
from holmes_sim.torch_backend.islands.links import Link
from holmes_sim.torch_backend.islands.reducers import Gathered, LowRankMean, Reducer, RingMean
from holmes_sim.torch_backend.islands.training_values import TrainingValues
from holmes_sim.torch_backend.training_worker import TrainingWorker
from sim import compression
from sim.compression.powersgd import NAME as POWERSGD
from sim.compression.powersgd import rank_of
from sim.errors import NotSupported
from sim.sync import Sync


def training_values(worker: TrainingWorker, sync: Sync) -> TrainingValues:
    """The values of a rank, cut as the compressor needs them."""
    return TrainingValues(worker, whole=compression.get(sync.compression).NAME == POWERSGD)


def reducer_of(
    sync: Sync, links: list[Link], groups: list[dist.ProcessGroup], weight: float, inside: dist.ProcessGroup | None = None
) -> Reducer:
    """How the values of the links become one. `weight`: the share of this island; `inside`: all ranks of this island, which
    another aggregation than the mean needs. Raises NotSupported."""
    found = codec(sync.compression)
    if found is None:
        return LowRankMean(groups, [_shapes(link) for link in links], rank_of(sync.compression.partition("=")[2]), weight)
    if not sync.gathers:
        return RingMean(groups, found, weight)
    feeds_back = compression.get(sync.compression).FEEDBACK
    return Gathered(groups, found, weight, feeds_back, sync.aggregation, _total(inside))


def _shapes(link: Link) -> list[tuple[int, ...]]:
    """The shapes of the weights of a link. Raises NotSupported where it has parts of weights only."""
    for cell in link.cells:
        if cell.stop - cell.start != math.prod(cell.shape):
            raise NotSupported(
                f"powersgd needs whole matrices, but ranks own values {cell.start} to {cell.stop} of {cell.key} (zero_stage 0)"
            )
    return [cell.shape for cell in link.cells]


def _total(inside: dist.ProcessGroup | None) -> Callable[[Tensor], Tensor]:
    def total(value: Tensor) -> Tensor:
        if inside is not None and inside.size() > 1:
            all_reduce(value, inside)
        return value

    return total
