"""Facts of experts that a launch leaves to layers of the user's own."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model


def of_own_layers(config: ParallelConfig, model: Model) -> Iterator[str]:
    """What layers with experts, all of them on each rank, must have; nothing for dense ones."""
    if not model.experts:
        return
    yield f"They have {model.experts} experts, all on each rank; a token is routed to {model.experts_per_token}."
    if config.capacity_factor is not None:
        most = f"{config.capacity_factor:g} times the mean" + (", and is padded up to that" if config.pad_to_capacity else "")
        yield f"An expert drops the tokens above {most}: this changes what is trained."
