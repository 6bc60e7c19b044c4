"""Change: an output head with weights of its own, where the model shares those of the embedding."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """A head of its own. It is another model: with more weights, and without the sum of the gradients of both ends."""
    if topology.workload is not None and topology.workload.model.tied_embeddings:
        yield Change("an output head of its own, not tied (another model)", (("workload.model.tied_embeddings", False),))
