"""Fits the parameters of a link to measured collectives: latency, overhead, bandwidth, and efficiency by operation.

A measurement is (operation, ranks, bytes, seconds). The fit uses the simulator's own formula of a ring
(`sim.hardware.link_spec.LinkSpec`): overhead + steps x latency + bytes through a port / (bandwidth x efficiency). nccl-tests
and rccl-tests print such measurements (NVIDIA/nccl-tests, doc/PERFORMANCE.md: size, time, algbw, busbw, out of place first), as
a table or, with -J, as JSON (src/util.cu of 0fdb00a).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import HolmesError
from sim.formats.documents import Document, parse_json, read_text
from sim.hardware.link_spec import OPERATIONS
from sim.units import MICRO, Bytes, BytesPerSecond, Seconds

PROGRAMS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all",
    "all_to_all": "all_to_all", "sendrecv": "send_recv", "send_recv": "send_recv",
}  # fmt: skip
"""Name of a program of nccl-tests, without `_perf` -> operation."""
_TAGGED = re.compile(r"^\s*\[[\d,]+\]<std\w+>:", re.MULTILINE)
"""Prefix that `mpirun --tag-output` adds to each line."""
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+(?:-1\s+)?([\d.]+)\s+[\d.]+\s+[\d.]+\s", re.MULTILINE)
"""Columns: size, count, type, redop, root (absent before 2022; -1 for programs without one), time, algbw, busbw."""
_RANK = re.compile(r"^\s*#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s*(.*?)\s*$", re.MULTILINE)
_PROGRAM = re.compile(rf"({'|'.join(PROGRAMS)})_perf")
_NAMED = re.compile(rf"(?<![a-z])({'|'.join(PROGRAMS)})(?![a-z])")


@dataclass(frozen=True, slots=True)
class Point:
    """One measured collective of `ranks` ranks. `nbytes` is its payload as in nccl-tests: of a gather or scatter, the whole."""

    operation: str
    ranks: int
    nbytes: Bytes
    seconds: Seconds

    @property
    def steps(self) -> int:
        """Number of consecutive messages in a ring."""
        return {"all_reduce": 2 * (self.ranks - 1), "send_recv": 1}.get(self.operation, self.ranks - 1)

    @property
    def through(self) -> Bytes:
        """Bytes through each port (bus bytes of nccl-tests): 2 (n - 1) / n of the payload for all_reduce, all of it for
        send_recv."""
        if self.operation == "send_recv":
            return self.nbytes
        return self.steps * self.nbytes / self.ranks


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """Output of one nccl-tests program or probe: number of hosts, device names, and (`placed`) the host of each rank."""

    source: str
    points: tuple[Point, ...]
    hosts: int
    devices: tuple[str, ...]
    placed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A fitted link: `rates` for large payloads by operation; `error` is the mean of |fit / measured - 1|; `separable` says
    whether latency and overhead could be fitted separately."""

    latency: Seconds
    overhead: Seconds
    rates: dict[str, BytesPerSecond]
    error: float
    separable: bool

    @property
    def bandwidth(self) -> BytesPerSecond:
        """Rate of the fastest operation."""
        return max(self.rates.values())

    @property
    def efficiency(self) -> dict[str, float]:
        """Share of the bandwidth by operation. Unmeasured operations get the lowest share of the others, a guess."""
        least = min(self.rates.values())
        return {name: self.rates.get(name, least) / self.bandwidth for name in OPERATIONS}


def read(path: str | Path) -> LinkMeasurement:
    """Read the output of a program of nccl-tests. Raises HolmesError where the file is malformed or lacks the operation."""
    return parse(read_text(path, HolmesError), str(path))


def parse(text: str, name: str) -> LinkMeasurement:
    """Out-of-place times of a table or JSON report of nccl-tests. Raises HolmesError, which names the file."""
    if text.lstrip().startswith("{"):
        return _report(parse_json(name, text))
    untagged = _TAGGED.sub("", text)
    ranks = {match[1]: (match[2], match[3]) for match in _RANK.finditer(untagged)}
    rows = [(float(match[1]), float(match[2])) for match in _ROW.finditer(untagged)]
    return _measured(name, untagged, list(ranks.values()), rows)


def _report(document: Document) -> LinkMeasurement:
    """Read the JSON that -J writes. Rows whose out-of-place part is null belong to in-place programs and are skipped.

    The config lists only the first device of each process (src/util.cu, parseRankInfo); its other devices are assumed equal.
    """
    value: dict[str, Any] = document.value if isinstance(document.value, dict) else {}
    try:
        config = value["config"]
        each = int(config.get("nthreads", 1)) * int(config.get("ngpus", 1))
        first = [(str(row["hostname"]), str(row["device_info"])) for row in config["devices"]]
        ranks = [rank for rank in first for _ in range(each)]
        timed = [(row, row["out_of_place"]) for row in value["results"] if row.get("out_of_place")]
        rows = [(float(row["size"]), float(own["time"] if "time" in own else own["cpu_time"])) for row, own in timed]
        text = " ".join(map(str, [*value.get("args", []), *(row.get("experiment_name", "") for row, _ in timed)]))
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        lacks = "config.devices with hostname and device_info, results with size and out_of_place.time are expected"
        raise HolmesError(f"{document.name}:1: is not a report of nccl-tests -J ({fault}); {lacks}") from None
    return _measured(document.name, text, ranks, rows)


