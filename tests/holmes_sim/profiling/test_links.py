"""What nccl-tests prints becomes points; points that follow the law of a link give the link back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holmes_sim.profiling import links
from holmes_sim.profiling.links import Link, Point
from sim.errors import HolmesError
from sim.hardware.link_spec import OPERATIONS

NEW = """\
# nccl-tests version 2.17.1 nccl-headers=22800 nccl-library=22800
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 4 minBytes 8 maxBytes 1048576 step: 512(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  11 on     left device  0 [0000:06:00] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid  11 on     left device  1 [0000:09:00] NVIDIA A100-SXM4-80GB
#  Rank  2 Group  0 Pid  11 on     left device  2 [0000:0c:00] NVIDIA A100-SXM4-80GB
#  Rank  3 Group  0 Pid  11 on     left device  3 [0000:0f:00] NVIDIA A100-SXM4-80GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     9.10    0.00    0.00      0     9.00    0.00    0.00      0
           8             2     float     sum      -1    24.50    0.00    0.00      0    24.43    0.00    0.00      0
     1048576        262144     float     sum      -1   250.25    4.19    6.29    N/A   251.00    4.18    6.27      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 3.14
"""
OLD = """\
[1,0]<stdout>:# Using devices
[1,0]<stdout>:#   Rank  0 Pid   1320 on host-a device  0 [0x00] Tesla V100-SXM2-16GB
[1,0]<stdout>:#   Rank  1 Pid   2066 on host-b device  0 [0x00] Tesla V100-SXM2-16GB
[1,0]<stdout>:#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
[1,0]<stdout>:  1310720000     327680000     float     sum   1166400    1.12    1.12  0e+00   1166123    1.12    1.12  0e+00
"""


def test_a_table_of_today_gives_its_out_of_place_times() -> None:
    found = links.parse(NEW, "runs/node.txt")
    assert found.points == (Point("all_reduce", 4, 8.0, 24.5e-6), Point("all_reduce", 4, 1048576.0, 250.25e-6))
    assert (found.source, found.hosts, found.devices) == ("node.txt", 1, ("NVIDIA A100-SXM4-80GB",))


def test_a_table_without_root_behind_mpirun_tags_is_named_by_its_file() -> None:
    found = links.parse(OLD, "v100_all_reduce.log")
    assert found.points == (Point("all_reduce", 2, 1310720000.0, 1166400 * 1e-6),)
    assert found.hosts == 2


def test_a_report_in_json_is_the_same_measurement_as_its_table() -> None:
    processes = [{"hostname": "left", "device_info": "NVIDIA A100-SXM4-80GB"} for _ in range(2)]
    config = {"nthreads": 1, "ngpus": 2, "devices": processes}
    rows = [(0, 9.1), (8, 24.5), (1048576, 250.25)]
    results: list[dict[str, object]] = [
        {"size": size, "out_of_place": {"time": time}, "in_place": {"time": 1}} for size, time in rows
    ]
    results.append({"size": 8, "out_of_place": None, "in_place": {"time": 1.0}, "experiment_name": "AllReduce"})
    report = {"args": ["./all_reduce_perf", "-J", "x"], "nccl_version": 22800, "config": config, "results": results}
    assert links.parse(json.dumps(report), "runs/node.txt") == links.parse(NEW, "runs/node.txt")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("hello", "a.txt", r"a.txt: lists 0 ranks, but a link joins two or more"),
        (OLD, "run.log", r"run.log: does not say which collective ran; name the file after it \(all_gather, all_reduce"),
        (OLD, "all_gather-all_reduce.log", r"names all_gather and all_reduce; give each operation its own file"),
        (OLD.split("[1,0]<stdout>:  131")[0], "all_reduce.log", r"contains no measurement; rows of size, count"),
    ],
)
def test_what_is_no_such_table_is_reported(text: str, name: str, message: str) -> None:
    with pytest.raises(HolmesError, match=message):
        links.parse(text, name)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HolmesError, match="no such file"):
        links.read(tmp_path / "all_reduce.txt")


@pytest.mark.parametrize(
    ("operation", "steps", "through"),
    [("all_reduce", 6, 1500.0), ("all_gather", 3, 750.0), ("reduce_scatter", 3, 750.0), ("all_to_all", 3, 750.0),
     ("send_recv", 1, 1000.0)],
)  # fmt: skip
def test_steps_and_bus_bytes_of_four_ranks(operation: str, steps: int, through: float) -> None:
    point = Point(operation, 4, 1000.0, 1.0)
    assert (point.steps, point.through) == (steps, through)


def points(rates: dict[str, float], ranks: tuple[int, ...], overhead: float, latency: float) -> list[Point]:
    """Measurements of a link that keeps the law to the letter."""
    found = []
    for operation, rate in rates.items():
        for n in ranks:
            for nbytes in (4.0**power for power in range(2, 16)):
                blank = Point(operation, n, nbytes, 1.0)
                found.append(Point(operation, n, nbytes, overhead + blank.steps * latency + blank.through / rate))
    return found


def test_a_link_that_keeps_the_law_is_found_again() -> None:
    link = links.fit(points({"all_reduce": 2e11, "all_gather": 1.5e11}, (2, 4, 8), 10e-6, 2e-6))
    assert link.separable
    assert link.overhead == pytest.approx(10e-6, rel=0.02)
    assert link.latency == pytest.approx(2e-6, rel=0.02)
    assert link.rates == pytest.approx({"all_reduce": 2e11, "all_gather": 1.5e11}, rel=0.02)
    assert link.error < 0.02
    guessed = dict.fromkeys(OPERATIONS, 0.75) | {"all_reduce": 1.0}
    assert link.efficiency == pytest.approx(guessed, rel=0.02)


def test_one_number_of_ranks_does_not_separate_overhead_from_latency() -> None:
    link = links.fit(points({"all_reduce": 1e10}, (2,), 9e-6, 3e-6))
    assert not link.separable
    assert link.overhead == link.latency == pytest.approx(5e-6, rel=0.01)


def test_large_payloads_alone_keep_their_rate() -> None:
    """256 MiB and 1 GiB: the smaller one has its own bytes, and is no overhead."""
    law = [point for point in points({"all_reduce": 1e10}, (2,), 9e-6, 3e-6) if point.nbytes > 1e8]
    assert len(law) == 2
    link = links.fit(law)
    assert link.rates["all_reduce"] == pytest.approx(1e10)
    assert link.overhead == link.latency == pytest.approx(5e-6)


def test_one_payload_has_a_rate_and_no_latency() -> None:
    link = links.fit([Point("all_reduce", 2, 134217728.0, 0.0234186)])
    assert link.rates == {"all_reduce": pytest.approx(134217728.0 / 0.0234186)}
    assert (link.overhead, link.latency, link.separable, link.error) == (0.0, 0.0, False, 0.0)


def test_noise_between_payloads_of_one_time_is_no_endless_rate() -> None:
    link = links.fit([Point("send_recv", 2, 1e6, 0.001), Point("send_recv", 2, 2e6, 0.001)])
    assert link.rates == {"send_recv": pytest.approx(4e9)}


def test_nothing_is_not_fitted() -> None:
    with pytest.raises(HolmesError, match="no collective was measured"):
        links.fit([])


def test_a_link_is_as_wide_as_its_fastest_operation() -> None:
    link = Link(1e-6, 1e-6, {"all_reduce": 4.0, "send_recv": 2.0}, 0.0, True)
    assert link.bandwidth == 4.0
    assert link.efficiency == {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "all_to_all": 0.5, "send_recv": 0.5}
