"""The page as HTML: a state (topology, plan, plan beside it) and the search that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from holmes_sim import commands
from holmes_sim.reporting.colours import css
from holmes_sim.reporting.drawing import Drawing, figure
from holmes_sim.reporting.sections.placement import legend
from holmes_sim.serving import numbers
from holmes_sim.serving.controls import WORKLOAD, controls
from holmes_sim.serving.search import Search
from holmes_sim.serving.store import Store
from sim import __version__
from sim.plan.plan import Plan
from sim.units import time_text

TIME_LIMIT, LONGEST = 20, 3600
"""Seconds of a search unless the page says otherwise, and the most that it takes. Both are chosen."""
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True)
class State:
    """What an address shows: digests of the topology and of up to two plans, and the name of a search; empty for none."""

    topology: str
    plan: str = ""
    beside: str = ""
    search: str = ""

    def address(self, action: str = "") -> str:
        """The address of the page, or of an action on it."""
        query = {key: value for key in ("plan", "beside", "search") if (value := getattr(self, key))}
        return f"/t/{self.topology}{f'/{action}' if action else ''}" + (f"?{urlencode(query)}" if query else "")


@dataclass(frozen=True, slots=True)
class Column:
    """A plan of the page. `origin` is the digest of its topology."""

    title: str
    digest: str
    plan: Plan
    origin: str
    stages: Markup


def style() -> str:
    """The style of the report page, and what this page adds to it."""
    report = files("holmes_sim.reporting") / "style.css"
    return report.read_text(encoding="utf-8") + (files(__package__) / "serve.css").read_text(encoding="utf-8")


def script() -> str:
    """The script of the page."""
    return (files(__package__) / "serve.js").read_text(encoding="utf-8")


def html(store: Store, state: State, search: Search | None, error: str = "") -> str:
    """The page of a state. `search`: the search of the state while it runs; `error`: lines that say what went wrong.

    Raises Unknown if the state has a digest that the store does not know."""
    shown = store.topology(state.topology)
    columns = _columns(store, state)
    own = columns[0].plan if columns and columns[0].origin == state.topology else None
    groups = controls(shown)
    fields = TEMPLATES.get_template("controls.html")
    drawing = Drawing(
        shown.fleet, own, "topology", 0, lambda path: fields.render(controls=groups[path], name=path.removeprefix("clusters."))
    )
    return TEMPLATES.get_template("page.html").render(
        state=state,
        name=shown.name,
        source=shown.source,
        colours=Markup(css(max((column.plan.config.pp for column in columns), default=1), 1)),
        drawing=Markup(figure(drawing) + (legend(own) if own else "")),
        workload=Markup(fields.render(controls=groups[WORKLOAD], name=WORKLOAD)),
        columns=columns,
        parts=numbers.parts([column.plan for column in columns]) if columns else (),
        verdict=numbers.verdict(columns[0].plan, columns[1].plan) if len(columns) > 1 else "",
        links=_links(state),
        search=search,
        status=status(search) if search else None,
        time_limit=f"{search.time_limit:g}" if search else str(TIME_LIMIT),
        longest=LONGEST,
        errors=error.splitlines(),
        shipped=commands.shipped_topologies(),
        version=__version__,
    )


def _columns(store: Store, state: State) -> tuple[Column, ...]:
    """The plan, and the plan beside it if that is another one."""
    named = {"Plan": state.plan, "Kept beside": "" if state.beside == state.plan else state.beside}
    found = []
    for title, digest in named.items():
        if digest:
            plan = store.plan(digest)
            stages = Markup(numbers.stages(plan, f"{title}: stages"))
            found.append(Column(title, digest, plan, store.keep_topology(plan.topology), stages))
    return tuple(found)


def _links(state: State) -> Mapping[str, str]:
    """Addresses of other states that the page links to."""
    return {
        "keep": replace(state, beside=state.plan).address(),
        "swap": replace(state, plan=state.beside, beside=state.plan).address(),
        "remove": replace(state, beside="").address(),
    }


def status(search: Search) -> dict[str, Any]:
    """A running search as texts: numbers of the last improvement, and each plan that was faster than those before."""
    every = search.improvements
    last: dict[str, Any] = (
        every[-1] if every else {"activity": "looking for a first plan", "step_s": None, "lower_bound_s": None, "gap": None}
    )
    faster = [line for index, line in enumerate(every) if not index or line["step_s"] < every[index - 1]["step_s"]]
    return {
        "step": _text(last["step_s"]),
        "bound": _text(last["lower_bound_s"]),
        "gap": "–" if last["gap"] is None else f"{last['gap']:.1%}",
        "activity": last["activity"],
        "seconds": f"{search.seconds:.0f}",
        "found": [[f"{line['seconds']:.1f} s", _text(line["step_s"]), line["activity"]] for line in faster],
    }


def _text(seconds: float | None) -> str:
    return "–" if seconds is None else time_text(float(f"{seconds:.4g}"))
