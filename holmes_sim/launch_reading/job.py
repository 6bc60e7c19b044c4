"""A training job, as it is read from the files of a launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.workload.model import Model


@dataclass(frozen=True, slots=True)
class Job:
    """A training job without its devices.

    - `target`: name of the launch target whose framework runs it (`holmes_sim.exporters`).
    - `global_batch_size`: sequences of a step; None: as many as a single microbatch of each replica, `local_batch_size`, makes.
    - `config`: arguments of a `sim.plan.parallel_config.ParallelConfig`, without dp and num_microbatches.
    - `layers`: layers of every virtual stage in pipeline order; empty for equal stages.
    - `ends_count`: embedding and loss count as a layer each where layers are divided among stages.
    - `sharded`: ranks of dp x cp that share the optimizer state, 0 for all; `replicated`: blocks of such ranks.
    - `devices`: number of devices that the launch says; 0 if it does not.
    - `not_modelled`: arguments that may change the step time and that the simulation leaves out.
    - `assumed`: what the launch does not say.
    - `optimizer`: a name of `sim.workload.optimizers`."""

    target: str
    model: Model
    global_batch_size: int | None
    seq_len: int
    precision: str
    config: dict[str, Any] = field(default_factory=dict)
    local_batch_size: int = 0
    layers: tuple[int, ...] = ()
    ends_count: bool = False
    sharded: int = 0
    replicated: int = 1
    devices: int = 0
    not_modelled: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    optimizer: str = "adam"
