"""The parameters and gradients of a training rank that it exchanges with other islands, as vectors.

A rank exchanges the shards whose optimizer state it owns. Where several ranks of an island own the same shard (data-parallel
ranks without ZeRO, or the copies of `zero_shard_size`), each exchanges a part of it and broadcasts the result to the others. A
tied word embedding is exchanged by the first stage alone, which passes the result on to the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import communication
from holmes_sim.torch_backend.buckets import Segment
from holmes_sim.torch_backend.experts import ExpertLayer
from holmes_sim.torch_backend.groups import of_kind
from holmes_sim.torch_backend.islands.links import Cell
from holmes_sim.torch_backend.training_worker import TrainingWorker

COPY = "copy"
"""Kind of cells of which every tensor-parallel rank has a copy."""


class _Owned(NamedTuple):
    """A segment and the cuts of this rank's shard among the ranks that own it, too: rank i of `owners` exchanges values
    `cuts[i]` to `cuts[i + 1]` of the shard."""

    segment: Segment
    cuts: list[int]
    owners: dist.ProcessGroup | None

    @property
    def own(self) -> slice:
        """What this rank exchanges of the shard."""
        index = self.owners.rank() if self.owners is not None else 0
        return slice(self.cuts[index], self.cuts[index + 1])


class TrainingValues:
    """Values of a rank that trains. `cells` names them in order. `whole`: weights are not cut in parts among ranks that own the
    same shard, since the compressor needs whole matrices."""

    def __init__(self, worker: TrainingWorker, whole: bool = False):
        self.worker = worker
        self.weights_of = _by_segment(worker)
        self.tied = [s for s in worker.optimizer.segments if s.sharing.tied]
        self.follows = bool(self.tied) and worker.pp_rank > 0  # the last stage has its tied weight from the first
        self.owned = [self._owned(s, whole) for s in worker.optimizer.segments if not (s.sharing.tied and self.follows)]
        by_segment = [list(self._cells(one)) for one in self.owned]
        self.cells = [cell for cells in by_segment for cell in cells]
        self.sizes = [sum(cell.stop - cell.start for cell in cells) for cells in by_segment]

    def _owned(self, segment: Segment, whole: bool) -> _Owned:
        groups, kind = self.worker.groups, segment.sharing.group
        owners = groups.get("copies") if kind == "dp" else None
        if owners is None and segment.shards == 1:
            owners = groups.get(kind)
        width = segment.padded // segment.shards
        ranks = owners.size() if owners is not None else 1
        cuts = [width * index // ranks for index in range(ranks + 1)]
        if whole and ranks > 1:
            ends = [stop for _, _, stop in self.weights_of[id(segment)]]
            cuts = [0, *(min(ends, key=lambda end: abs(end - cut)) for cut in cuts[1:-1]), width]
        return _Owned(segment, cuts, owners)

    def _cells(self, one: _Owned) -> Iterator[Cell]:
        """The weights within the range of this rank."""
        segment, first = one.segment, one.segment.padded // one.segment.shards * _shard(one.segment)
        low, high = first + one.own.start, first + one.own.stop
        for (key, shape), start, stop in self.weights_of[id(segment)]:
            begin, end = max(start, low), min(stop, high)
            if begin < end:
                yield Cell(key, begin - start, end - start, shape, COPY if segment.sharing.replicated else "")

    def _read(self, of: Callable[[Segment], Tensor]) -> Tensor:
        parts = []
        for one, size in zip(self.owned, self.sizes, strict=True):
            parts.append(of(one.segment)[one.own][:size].detach().to("cpu", torch.float32))
        return torch.cat(parts) if parts else torch.zeros(0)

    def _write(self, values: Tensor, of: Callable[[Segment], Tensor]) -> None:
        for one, part in zip(self.owned, values.split(self.sizes), strict=True):
            whole = of(one.segment)
            whole[one.own][: part.numel()].copy_(part)
            for index in range(one.owners.size() if one.owners is not None else 0):
                if (piece := whole[one.cuts[index] : one.cuts[index + 1]]).numel():
                    communication.broadcast(piece, one.owners, index)
        for segment in self.tied if self.worker.config.pp > 1 else ():
            whole = of(segment)
            groups, shards = of_kind(self.worker.groups, "embedding"), self.worker.config.tied_shards
            whole.copy_(segment.sum_over_tied(torch.zeros_like(whole) if self.follows else whole, groups, shards))

    def weights(self) -> Tensor:
        """The weights, fp32 in host memory."""
        return self._read(lambda segment: segment.master.data)

    def set_weights(self, values: Tensor) -> None:
        """Replace the weights. All ranks of the island must call it together."""
        self._write(values, lambda segment: segment.master.data)
        for segment in self.worker.optimizer.segments:
            segment.own.copy_(segment.master.data)

    def gradients(self) -> Tensor:
        """The gradients of the step, reduced over the island."""
        return self._read(_reduced)

    def set_gradients(self, values: Tensor) -> None:
        """Replace the reduced gradients. All ranks of the island must call it together."""
        self._write(values, _reduced)


def _reduced(segment: Segment) -> Tensor:
    assert segment.reduced is not None
    return segment.reduced


def _shard(segment: Segment) -> int:
    """Index of this rank's shard of a segment."""
    return segment.shard if segment.shards > 1 else 0


def _by_segment(worker: TrainingWorker) -> dict[int, list[tuple[tuple[str, tuple[int, ...]], int, int]]]:
    """Id of a segment -> ((key, shape), start, stop) of its weights in the flat buffer, in order; frozen ones have none."""
    buffers = {s.flat.untyped_storage().data_ptr(): id(s) for s in worker.optimizer.segments}
    found: dict[int, dict[int, tuple[tuple[str, tuple[int, ...]], int, int]]] = {name: {} for name in buffers.values()}
    own = worker.parallel.rank
    for stage in worker.stages.values():
        for block in stage.blocks:
            for name, weight in ((name, weight) for name, weight in block.named_parameters() if weight.requires_grad):
                full = f"{block.name}.{name} of tp {own}"
                if isinstance(block, ExpertLayer) and name in block.routed:
                    mesh = block.mesh
                    full = f"{block.name}.{name} of ep {mesh.rank} and etp {mesh.slices.rank}"
                start = int(weight.storage_offset())
                held = found[buffers[weight.untyped_storage().data_ptr()]]
                held.setdefault(start, ((full, tuple(weight.shape)), start, start + weight.numel()))
    return {name: [held[start] for start in sorted(held)] for name, held in found.items()}
