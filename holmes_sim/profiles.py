"""Profiling as people ask for it: a device with models, links by what nccl-tests printed or by a probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holmes_sim import running
from holmes_sim.profiling import entry, links
from holmes_sim.profiling.found import Device, Found, Joined
from sim.errors import HolmesError
from sim.workload.model import Model


def numbers(text: str, option: str) -> tuple[int, ...]:
    """`1,2,4` as numbers in rising order. Raises HolmesError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise HolmesError(f"{option} {text!r}: numbers of 1 or more are expected, such as 1,2,4")
    return tuple(sorted({int(part) for part in parts}))


def measure_links(
    name: str | None, nccl_tests: Sequence[Path], probe: int | None, progress: Callable[[str], None] = lambda text: None
) -> Joined | None:
    """The link that printed measurements of nccl-tests and a probe among `probe` processes give; None without either.

    Raises HolmesError."""
    read = [links.read(path) for path in nccl_tests]
    if probe is not None:
        running.needs_torch()
        from holmes_sim.profiling.probe import probe as measured

        progress(f"collectives among {probe} processes")
        read.append(measured(probe))
    if not read:
        return None
    if len({one.hosts > 1 for one in read}) > 1:
        raise HolmesError("some of the measurements are inside a host, some between hosts; a link is one or the other")
    points = [point for one in read for point in one.points]
    return Joined(f"{name}-link" if name else "link", links.fit(points), tuple(read))


def measure_device(
    models: Sequence[Model],
    seq_len: int,
    sizes: Sequence[int],
    degrees: Sequence[int],
    precision: str | None,
    name: str | None,
    progress: Callable[[str], None] = lambda text: None,
) -> Device:
    """The device at hand, with the seconds of the layers of each model. Raises HolmesError."""
    running.needs_torch()
    from holmes_sim.profiling import session

    return session.device(models, seq_len, sizes, degrees, precision, name, progress)


def files(found: Found) -> dict[str, str]:
    """File name -> text."""
    return entry.files(found)


def facts(found: Found) -> dict[str, Any]:
    """What `holmes-sim profile --json` prints: the files as plain data."""
    told: dict[str, Any] = {}
    if (device := found.device) is not None:
        told["device"] = entry.device_facts(device)
        told["profile"] = entry.profile_facts(device) if device.layers else None
    if (joined := found.joined) is not None:
        told["link"] = entry.nic_facts(joined) if joined.across else entry.link_facts(joined)
    return told
