"""Messages that are compressed between clusters."""

from __future__ import annotations

from collections.abc import Iterator

from sim.compression import NONE
from sim.plan.parallel_config import ParallelConfig


def compressed(config: ParallelConfig) -> Iterator[str]:
    """Compressed messages, for frameworks whose pipelines send activations as they are: all of them."""
    if config.message_compression != NONE and config.pp > 1:
        yield f"message_compression {config.message_compression}: its pipeline sends whole activations and gradients; none"
