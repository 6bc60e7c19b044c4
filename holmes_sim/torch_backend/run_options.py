"""Options of a run on real processes. This module does not need torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from holmes_sim.launching.hosts import Placed
from holmes_sim.launching.torchrun_run import NODE
from sim.units import Seconds

HOST = NODE
"""Environment variable of a rank: the node of the plan that its host represents, for example `ib/node0`."""
COMPUTE = ("real", "paced")
DEVICES = ("auto", "cpu")
CONNECT: Seconds = 45.0
"""Default limit for connecting a process group. A guess."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    - `steps`: number of timed steps; one untimed step precedes them.
    - `compute`: "real" trains the model; "paced" sleeps for `scale` times the seconds of the device model.
    - `output`: file to which rank 0 writes the timeline; empty for none.
    - `weights`: folder to which each rank writes its weights and Adam's first moments, for tests; empty for none.
    - `device`: "auto" computes on the GPUs of the host where it has any, else on its CPUs; "cpu" always on the CPUs.
    - `connect`: seconds within which a process group must connect.
    """

    steps: int = 3
    compute: str = "real"
    scale: float = 1.0
    output: str = ""
    weights: str = ""
    seed: int = 0
    device: str = "auto"
    connect: Seconds = CONNECT

    def to_json(self) -> str:
        """The options as JSON text, to pass to another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RunOptions:
        """Options from the text that `to_json` wrote."""
        return cls(**json.loads(text))


def node_of(plan: Placed, rank: int) -> str:
    """Name of the node of a rank, for example `ib/node0`."""
    device = plan.placement[rank]
    return f"{device.cluster}/node{device.node}"


def host_of(plan: Placed, rank: int) -> str:
    """Name of the host of a rank: its node, and its number in the node if that is an NVLink domain of several hosts."""
    cluster = plan.fleet.cluster(plan.placement[rank].cluster)
    number, _ = cluster.on_host(plan.placement[rank])
    return node_of(plan, rank) + (f"/host{number % cluster.node.hosts}" if cluster.node.hosts > 1 else "")
