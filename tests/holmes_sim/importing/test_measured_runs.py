"""Efficiencies and bandwidths out of runs of nccl-tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from holmes_sim.imported import imported
from tests.holmes_sim.importing.sources import SAMPLES, clusters, sample


def test_a_run_between_hosts_gives_the_efficiency_of_nics(put):
    """From the difference of the largest and the smallest payload: 9 GiB among 16 ranks in 111,812 us - 11,774 us."""
    node = put(
        "n.xml", (SAMPLES / "nccl_topology-mi300x.xml").read_text().replace("0x1002", "0x10de").replace("0x74b5", "0x20b0")
    )
    node = put("n.xml", Path(node).read_text().replace("xgmi", "nvlink").replace('count="1"', 'count="12"'))
    text = sample("nccl_tests-a100-all_reduce.txt")
    found = imported([node, text], "x").topology["clusters"]["cluster"]
    moved, taken = 2 * 15 / 16 * (10737418240 - 1073741824), 111812e-6 - 11774e-6
    assert found["nodes"] == 2
    assert found["node"]["nics"][0]["efficiency"] == pytest.approx(moved / taken / 400e9, abs=6e-4)
    assert imported([node, sample("nccl_tests-a100.json")], "x").topology["clusters"]["cluster"] == found


def test_a_run_inside_a_node_gives_its_interconnect(put):
    rows = [(1024, 20.0), (1 << 30, 10000.0)]
    table = "# nccl-tests version 2.17\n# Collective test starting: all_gather_perf\n"
    table += "".join(f"#  Rank  {rank} Group  0 Pid  1 on here device  {rank} [0x0{rank}] NVIDIA L40S\n" for rank in range(4))
    table += "".join(
        f"  {size}  {size // 4}  float  none  -1  {time}  1.0  1.0  0  {time}  1.0  1.0  0\n" for size, time in rows
    )
    given = clusters(put("run.txt", table))["cluster"]["node"]
    assert given["devices"] == {"type": "l40s", "count": 4}
    assert given["intra_node"]["bandwidth"] == "80.69 GB/s"
    assert given["intra_node"]["efficiency"]["all_gather"] == 1.0


def run_of(operation: str, seconds: float, ranks: int = 4) -> str:
    """Output of a run between two hosts: one byte in no time, 1,000 MB in `seconds`."""
    text = f"# Collective test starting: {operation}_perf\n"
    for at in range(ranks):
        text += f"#  Rank  {at} Pid  1 on pod-{at * 2 // ranks} device  {at} [0x0{at}] NVIDIA H100 80GB HBM3\n"
    rows = ((1, 1e-3), (1000000000, seconds * 1e6))
    return text + "".join(f"  {size}  1  float  none  -1  {time}  1  1  0  {time}  1  1  0\n" for size, time in rows)


def nodes_of(put, count: int) -> str:
    """The path of a NCCL topology file with `count` InfiniBand NICs of 400 Gbit/s."""
    nets = "".join(f'<net name="mlx5_{at}" speed="400000" port="1"/>' for at in range(count))
    return put("nics.xml", f'<system version="1"><pci class="0x020700">{nets}</pci></system>')


def test_the_median_efficiency_of_several_operations_is_taken(put, h100):
    """Bytes through a port: 1.5 GB of an all_reduce, 0.75 GB of the others; the NICs carry 100 GB/s."""
    runs = [put(f"{name}.txt", run_of(name, seconds)) for name, seconds in
            (("all_reduce", 1.5 / 90), ("all_gather", 0.75 / 60), ("reduce_scatter", 0.75 / 50))]  # fmt: skip
    given = clusters(h100, nodes_of(put, 2), *runs)["cluster"]["node"]
    assert given["nics"][0]["efficiency"] == 0.6
    assert given["devices"] == {"type": "h100-sxm5-80gb", "count": 8}


def test_an_efficiency_above_one_is_taken_as_one(put, h100):
    found = imported([h100, nodes_of(put, 2), put("all_reduce.txt", run_of("all_reduce", 1.5 / 130))], "x")
    assert found.topology["clusters"]["cluster"]["node"]["nics"][0]["efficiency"] == 1.0
    assert any("efficiency 1, not 1.3: busbw counts a ring's bytes" in line for line in found.assumed)


def test_the_devices_of_a_run_are_taken_for_those_of_a_node(put):
    found = imported([nodes_of(put, 2), put("all_reduce.txt", run_of("all_reduce", 1.5 / 90))], "x")
    assert found.topology["clusters"]["cluster"]["node"]["devices"] == {"type": "h100-sxm5-80gb", "count": 2}
    assert any("a node has no more than the 2 devices that the run of" in line for line in found.assumed)
