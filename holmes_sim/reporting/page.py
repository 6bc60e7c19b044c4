"""Contents as one HTML page: header, sections, style and script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape, unescape
from importlib.resources import files
from string import Template

from holmes_sim.intervals import step_range
from holmes_sim.printing import plans
from holmes_sim.reporting.colours import css
from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.markup import number
from holmes_sim.reporting.sections import in_order
from sim import __version__
from sim.formats import planfile
from sim.kernels import memory
from sim.plan.plan import MadeBy
from sim.units import KIBI

HEIGHT = 760
"""Height in pixels of the frame in which a notebook shows a page."""


class Page(str):
    """An HTML page as text. A notebook shows it in a sandboxed frame."""

    __slots__ = ()

    def __repr__(self) -> str:
        title = unescape(re.search("<title>(.*?)</title>", self, re.DOTALL).group(1))  # type: ignore[union-attr]
        return f"{title}: a page of {len(self.encode()) / KIBI:,.0f} KiB; hs.write('report.html', page) saves it"

    def _repr_html_(self) -> str:
        inside = self.replace("<head>", '<head><base href="about:srcdoc">', 1)  # else links open the notebook
        return (
            f"<p>{escape(repr(self))}</p>"
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(inside)}" title="Report of a plan" width="100%" '
            f'height="{HEIGHT}" style="border:1px solid #BDBDBD"></iframe>'
        )


def page(contents: Contents) -> Page:
    """The whole page. Equal contents give equal bytes."""
    plan = contents.plan
    parts = {
        "title": escape(f"{plan.workload.model.name} on {plan.topology.name}"),
        "style": css(plan.config.pp, plan.config.vpp),
        "heading": escape(plans.heading(plan).plain),
        "layout": escape(plans.layout(plan).replace("   (", " (")),
        "tiles": _tiles(contents),
        "lead": "",
        "foot": escape(f"Plan {planfile.digest(plan)} by {made_by(plan.made_by)}"),
        "script": script(),
    }
    return assembled(parts, [(section.NAME, section.TITLE, section.html(contents)) for section in in_order()])


def assembled(parts: Mapping[str, str], sections: Iterable[tuple[str, str, str]]) -> Page:
    """A page from its parts as HTML, and (anchor, title, content) of its sections; those without content are left out."""
    shown = [(name, escape(title), inside) for name, title, inside in sections if inside]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in shown)
    bodies = "".join(f'<section id="{name}"><h2>{title}</h2>{inside}</section>' for name, title, inside in shown)
    more = {"style": parts["style"] + _file("style.css"), "links": links, "sections": bodies}
    return Page(Template(_file("page.html")).substitute({**parts, **more}))


def script() -> str:
    """The script of the timeline of a step."""
    return f"<script>\n{_file('pipeline.js')}\n</script>"


def made_by(maker: MadeBy) -> str:
    """What made a plan and the page, for the foot of the page."""
    return f"strategy {maker.strategy} (holmes-sim {maker.version}); page by holmes-sim {__version__}. All times are simulated."


def tiles(named: Iterable[tuple[str, str]]) -> str:
    """Tiles, each with a name and a value as HTML."""
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in named)


def _file(name: str) -> str:
    """Text of a file of this package."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def _tiles(contents: Contents) -> str:
    """Tiles with the predicted numbers and the highest memory use."""
    peaks, limits = contents.prediction.peak_memory_bytes, memory.limits(contents.plan)
    pp_rank = max(range(len(peaks)), key=lambda pp_rank: peaks[pp_rank] / limits[pp_rank])
    found = []
    for name, key, text in plans.prediction_rows(contents.prediction, contents.plan):
        value, unit, rest = re.fullmatch(r"(\S+)( (?:s|ms|us|J|USD)\b)?(.*)", text).groups("")  # type: ignore[union-attr]
        found.append((name, number(f"plan/prediction/{key}", getattr(contents.prediction, key), value + unit) + escape(rest)))
    if grade := step_range(contents.prediction.step_s, contents.plan).grade:
        found.append(("the prediction", escape(grade)))
    share = peaks[pp_rank] / limits[pp_rank]
    found.append(("highest memory use", number(f"memory/{pp_rank}/share", share, f"{share:.1%}") + f" in stage {pp_rank}"))
    return tiles(found)
