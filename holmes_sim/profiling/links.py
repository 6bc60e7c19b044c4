"""Collectives that were measured -> what a link is: latency, overhead, bandwidth, and the share of it by operation.

A measurement is (operation, ranks, bytes, seconds). The fit is the simulator's own law of a ring
(`sim.hardware.link_spec.LinkSpec`): overhead + steps x latency + bytes through a port / (bandwidth x efficiency). nccl-tests
and rccl-tests write such measurements (NVIDIA/nccl-tests, doc/PERFORMANCE.md: size, time, algbw, busbw, out of place first),
as a table or, with -J, as JSON (src/util.cu of 0fdb00a).
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
"""What `mpirun --tag-output` puts before each line."""
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+(?:-1\s+)?([\d.]+)\s+[\d.]+\s+[\d.]+\s", re.MULTILINE)
"""size, count, type, redop, root (absent before 2022; -1 in what has none), time, algbw, busbw."""
_RANK = re.compile(r"^\s*#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s*(.*?)\s*$", re.MULTILINE)
_PROGRAM = re.compile(rf"({'|'.join(PROGRAMS)})_perf")
_NAMED = re.compile(rf"(?<![a-z])({'|'.join(PROGRAMS)})(?![a-z])")


@dataclass(frozen=True, slots=True)
class Point:
    """A collective of `ranks` ranks: `nbytes` are its payload (of a gather or scatter the whole), as in nccl-tests."""

    operation: str
    ranks: int
    nbytes: Bytes
    seconds: Seconds

    @property
    def steps(self) -> int:
        """Messages that follow one another in a ring."""
        return {"all_reduce": 2 * (self.ranks - 1), "send_recv": 1}.get(self.operation, self.ranks - 1)

    @property
    def through(self) -> Bytes:
        """Bytes through each port (the bus bytes of nccl-tests): 2 (n - 1) / n of an all_reduce, all of a message."""
        if self.operation == "send_recv":
            return self.nbytes
        return self.steps * self.nbytes / self.ranks


@dataclass(frozen=True, slots=True)
class Measured:
    """What one program wrote, or one probe found: where its ranks stood, and on what; `placed` is the host of each rank."""

    source: str
    points: tuple[Point, ...]
    hosts: int
    devices: tuple[str, ...]
    placed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A fitted link: `rates` of large payloads by operation; `error` is the mean of |fit / measured - 1| over all points."""

    latency: Seconds
    overhead: Seconds
    rates: dict[str, BytesPerSecond]
    error: float
    told_apart: bool

    @property
    def bandwidth(self) -> BytesPerSecond:
        """The fastest operation's rate."""
        return max(self.rates.values())

    @property
    def efficiency(self) -> dict[str, float]:
        """Share of the bandwidth by operation; one that was not measured has the least of the others, a guess."""
        least = min(self.rates.values())
        return {name: self.rates.get(name, least) / self.bandwidth for name in OPERATIONS}


def read(path: str | Path) -> Measured:
    """What a program of nccl-tests wrote. Raises HolmesError where it is not that, or does not say what ran."""
    return parse(read_text(path, HolmesError), str(path))


def parse(text: str, name: str) -> Measured:
    """The out-of-place times of a table or a JSON report of nccl-tests. Raises HolmesError, naming the file."""
    if text.lstrip().startswith("{"):
        return _report(parse_json(name, text))
    plain = _TAGGED.sub("", text)
    ranks = {match[1]: (match[2], match[3]) for match in _RANK.finditer(plain)}
    rows = [(float(match[1]), float(match[2])) for match in _ROW.finditer(plain)]
    return _measured(name, plain, list(ranks.values()), rows)


def _report(document: Document) -> Measured:
    """What -J writes; rows whose out-of-place part is null are of in-place programs, and are passed over.

    Its config names the first device of each process alone (src/util.cu, parseRankInfo): the others are taken for alike."""
    value: dict[str, Any] = document.value if isinstance(document.value, dict) else {}
    try:
        config = value["config"]
        each = int(config.get("nthreads", 1)) * int(config.get("ngpus", 1))
        first = [(str(row["hostname"]), str(row["device_info"])) for row in config["devices"]]
        ranks = [rank for rank in first for _ in range(each)]
        timed = [(row, row["out_of_place"]) for row in value["results"] if row.get("out_of_place")]
        rows = [(float(row["size"]), float(own["time"] if "time" in own else own["cpu_time"])) for row, own in timed]
        told = " ".join(map(str, [*value.get("args", []), *(row.get("experiment_name", "") for row, _ in timed)]))
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        lacks = "config.devices with hostname and device_info, results with size and out_of_place.time are expected"
        raise HolmesError(f"{document.name}:1: no report of nccl-tests -J ({fault}); {lacks}") from None
    return _measured(document.name, told, ranks, rows)


