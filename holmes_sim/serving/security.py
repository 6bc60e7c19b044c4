"""Who may ask: only a browser on this machine that has the token, from a page of this server.

The address that the command prints has the token; the answer puts it into a cookie. Other programs of this machine may serve
pages from another port of 127.0.0.1, and browsers send them the cookie too, so the origin of forms is compared as well. The
Host header is compared by Starlette's TrustedHostMiddleware (against DNS rebinding)."""

from __future__ import annotations

import hashlib
import secrets

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sim.units import MEBI

HOSTS = ("127.0.0.1", "localhost")
LARGEST_BODY = 4 * MEBI
"""Largest body of a request in bytes. Chosen: the plan of hethub-768, with 768 ranks, has 64 KiB."""
FORBIDDEN = "Open the address that holmes-sim serve printed: it has the token of this server.\n"
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every answer that has none of its own."""
ENTERED = (
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">'
    '<link rel="icon" href="data:,"><title>holmes-sim</title><a href="/">holmes-sim</a></html>'
)
"""The answer to the address with the token. A redirect would not do: where another page links to the address, the browser sends
no strict cookie with the redirected request."""


class Guard:
    """ASGI middleware that lets requests with the token through, and limits their bodies."""

    def __init__(self, app: ASGIApp, token: str):
        self._app, self._token = app, token
        self._cookie = f"holmes-sim-{hashlib.sha256(token.encode()).hexdigest()[:8]}"  # servers on other ports have others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(Request(scope))
        await (answer or self._app)(scope, receive if answer else _limited(receive), send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """The answer to a request without the token, or with it in its address; None if the request is passed on."""
        if "token" in request.query_params:
            if not self._is_token(request.query_params["token"]):
                return PlainTextResponse(FORBIDDEN, 403)
            answer = HTMLResponse(ENTERED)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return PlainTextResponse(FORBIDDEN, 403)
        own = f"http://{request.headers.get('host', '')}"
        if request.method != "GET" and request.headers.get("origin", own) != own:
            return PlainTextResponse("A form of another page was sent.\n", 403)
        return None

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())


def _limited(receive: Receive) -> Receive:
    """`receive` that raises HTTPException where the body is larger than `LARGEST_BODY`."""
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > LARGEST_BODY:
            raise HTTPException(413, f"A file may have {LARGEST_BODY // MEBI} MiB.")
        return message

    return limited
