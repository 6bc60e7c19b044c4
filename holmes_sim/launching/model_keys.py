"""Models that the exports cannot write."""

from __future__ import annotations

from collections.abc import Iterator

from sim.workload.workload import Workload


def special(workload: Workload) -> Iterator[str]:
    """Layers that differ, latent attention, windows, and layers that predict further tokens: frameworks may have them, but the
    exports do not write their keys."""
    if found := workload.model.special:
        words = ", ".join(f"{key} {value}" for key, value in found.items())
        yield f"model {workload.model.name}: the export does not write {words}; a model of equal layers without them"
