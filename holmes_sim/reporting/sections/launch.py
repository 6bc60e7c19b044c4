"""How to launch the plan: each target that can express it, and why others cannot."""

from __future__ import annotations

import shlex
from html import escape

from holmes_sim import exporters
from holmes_sim.launching.folder import README
from holmes_sim.reporting.markup import code, details, listing, markdown
from holmes_sim.reporting.study import Study, Way

NAME = "launch"
TITLE = "How to launch"
ORDER = 80


def html(study: Study) -> str:
    """A line to type for each target, how it goes on, why others refuse, and what was assumed of the hosts."""
    parts = [_target(study.file, way) for way in study.ways if not way.refused]
    if study.assumed:
        parts.append(details("Assumed, as the topology does not say it", listing(study.assumed)))
    refused = [line for way in study.ways for line in way.refused]
    if refused:
        parts.append(f"<h3>Targets that cannot express this plan</h3>{listing(refused)}")
    return "".join(parts)


def _target(file: str, way: Way) -> str:
    line = f"holmes-sim export {shlex.quote(file)} --to {way.target} -o launch"
    more = listing([f"Assumed: {line}" for line in way.assumed]) if way.assumed else ""
    files = f"<p><code>launch/{README}</code> says how to launch, and what each file is.</p>"
    then = details("Then", markdown(way.how) + more + files) if way.how else files
    return f"<h3>{escape(exporters.get(way.target).TITLE)}</h3>{code(line)}{then}"
