"""The topologies and plans of the page: files of a folder, named by a hash of their content."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from holmes_sim import files
from holmes_sim.intervals import plan_facts
from sim.errors import HolmesError
from sim.formats import documents, planfile
from sim.formats import topology as topologies
from sim.hardware.topology import Topology
from sim.plan.plan import Plan

_DIGEST = re.compile(r"[0-9a-f]{16}")


class Unknown(HolmesError):
    """No topology or plan of this digest is in the folder."""


class Store:
    """Reads and writes `topology-DIGEST.yaml` and `plan-DIGEST.json` in a folder. Equal content has one file."""

    def __init__(self, folder: Path):
        """Create the folder where there is none. Raises HolmesError if it cannot be created."""
        files.folder(folder)
        self.folder = folder

    def keep_topology(self, topology: Topology) -> str:
        """Write a topology; its digest."""
        return self._keep("topology-{}.yaml", documents.to_yaml(topologies.written(topology)))

    def keep_plan(self, plan: Plan) -> str:
        """Write a plan, as `holmes-sim plan -o` does; its digest."""
        return self._keep("plan-{}.json", planfile.to_json(plan, plan_facts(plan)))

    def topology(self, digest: str) -> Topology:
        """Raises Unknown; TopologyError if the file was changed."""
        return topologies.load(self.topology_file(digest))

    def plan(self, digest: str) -> Plan:
        """Raises Unknown; PlanError if the file was changed."""
        return planfile.load(self.plan_file(digest))

    def topology_file(self, digest: str) -> Path:
        """Raises Unknown."""
        return self._file("topology-{}.yaml", digest)

    def plan_file(self, digest: str) -> Path:
        """Raises Unknown."""
        return self._file("plan-{}.json", digest)

    def _keep(self, name: str, text: str) -> str:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = self.folder / name.format(digest)
        if not path.exists():
            files.write(path, text)
        return digest

    def _file(self, name: str, digest: str) -> Path:
        path = self.folder / name.format(digest)
        if not _DIGEST.fullmatch(digest) or not path.is_file():
            raise Unknown(f"{name.format(digest)[:80]} is not in the folder of this server; open its file again")
        return path
