"""Plans that may fill a device to the last byte."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject
from holmes_sim.requirements import written
from sim.formats.documents import KeyPath
from sim.hardware.topology import HEADROOM


def findings(subject: Subject) -> Iterator[Finding]:
    """A finding for each memory head-room of 0 in the file."""
    given: list[tuple[KeyPath, object]] = [
        (("memory_headroom",), subject.topology.memory_headroom),
        (("require", "memory_headroom"), written(subject.topology).get("memory_headroom")),
    ]
    for path, share in given:
        if share == 0:
            yield Finding(
                path,
                "plans may use all memory of a device",
                "predicted memory is a few percent off, so that such a plan may run out of memory",
                f"{HEADROOM:g}, the default; leave the key out",
            )