def _measured(name: str, told: str, ranks: list[tuple[str, str]], rows: list[tuple[float, float]]) -> Measured:
    """Rows of (size, microseconds) of ranks with (host, device); `told` names the program."""
    if len(ranks) < 2:
        lines = "lines such as '#  Rank  0 Group  0 Pid 9 on host device  0 [0x07] NVIDIA A100' are expected"
        raise HolmesError(f"{name}: tells of {len(ranks)} ranks, a link joins two or more; {lines}")
    operation = _operation(told, name)
    found = [Point(operation, len(ranks), size, time * MICRO) for size, time in rows if size > 0 and time > 0]
    if not found:
        raise HolmesError(f"{name}: no measurement in it; rows of size, count, type, redop, root, time are expected")
    placed = tuple(host for host, _ in ranks)
    labels = dict.fromkeys(device for _, device in ranks)
    return Measured(Path(name).name, tuple(found), len(set(placed)), tuple(labels), placed)


def _operation(text: str, name: str) -> str:
    """What ran: told by the program's name in the text, else by the file's name. Raises HolmesError."""
    for pattern, where in ((_PROGRAM, text), (_NAMED, Path(name).name)):
        found = sorted({PROGRAMS[match[1]] for match in pattern.finditer(where)})
        if len(found) > 1:
            raise HolmesError(f"{name}: tells of {' and '.join(found)}; give each a file of its own")
        if found:
            return found[0]
    known = ", ".join(sorted(set(PROGRAMS.values())))
    raise HolmesError(f"{name}: does not say which collective ran; name the file after it ({known})")


def fit(points: Sequence[Point]) -> Link:
    """Rates from what the largest quarter of payloads has and takes more than the smallest; overhead and latency are the rest.

    Payloads of one size tell neither: both are 0 then. A rate is at most twice what the payload alone shows, lest payloads of
    nearly one time make it endless. Overhead and latency can be told apart only where collectives of different numbers of steps
    were measured; else they share what there is evenly, as guesses. Raises HolmesError where nothing is left to fit.
    """
    if not points:
        raise HolmesError("no collective was measured")
    fixed: list[tuple[int, Seconds]] = []
    rates: dict[str, BytesPerSecond] = {}
    for operation in dict.fromkeys(point.operation for point in points):
        own = [point for point in points if point.operation == operation]
        slopes = []
        for ranks in dict.fromkeys(point.ranks for point in own):
            alike = sorted((point for point in own if point.ranks == ranks), key=lambda point: point.nbytes)
            few = max(len(alike) // 4, 1)
            start = statistics.median(point.through for point in alike[:few])
            first = statistics.median(point.seconds for point in alike[:few])
            slopes.append(statistics.median(_rate(point, start, first) for point in alike[-few:]))
            fixed.append((alike[0].steps, max(first - start / slopes[-1], 0.0) if alike[-1].through > start else 0.0))
        rates[operation] = statistics.median(slopes)
    overhead, latency, told_apart = _line(fixed)
    fitted = [overhead + point.steps * latency + point.through / rates[point.operation] for point in points]
    error = statistics.fmean(abs(ours / point.seconds - 1) for ours, point in zip(fitted, points, strict=True))
    return Link(latency, overhead, rates, error, told_apart)


def _rate(point: Point, start: Bytes, first: Seconds) -> BytesPerSecond:
    """Bytes a second beyond `start` bytes, which took `first` seconds."""
    plain = point.through / point.seconds
    if point.through <= start:
        return plain
    more = max(point.seconds - first, 0.0)
    return 2 * plain if (point.through - start) > 2 * plain * more else (point.through - start) / more


def _line(fixed: list[tuple[int, Seconds]]) -> tuple[Seconds, Seconds, bool]:
    """(overhead, latency, whether they were told apart) of overhead + steps x latency, by least squares."""
    if len({steps for steps, _ in fixed}) > 1:
        slope, start = statistics.linear_regression([steps for steps, _ in fixed], [seconds for _, seconds in fixed])
        if slope > 0 and start > 0:
            return start, slope, True
    each = statistics.median(seconds / (steps + 1) for steps, seconds in fixed)
    return each, each, False
