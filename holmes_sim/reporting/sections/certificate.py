"""Section: the certificate of the plan."""

from __future__ import annotations

from html import escape

from holmes_sim.printing import certificates
from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.markup import listing, number, table
from sim.plan.certificate import Certificate
from sim.units import time_text

NAME = "certificate"
TITLE = "Certificate"
ORDER = 70


def html(contents: Contents) -> str:
    """The certificate as a sentence, in numbers, and the searched space; or that there is none."""
    found, at = contents.plan.certificate, "plan/certificate"
    if found is None:
        strategy = escape(contents.plan.made_by.strategy)
        return f"<p>None: strategy {strategy} gives no certificate. Plans of <code>holmes-sim plan</code> have one.</p>"
    sentence = certificates.certificate(contents.plan, found).removeprefix("Certificate: ")
    tiles = [("status", escape(found.status)), ("gap", number(f"{at}/gap", found.gap, f"{found.gap:.1%}"))]
    tiles.append(("this plan's step", number(f"{at}/objective_s", found.objective_s, time_text(found.objective_s))))
    tiles.append(("lower bound", number(f"{at}/lower_bound_s", found.lower_bound_s, time_text(found.lower_bound_s))))
    if found.mixed_lower_bound_s is not None:
        mixed = number(f"{at}/mixed_lower_bound_s", found.mixed_lower_bound_s, time_text(found.mixed_lower_bound_s))
        tiles.append(("with mixed stages", mixed))
    if found.whole_lower_bound_s is not None and (found.mixed_lower_bound_s is not None or found.beside_space):
        whole = number(f"{at}/whole_lower_bound_s", found.whole_lower_bound_s, time_text(found.whole_lower_bound_s))
        tiles.append(("each stage on one cluster", whole))
    if found.unlike_degrees is not None:
        least = found.unlike_degrees.lower_bound_s
        tiles.append(("unlike degrees", number(f"{at}/unlike_degrees/lower_bound_s", least, time_text(float(f"{least:.4g}")))))
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
    return f'<p>{escape(sentence[0].upper() + sentence[1:])}</p><dl class="tiles small">{shown}</dl>' + _space(found)


def _space(found: Certificate) -> str:
    """The axes of the searched space, and what was not searched; empty if the plan file does not contain them."""
    rows = [(escape(axis.name), escape(certificates.values(axis))) for axis in found.space]
    if found.unlike_degrees is not None:
        rows.append(("unlike degrees (bounded apart)", escape(found.unlike_degrees.space)))
    searched = table(("axis", "what"), rows, "Searched", ("axis",)) if rows else ""
    return searched + (f"<p>Not searched:</p>{listing(found.outside)}" if found.outside else "")
