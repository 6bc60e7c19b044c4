"""Contents as one HTML page: header, sections, style and script."""

from __future__ import annotations

import re
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
    filled = [(section, section.html(contents)) for section in in_order()]
    shown = [(section, inside) for section, inside in filled if inside]
    style = css(plan.config.pp, plan.config.vpp) + _file("style.css")
    html = Template(_file("page.html")).substitute(
        title=escape(f"{plan.workload.model.name} on {plan.topology.name}"),
        style=style,
        heading=escape(plans.heading(plan).plain),
        layout=escape(plans.layout(plan).replace("   (", " (")),
        tiles=_tiles(contents),
        links="".join(f'<a href="#{section.NAME}">{escape(section.TITLE)}</a>' for section, _ in shown),
        sections="".join(
            f'<section id="{section.NAME}"><h2>{escape(section.TITLE)}</h2>{inside}</section>' for section, inside in shown
        ),
        foot=escape(
            f"Plan {planfile.digest(plan)} by strategy {plan.made_by.strategy} (holmes-sim {plan.made_by.version}); "
            f"page by holmes-sim {__version__}. All times are simulated."
        ),
        script=_file("pipeline.js"),
    )
    return Page(html)


def _file(name: str) -> str:
    """Text of a file of this package."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def _tiles(contents: Contents) -> str:
    """Tiles with the predicted numbers and the highest memory use."""
    peaks, limits = contents.prediction.peak_memory_bytes, memory.limits(contents.plan)
    pp_rank = max(range(len(peaks)), key=lambda pp_rank: peaks[pp_rank] / limits[pp_rank])
    tiles = []
    for name, key, text in plans.prediction_rows(contents.prediction, contents.plan):
        value, unit, rest = re.fullmatch(r"(\S+)( (?:s|ms|us|J|USD)\b)?(.*)", text).groups("")  # type: ignore[union-attr]
        tiles.append((name, number(f"plan/prediction/{key}", getattr(contents.prediction, key), value + unit) + escape(rest)))
    if grade := step_range(contents.prediction.step_s, contents.plan).grade:
        tiles.append(("the prediction", escape(grade)))
    share = peaks[pp_rank] / limits[pp_rank]
    tiles.append(("highest memory use", number(f"memory/{pp_rank}/share", share, f"{share:.1%}") + f" in stage {pp_rank}"))
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in tiles)
