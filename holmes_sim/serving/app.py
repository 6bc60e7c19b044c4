"""The addresses of the page, as a Starlette application.

`GET /t/DIGEST?plan=DIGEST&beside=DIGEST` is the page of a state; `POST` to `edit`, `plan`, `stop` and `upload` below it lead to
another state. Files: `/topologies/DIGEST`, `/plans/DIGEST`, `/plans/DIGEST/report`. Handlers that compute run in threads."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from threading import Lock

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from holmes_sim import commands, reporting
from holmes_sim.serving import page, uploads
from holmes_sim.serving.controls import edited
from holmes_sim.serving.page import LONGEST, State
from holmes_sim.serving.search import Search
from holmes_sim.serving.security import HOSTS, Guard
from holmes_sim.serving.store import Store, Unknown
from sim.errors import HolmesError, OptionError
from sim.plan.plan import Plan

PACE = 0.2
"""Seconds between two looks for improvements. Chosen: a reader sees no delay."""
OF_A_REPORT = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Content security policy of a report, whose style and script are inside it: it cannot reach this server."""


@dataclass(slots=True)
class Page:
    """The handlers. `begin` is the state of the first page; at most one search runs."""

    store: Store
    begin: State
    search: Search | None = None
    _starting: Lock = field(default_factory=Lock)

    def first(self, request: Request) -> Response:
        """The page of the state to begin with."""
        return RedirectResponse(self.begin.address(), 303)

    def show(self, request: Request) -> Response:
        """The page of a state. When its search is over, the state with the plan of the search."""
        state = _state(request)
        search = self._search(state.search)
        if search is not None and search.is_over:
            over = replace(state, plan=search.plan or state.plan, search="")
            if search.plan:
                return RedirectResponse(over.address(), 303)
            return HTMLResponse(page.html(self.store, over, None, search.error))
        return HTMLResponse(page.html(self.store, state if search else replace(state, search=""), search))

    async def edit(self, request: Request) -> Response:
        """The state with the topology of the form."""
        form = await _form(request)
        return await run_in_threadpool(self._edit, _state(request), form, False)

    async def plan(self, request: Request) -> Response:
        """Start a search for the topology of the form; it ends the one before."""
        form = await _form(request)
        return await run_in_threadpool(self._edit, _state(request), form, True)

    def _edit(self, state: State, form: Mapping[str, str], is_plan: bool) -> Response:
        topology = self.store.topology(state.topology)
        try:
            state = replace(state, topology=self.store.keep_topology(edited(topology, form)))
            if is_plan:
                limit = _seconds(form.get("time_limit", ""))
                with self._starting:
                    self.end()
                    self.search = Search(self.store.topology_file(state.topology), limit, self.store.keep_plan)
                    state = replace(state, search=self.search.name)
        except HolmesError as error:
            return self._refused(state, error)
        return RedirectResponse(state.address() + ("#plan" if is_plan else ""), 303)

    def stop(self, request: Request) -> Response:
        """End the search of the state with its best plan so far."""
        state = _state(request)
        search = self._search(state.search)
        if search is not None:
            search.stop()
        return RedirectResponse(state.address() + "#plan", 303)

    async def events(self, request: Request) -> Response:
        """The states of a search as server-sent events; the last one is named over."""
        search = self._search(request.path_params["name"])
        if search is None:
            raise HTTPException(404)
        return StreamingResponse(_events(search), media_type="text/event-stream")

    async def upload(self, request: Request) -> Response:
        """The state with the topology or the plan of a file."""
        async with request.form(max_files=1, max_fields=1) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise HTTPException(400)
            name, data = PurePath(file.filename or "file").name[:80] or "file", await file.read()
        return await run_in_threadpool(self._opened, _state(request), name, data)

    def _opened(self, state: State, name: str, data: bytes) -> Response:
        try:
            found = uploads.read(name, data)
        except HolmesError as error:
            return self._refused(state, error)
        if not isinstance(found, Plan):
            return RedirectResponse(State(self.store.keep_topology(found)).address(), 303)
        if found.prediction is None:
            found = found.annotated(prediction=commands.simulate(found).prediction)
        opened = State(self.store.keep_topology(found.topology), self.store.keep_plan(found), state.beside)
        return RedirectResponse(opened.address(), 303)

    async def open(self, request: Request) -> Response:
        """The state with a shipped topology."""
        name = (await _form(request)).get("name", "")
        if name not in commands.shipped_topologies():
            raise HTTPException(404)
        topology = await run_in_threadpool(commands.load, name)
        return RedirectResponse(State(self.store.keep_topology(topology)).address(), 303)

    def topology_file(self, request: Request) -> Response:
        """A topology to keep."""
        digest = request.path_params["digest"]
        topology = self.store.topology(digest)
        return _download(self.store.topology_file(digest).read_bytes(), f"{topology.name}.yaml", "application/yaml")

    def plan_file(self, request: Request) -> Response:
        """A plan to keep."""
        digest = request.path_params["digest"]
        plan = self.store.plan(digest)
        return _download(self.store.plan_file(digest).read_bytes(), f"{plan.topology.name}-plan.json", "application/json")

    def report(self, request: Request) -> Response:
        """The report of a plan, without other strategies."""
        plan = self.store.plan(request.path_params["digest"])
        contents = reporting.gather(plan, (), file=f"{_plain(plan.topology.name)}-plan.json")
        return HTMLResponse(reporting.page(contents), headers={"content-security-policy": OF_A_REPORT})

    def end(self) -> None:
        """End the search that runs."""
        if self.search is not None:
            self.search.end()

    def _refused(self, state: State, error: HolmesError) -> Response:
        """The page of a state, with what is wrong about a form or a file."""
        search = self._search(state.search)
        running = search if search is not None and not search.is_over else None
        return HTMLResponse(page.html(self.store, state, running, str(error)), 422)

    def _search(self, name: str) -> Search | None:
        return self.search if self.search is not None and name == self.search.name else None


