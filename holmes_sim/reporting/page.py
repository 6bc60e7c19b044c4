"""A study as one HTML page: its head, its sections, and the style and script that stand in it."""

from __future__ import annotations

import re
from html import escape, unescape
from importlib.resources import files
from string import Template

from holmes_sim.printing import plans
from holmes_sim.reporting.colours import css
from holmes_sim.reporting.markup import number
from holmes_sim.reporting.sections import in_order
from holmes_sim.reporting.study import Study
from sim import __version__
from sim.formats import planfile
from sim.kernels import memory
from sim.units import KIBI

HEIGHT = 760
"""Pixels of the frame in which a notebook shows a page."""


class Page(str):
    """A page: text, to be written as it is. A notebook shows it in a frame of its own, where it can touch nothing else."""

    __slots__ = ()

    def __repr__(self) -> str:
        title = unescape(re.search("<title>(.*?)</title>", self, re.DOTALL).group(1))  # type: ignore[union-attr]
        return f"{title}: a page of {len(self.encode()) / KIBI:,.0f} KiB; hs.write('report.html', page) keeps it"

    def _repr_html_(self) -> str:
        inside = self.replace("<head>", '<head><base href="about:srcdoc">', 1)  # else its own links lead to the notebook
        return (
            f"<p>{escape(repr(self))}</p>"
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(inside)}" title="Report of a plan" width="100%" '
            f'height="{HEIGHT}" style="border:1px solid #BDBDBD"></iframe>'
        )


def page(study: Study) -> Page:
    """The whole page. The same study gives the same bytes."""
    plan = study.plan
    told = [(section, section.html(study)) for section in in_order()]
    told = [(section, inside) for section, inside in told if inside]
    style = css(plan.config.pp, plan.config.vpp) + _file("style.css")
    filled = Template(_file("page.html")).substitute(
        title=escape(f"{plan.workload.model.name} on {plan.topology.name}"),
        style=style,
        heading=escape(plans.heading(plan).plain),
        layout=escape(plans.layout(plan).replace("   (", " (")),
        tiles=_tiles(study),
        links="".join(f'<a href="#{section.NAME}">{escape(section.TITLE)}</a>' for section, _ in told),
        sections="".join(
            f'<section id="{section.NAME}"><h2>{escape(section.TITLE)}</h2>{inside}</section>' for section, inside in told
        ),
        foot=escape(
            f"Plan {planfile.digest(plan)} by strategy {plan.made_by.strategy} (holmes-sim {plan.made_by.version}); "
            f"page by holmes-sim {__version__}. All seconds are simulated."
        ),
        script=_file("pipeline.js"),
    )
    return Page(filled)


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _tiles(study: Study) -> str:
    """The promised numbers, and the fullest memory."""
    peaks, limits = study.prediction.peak_memory_bytes, memory.limits(study.plan)
    place = max(range(len(peaks)), key=lambda place: peaks[place] / limits[place])
    tiles = []
    for name, key, text in plans.promises(study.prediction):
        value, unit, rest = re.fullmatch(r"(\S+)( (?:s|ms|us|J|USD)\b)?(.*)", text).groups("")  # type: ignore[union-attr]
        tiles.append((name, number(f"plan/prediction/{key}", getattr(study.prediction, key), value + unit) + escape(rest)))
    share = peaks[place] / limits[place]
    tiles.append(("fullest memory", number(f"memory/{place}/share", share, f"{share:.1%}") + f" at stage {place}"))
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in tiles)
