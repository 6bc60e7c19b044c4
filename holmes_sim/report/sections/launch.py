"""How to launch the plan: each target that can express it, and why others cannot."""

from __future__ import annotations

import shlex
from html import escape

from holmes_sim import exporters
from holmes_sim.launching.folder import README, Launch
from holmes_sim.report.markup import code, details, listing, markdown
from holmes_sim.report.study import Study

NAME = "launch"
TITLE = "How to launch"
ORDER = 80


def html(study: Study) -> str:
    """A target a box, and what was assumed of the hosts once."""
    can = [(name, launch) for name, launch in study.launches if isinstance(launch, Launch)]
    cannot = [(name, lines) for name, lines in study.launches if not isinstance(lines, Launch)]
    common = [line for line in (can[0][1].assumed if can else ()) if all(line in launch.assumed for _, launch in can)]
    parts = [_target(study.file, name, launch, common) for name, launch in can]
    if common:
        parts.append(details("Assumed, as the topology does not say it", listing(common)))
    if cannot:
        lines = [line for _, lines in cannot for line in lines]
        parts.append(f"<h3>Targets that cannot express this plan</h3>{listing(lines)}")
    return "".join(parts)


def _target(file: str, name: str, launch: Launch, common: list[str]) -> str:
    title = exporters.get(name).TITLE
    line = f"holmes-sim export {shlex.quote(file)} --to {name} -o launch"
    own = [line for line in launch.assumed if line not in common]
    more = listing([f"Assumed: {line}" for line in own]) if own else ""
    files = f"<p>{len(launch.files)} files, of which <code>{README}</code> says what each is.</p>"
    return f"<h3>{escape(title)}</h3>{code(line)}{details('Then', markdown(launch.how) + more + files)}"