def application(store: Store, begin: State, token: str) -> Starlette:
    """The application that serves a folder to those who have the token; its end ends the search that runs."""
    pages = Page(store, begin)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(pages.end)

    state = "/t/{topology}"
    routes = [
        Route("/", pages.first),
        Route(state, pages.show),
        Route(f"{state}/edit", pages.edit, methods=["POST"]),
        Route(f"{state}/plan", pages.plan, methods=["POST"]),
        Route(f"{state}/stop", pages.stop, methods=["POST"]),
        Route("/searches/{name}/events", pages.events),
        Route(f"{state}/upload", pages.upload, methods=["POST"]),
        Route("/open", pages.open, methods=["POST"]),
        Route("/topologies/{digest}", pages.topology_file),
        Route("/plans/{digest}", pages.plan_file),
        Route("/plans/{digest}/report", pages.report),
        Route("/style.css", lambda request: Response(page.style(), media_type="text/css")),
        Route("/serve.js", lambda request: Response(page.script(), media_type="text/javascript")),
    ]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False), Middleware(Guard, token=token)]
    return Starlette(routes=routes, middleware=middleware, lifespan=lifespan, exception_handlers={HolmesError: _wrong})


def _wrong(request: Request, error: Exception) -> Response:
    """What is wrong about a file of the folder."""
    return PlainTextResponse(f"{error}\n", 404 if isinstance(error, Unknown) else 422)


def _state(request: Request) -> State:
    query = request.query_params
    return State(request.path_params["topology"], *(query.get(key, "") for key in ("plan", "beside", "search")))


async def _form(request: Request) -> dict[str, str]:
    """The texts of a form. A pressed button `set` has a key and its value: `clusters.ib.nodes=3`."""
    async with request.form(max_files=0) as sent:
        form = {key: value for key, value in sent.items() if isinstance(value, str)}
    path, _, value = form.pop("set", "").rpartition("=")
    return form | ({path: value} if path else {})


def _seconds(text: str) -> float:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST:
        raise OptionError(f"seconds to plan: {text[:40]!r} is not a whole number from 1 to {LONGEST}")
    return float(text)


async def _events(search: Search) -> AsyncIterator[str]:
    last = ""
    while not search.is_over:
        text = json.dumps(page.status(search))
        if text != last:
            yield f"data: {text}\n\n"
            last = text
        await asyncio.sleep(PACE)
    yield "event: over\ndata: {}\n\n"


def _plain(name: str) -> str:
    """A name of a topology as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "topology"


def _download(content: bytes, name: str, kind: str) -> Response:
    stem, _, ending = name.rpartition(".")
    return Response(
        content, media_type=kind, headers={"content-disposition": f'attachment; filename="{_plain(stem)}.{ending}"'}
    )
