"""Profile a device with models, and a link from nccl-tests output or a probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holmes_sim import running
from holmes_sim.profiling import entry, links
from holmes_sim.profiling.results import DeviceProfile, LinkProfile, ProfileResult
from sim.errors import HolmesError
from sim.workload.model import Model

FORMAT = "holmes-sim/profile-result/1"


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Parse `1,2,4` into distinct positive integers in rising order; errors name `option`. Raises HolmesError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise HolmesError(f"{option} {text!r}: expected positive integers, such as 1,2,4")
    return tuple(sorted({int(part) for part in parts}))


def measure_links(
    name: str | None, nccl_tests: Sequence[Path], probe: int | None, progress: Callable[[str], None] = lambda text: None
) -> LinkProfile | None:
    """Fit a link to nccl-tests output files and to a probe with `probe` processes; None if neither is given.

    Raises HolmesError."""
    read = [links.read(path) for path in nccl_tests]
    if probe is not None:
        running.needs_torch()
        from holmes_sim.profiling.probe import probe as measured

        progress(f"collectives between {probe} processes")
        read.append(measured(probe))
    if not read:
        return None
    if len({one.hosts > 1 for one in read}) > 1:
        raise HolmesError("some measurements are inside a host and some between hosts; give only one of the two for a link")
    points = [point for one in read for point in one.points]
    return LinkProfile(f"{name}-link" if name else "link", links.fit(points), tuple(read))


def measure_device(
    models: Sequence[Model],
    seq_len: int,
    sizes: Sequence[int],
    degrees: Sequence[int],
    precision: str | None,
    name: str | None,
    progress: Callable[[str], None] = lambda text: None,
) -> DeviceProfile:
    """Measure a device of this machine, with the seconds of the layers of each model. Raises HolmesError.

    `sizes` are microbatch sizes, `degrees` tensor-parallel degrees.
    """
    running.needs_torch()
    from holmes_sim.profiling import session

    return session.device(models, seq_len, sizes, degrees, precision, name, progress)


def files(found: ProfileResult) -> dict[str, str]:
    """Text of each file by file name."""
    return entry.files(found)


def facts(found: ProfileResult) -> dict[str, Any]:
    """The files as plain data (format holmes-sim/profile-result/1), as `holmes-sim profile --json` prints them."""
    data: dict[str, Any] = {"format": FORMAT}
    if (device := found.device) is not None:
        data["device"] = entry.device_facts(device)
        data["profile"] = entry.profile_facts(device) if device.layers else None
    if (joined := found.link_profile) is not None:
        data["link"] = entry.nic_facts(joined) if joined.across else entry.link_facts(joined)
    return data
