"""Section: how to launch the plan with each target that can express it, and why others cannot."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from html import escape

from holmes_sim import exporters
from holmes_sim.launching.folder import README
from holmes_sim.reporting.contents import Contents, LaunchTarget
from holmes_sim.reporting.markup import code, details, listing, markdown

NAME = "launch"
TITLE = "How to launch"
ORDER = 80


def html(contents: Contents) -> str:
    """For each target a command line and its next steps; assumptions; reasons why targets refuse the plan."""
    parts = [_target(contents.file, target) for target in contents.targets if not target.refused]
    if contents.assumed:
        parts.append(details("Assumptions about hosts (not in the topology)", listing(contents.assumed)))
    return "".join(parts) + refusals(contents.targets)


def refusals(targets: Iterable[LaunchTarget]) -> str:
    """Why targets refuse a plan; empty if none does."""
    lines = [line for target in targets for line in target.refused]
    return f"<h3>Targets that cannot express this plan</h3>{listing(lines)}" if lines else ""


def _target(file: str, target: LaunchTarget) -> str:
    """Title, command line, next steps and assumptions of a target."""
    return f"<h3>{escape(exporters.get(target.name).TITLE)}</h3>{how(file, target)}"


def how(file: str, target: LaunchTarget) -> str:
    """Command line, next steps and assumptions of a target."""
    line = f"holmes-sim export {shlex.quote(file)} --to {target.name} -o launch"
    more = listing([f"Assumed: {line}" for line in target.assumed]) if target.assumed else ""
    files = f"<p><code>launch/{README}</code> says how to launch, and what each file is.</p>"
    then = details("Next steps", markdown(target.how) + more + files) if target.how else files
    return f"{code(line)}{then}"
