"""Facts of layers, and of experts, that a launch leaves to layers of the user's own."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model


def of_own_layers(config: ParallelConfig, model: Model) -> Iterator[str]:
    """What layers must have beyond equal ones with standard attention, and those with experts, all of them on each rank."""
    if model.special:
        yield f"They have {', '.join(f'{key} {value}' for key, value in model.special.items())}."
    if model.mtp_layers:
        yield f"The last of [embedding, *layers, head] has {model.mtp_layers} layers that predict further tokens."
    if not model.experts:
        return
    yield f"They have {model.experts} experts, all on each rank; a token is routed to {model.experts_per_token}."
    if config.capacity_factor is not None:
        most = f"{config.capacity_factor:g} times the mean" + (", and is padded up to that" if config.pad_to_capacity else "")
        yield f"An expert drops the tokens above {most}: this changes what is trained."
