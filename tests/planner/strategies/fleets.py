"""Small fleets on which every strategy is tested."""

from __future__ import annotations

from planner.request import Request, Wishes
from sim.hardware.cluster import Cluster, Trunk
from sim.hardware.device_spec import DeviceSpec
from tests import builders as make
from tests.planner.builders import request

FEW = Wishes(microbatch_size=1, recompute="none")
"""A tenth of the shapes."""
FAST, SLOW = make.device("fast", 1e12, 1e11), make.device("slow", 4e11, 1e11)


def cluster(name: str, nodes: int, devices: int, spec: DeviceSpec, rdma: str | None) -> Cluster:
    """Nodes joined by Ethernet and, unless it is None, by an RDMA NIC of ten times its bandwidth."""
    nics = ((make.nic(rdma, 1e10, latency=5e-6),) if rdma else ()) + (make.nic("ethernet", 1e9, latency=2e-5),)
    return make.cluster(name, nodes, devices, nics, spec, make.wire(bandwidth=5e10))


FLEETS = {
    "alike": (cluster("a", 2, 4, FAST, "infiniband"),),
    "two speeds": (cluster("a", 1, 4, FAST, "infiniband"), cluster("b", 1, 4, SLOW, "infiniband")),
    "infiniband and roce": (cluster("a", 2, 2, FAST, "infiniband"), cluster("b", 2, 2, FAST, "roce")),
    "three clusters": (
        cluster("a", 1, 2, FAST, "infiniband"), cluster("b", 1, 2, SLOW, "roce"), cluster("c", 1, 2, FAST, None),
    ),
    "odd numbers": (cluster("a", 3, 2, FAST, "infiniband"), cluster("b", 1, 3, SLOW, "roce")),
}  # fmt: skip


def on(name: str, wishes: Wishes | None = None) -> Request:
    """A request on a fleet of `FLEETS`: 12 layers, 24 samples."""
    clusters = FLEETS[name]
    trunks = tuple(Trunk((a.name, b.name), "ethernet", 1e9, 5e-5) for i, a in enumerate(clusters) for b in clusters[i + 1 :])
    return request(make.fleet(*clusters, trunks=trunks), make.model(12, 768), 24, wishes, seq_len=256)
