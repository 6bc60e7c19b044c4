"""Samples of sources, nodes that some of them describe, and the clusters that are imported from sources."""

from __future__ import annotations

from pathlib import Path

from holmes_sim.imported import imported
from sim.formats import topology

SAMPLES = Path(__file__).parents[1] / "importers" / "samples"
MI300X = {
    "devices": {"type": "mi300x", "count": 8},
    "intra_node": "infinity-fabric-4",
    "nics": [
        {
            "type": "infiniband",
            "bandwidth": "400 Gbit/s",
            "count": 8,
            "names": ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"],
        }
    ],
}
RTX = {
    "devices": {"type": "rtx-3090", "count": 8},
    "intra_node": "pcie4",
    "nics": [{"type": "infiniband", "bandwidth": "56 Gbit/s", "count": 1, "names": ["mlx5_0"]}],
}
H100 = [f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-{index})" for index in range(8)]


def sample(name: str) -> str:
    """The path of a sample."""
    return str(SAMPLES / name)


def clusters(*sources: str) -> dict[str, object]:
    """The clusters of the topology imported from sources, after a check that the topology can be read."""
    found = imported(sources, "x")
    loaded = topology.from_document(topology.parse("x", found.text()))
    assert loaded.facts() == found.topology
    assert loaded.workload is None
    return found.topology["clusters"]
