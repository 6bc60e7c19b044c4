"""How a plan is to be run; needs no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from sim.plan.plan import Plan
from sim.units import Seconds

HOST = "HOLMES_SIM_HOST"
"""In the environment of a rank: the node of the plan that its host is, `ib/node0`."""
COMPUTE = ("real", "paced")
DEVICES = ("auto", "cpu")
CONNECT: Seconds = 45.0


@dataclass(frozen=True, slots=True)
class Asked:
    """How a plan is to be run: timed steps behind one that is not; whether ranks compute or wait `scale` times the model's
    seconds; where rank 0 writes the timeline; where each rank writes its weights (a folder; for tests). Ranks that compute
    do so on their host's GPUs where there are any, or on its CPUs (`device`). A group must connect within `connect`."""

    steps: int = 3
    compute: str = "real"
    scale: float = 1.0
    output: str = ""
    weights: str = ""
    seed: int = 0
    device: str = "auto"
    connect: Seconds = CONNECT

    def words(self) -> str:
        """As text, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Asked:
        """The inverse of `words`."""
        return cls(**json.loads(text))


def node_of(plan: Plan, rank: int) -> str:
    """The node of a rank, `ib/node0`."""
    device = plan.placement[rank]
    return f"{device.cluster}/node{device.node}"
