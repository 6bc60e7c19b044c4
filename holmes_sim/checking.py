"""Check a topology: everything that the checks find in its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holmes_sim import checks, commands
from holmes_sim.findings import Finding, Subject
from sim.formats.documents import Document, key_text, parse, read_text

FORMAT = "holmes-sim/check/1"


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked topology: its document, and (name of the check, finding) in the order of lines,
    those that concern launches alone last."""

    name: str
    document: Document
    found: tuple[tuple[str, Finding], ...]

    def where(self, finding: Finding) -> str:
        """File, line and key of a finding."""
        return f"{self.document.name}:{self.document.line(finding.path)}: {key_text(finding.path)}"

    def facts(self) -> dict[str, Any]:
        """The result as plain data (format holmes-sim/check/1)."""
        rows = [
            {
                "check": name,
                "line": self.document.line(finding.path),
                "key": key_text(finding.path),
                "odd": finding.odd,
                "means": finding.means,
                "better": finding.better,
            }
            for name, finding in self.found
        ]
        return {"format": FORMAT, "topology": self.name, "file": self.document.name, "findings": rows}


def check(topology: str | Path) -> Checked:
    """Check the topology of a file, or a shipped one by its name. Raises TopologyError if the file is wrong."""
    path = commands.topology_path(topology)
    subject = Subject(commands.load(topology), parse(str(path), read_text(path)))
    found = [(name, finding) for name in checks.names() for finding in checks.get(name).findings(subject)]
    found.sort(key=lambda one: (one[1].for_launch, subject.document.line(one[1].path)))
    return Checked(subject.topology.name, subject.document, tuple(found))
