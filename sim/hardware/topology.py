"""A topology: a named fleet with its source and the workload to train on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sim import markup
from sim.hardware.cluster import Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.stack import DEFAULT, Stack
from sim.units import Bytes, rate_text
from sim.workload.workload import Workload

HEADROOM = 0.08
"""Share of a device's memory that plans leave free unless the topology file says otherwise; a guess. Of 43 layouts of
nanotron's sweep that were predicted to need 92 to 100 % of the memory, 30 failed (docs/model.md, errors of memory)."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Content of a topology file. `document` is the file as JSON text, without the workload.

    `fleet` has the rates that a step reaches with the software `stack`. `memory_headroom` is the share of a device's memory
    that plans leave free."""

    name: str
    source: str
    fleet: Fleet
    workload: Workload | None
    document: str
    stack: Stack = DEFAULT
    memory_headroom: float = 0.0

    def room(self, device: DeviceSpec) -> Bytes:
        """Bytes of a device that a plan may use: all but the head-room."""
        return device.memory * (1.0 - self.memory_headroom)

    def __repr__(self) -> str:
        nodes = ", ".join(f"{c.name} {c.num_hosts} x {c.node.host.count} {c.node.device.name}" for c in self.fleet.clusters)
        work = self.workload
        work_text = (
            f"; {work.model.name}, batch {work.global_batch_size} x {work.seq_len} tokens {work.precision}" if work else ""
        )
        return f"{self.name}: {nodes}{work_text}"

    def _repr_html_(self) -> str:
        return markup.table(
            repr(self),
            [
                {
                    "cluster": cluster.name,
                    "nodes": cluster.num_hosts,
                    "devices of a node": f"{cluster.node.host.count} x {cluster.node.device.name}",
                    "inside": cluster.node.inside,
                    "NICs of a node": ", ".join(
                        f"{nic.count} x {nic.kind} {rate_text(nic.bandwidth)}" for nic in cluster.node.host.nics
                    ),
                }
                for cluster in self.fleet.clusters
            ],
        )

    def facts(self) -> dict[str, Any]:
        """The document as plain data, as written to plan.json."""
        data: dict[str, Any] = json.loads(self.document)
        return data
