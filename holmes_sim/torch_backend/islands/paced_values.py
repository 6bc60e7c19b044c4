"""The parameters of a rank that emulates compute: zeros, in the number that the simulator says
(`sim.islands.parameter_shares`).

Their codes have the bytes of the compressor and no meaning, and what handles them sleeps for the modelled seconds."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.islands.collectives import gather, ring_sum
from holmes_sim.torch_backend.islands.links import Cell
from holmes_sim.torch_backend.islands.outer_updates import MeanOfWeights
from sim.islands.exchange import ExchangeCost
from sim.islands.parameter_shares import parts
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.sync import get
from sim.units import Seconds


class PacedValues:
    """Values of a rank of an island: its part of the interval of all parameters."""

    def __init__(self, plan: Plan, rank: int):
        total = plan.workload.trained_parameters
        mine = [(round(part.begin * total), round(part.end * total)) for part in parts(plan) if part.rank == rank]
        self.cells = [Cell("model", start, stop) for start, stop in mine]
        self.zeros = torch.zeros(sum(stop - start for start, stop in mine))

    def weights(self) -> Tensor:
        """Zeros."""
        return self.zeros

    gradients = weights

    def set_weights(self, values: Tensor) -> None:
        """Nothing is kept."""

    set_gradients = set_weights


class Sized:
    """Code of the right number of bytes, of zeros."""

    def __init__(self, bytes_per_value: float):
        self.bytes_per_value = bytes_per_value

    def nbytes(self, count: int) -> int:
        """Bytes of so many values."""
        return round(self.bytes_per_value * count)

    def encode(self, values: Tensor) -> Tensor:
        """Zeros."""
        return torch.zeros(self.nbytes(values.numel()), dtype=torch.uint8)

    def decode(self, code: Tensor, count: int) -> Tensor:
        """Zeros."""
        return torch.zeros(count)


class PacedUpdate(MeanOfWeights):
    """An outer update that takes the modelled seconds, `seconds_each` for each parameter, and changes nothing."""

    def __init__(self, seconds_each: Seconds, weights: Tensor, overlaps: bool):
        super().__init__(weights[:0], overlaps)
        self.seconds = seconds_each * weights.numel()

    def outer_gradient(self, now: Tensor) -> Tensor:
        """Zeros."""
        return now

    def step(self, mean: Tensor) -> None:
        """Sleep for the seconds of the update."""
        time.sleep(self.seconds)

    def finish(self, now: Tensor) -> Tensor:
        """Zeros."""
        return now


class PacedReducer:
    """Sends the bytes of an exchange, and takes at least the seconds in which the model's hosts compress and decompress."""

    def __init__(self, plan: IslandsPlan, groups: list[dist.ProcessGroup], cost: ExchangeCost, scale: float):
        self.gathers, self.groups = plan.sync.gathers, groups
        self.codec = Sized(plan.sync.bytes_per_parameter(plan.workload.model))
        gradients = get(plan.sync.strategy).SENDS == "gradients"
        self.update = cost.update * scale if gradients else 0.0  # else `PacedUpdate` takes these seconds
        self.handling: list[Seconds] = [exchange.share * cost.handling * scale for exchange in plan.sync.exchanges]

    def reduce(self, values: list[Tensor], fragment: int) -> list[Tensor]:
        """Zeros."""
        until = time.perf_counter() + self.handling[fragment]
        for one, group in zip(values, self.groups, strict=True):
            if self.gathers:
                gather(one, self.codec, group)
            else:
                ring_sum(one, self.codec, group)
        time.sleep(max(until - time.perf_counter(), 0.0) + self.update)
        return values