def _measured(name: str, text: str, ranks: list[tuple[str, str]], rows: list[tuple[float, float]]) -> LinkMeasurement:
    """A measurement from rows of (size, microseconds) and (host, device) of each rank; `text` names the program."""
    if len(ranks) < 2:
        lines = "lines such as '#  Rank  0 Group  0 Pid 9 on host device  0 [0x07] NVIDIA A100' are expected"
        raise HolmesError(f"{name}: lists {len(ranks)} ranks, but a link joins two or more; {lines}")
    operation = _operation(text, name)
    found = [Point(operation, len(ranks), size, time * MICRO) for size, time in rows if size > 0 and time > 0]
    if not found:
        raise HolmesError(f"{name}: contains no measurement; rows of size, count, type, redop, root, time are expected")
    placed = tuple(host for host, _ in ranks)
    labels = dict.fromkeys(device for _, device in ranks)
    return LinkMeasurement(Path(name).name, tuple(found), len(set(placed)), tuple(labels), placed)


def _operation(text: str, name: str) -> str:
    """The operation, from the program's name in the text, else from the file name. Raises HolmesError."""
    for pattern, where in ((_PROGRAM, text), (_NAMED, Path(name).name)):
        found = sorted({PROGRAMS[match[1]] for match in pattern.finditer(where)})
        if len(found) > 1:
            raise HolmesError(f"{name}: names {' and '.join(found)}; give each operation its own file")
        if found:
            return found[0]
    known = ", ".join(sorted(set(PROGRAMS.values())))
    raise HolmesError(f"{name}: does not say which collective ran; name the file after it ({known})")


def fit(points: Sequence[Point]) -> Link:
    """Fit a link.

    The rate of an operation comes from the payload and time that the largest quarter of payloads has beyond the smallest
    quarter; overhead and latency from the rest. With payloads of a single size both are 0. A rate is at most twice payload /
    time, because payloads with nearly equal times would give an unbounded rate. Overhead and latency can be separated only if
    collectives with different numbers of steps were measured; otherwise both get the same value, a guess. Raises HolmesError
    without any measurement.
    """
    if not points:
        raise HolmesError("no collective was measured")
    fixed: list[tuple[int, Seconds]] = []
    rates: dict[str, BytesPerSecond] = {}
    for operation in dict.fromkeys(point.operation for point in points):
        own = [point for point in points if point.operation == operation]
        slopes = []
        for ranks in dict.fromkeys(point.ranks for point in own):
            same_ranks = sorted((point for point in own if point.ranks == ranks), key=lambda point: point.nbytes)
            few = max(len(same_ranks) // 4, 1)
            start = statistics.median(point.through for point in same_ranks[:few])
            first = statistics.median(point.seconds for point in same_ranks[:few])
            slopes.append(statistics.median(_rate(point, start, first) for point in same_ranks[-few:]))
            fixed.append((same_ranks[0].steps, max(first - start / slopes[-1], 0.0) if same_ranks[-1].through > start else 0.0))
        rates[operation] = statistics.median(slopes)
    overhead, latency, separable = _line(fixed)
    fitted = [overhead + point.steps * latency + point.through / rates[point.operation] for point in points]
    error = statistics.fmean(abs(ours / point.seconds - 1) for ours, point in zip(fitted, points, strict=True))
    return Link(latency, overhead, rates, error, separable)


def _rate(point: Point, start: Bytes, first: Seconds) -> BytesPerSecond:
    """Bytes per second of the payload beyond `start` bytes, which took `first` seconds."""
    rate = point.through / point.seconds
    if point.through <= start:
        return rate
    more = max(point.seconds - first, 0.0)
    return 2 * rate if (point.through - start) > 2 * rate * more else (point.through - start) / more


def _line(fixed: list[tuple[int, Seconds]]) -> tuple[Seconds, Seconds, bool]:
    """(overhead, latency, whether they were separable), a least-squares fit of overhead + steps x latency."""
    if len({steps for steps, _ in fixed}) > 1:
        slope, start = statistics.linear_regression([steps for steps, _ in fixed], [seconds for _, seconds in fixed])
        if slope > 0 and start > 0:
            return start, slope, True
    each = statistics.median(seconds / (steps + 1) for steps, seconds in fixed)
    return each, each, False
