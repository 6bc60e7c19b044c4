"""A site that runs in a thread, and a visitor with cookies: requests over a real socket, redirects not followed."""

from __future__ import annotations

import http.client
import secrets
import threading
import time
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from urllib.parse import urlencode

from holmes_sim.serving import server
from holmes_sim.serving.page import State
from holmes_sim.serving.store import Store
from sim.hardware.topology import Topology

TOKEN = "a-token-of-the-tests"
PATIENCE = 60.0
"""Seconds until a search that does not end is given up."""


@dataclass
class Answer:
    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def location(self) -> str:
        return (self.headers["location"] or "").partition("#")[0]


@dataclass
class Site:
    """A server of a folder, and a visitor of it. `cookie` is what the visitor sends."""

    folder: Path
    topology: Topology
    cookie: str = ""
    store: Store = field(init=False)
    begin: State = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(self.folder)
        self.begin = State(self.store.keep_topology(self.topology))
        listener = server.listening(0)
        self.port = listener.getsockname()[1]
        self._server = server.made(self.store, self.begin, TOKEN)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]})
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def enter(self) -> Answer:
        """Open the address with the token, and keep the cookie."""
        answer = self.get(f"/?token={TOKEN}")
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, form: dict[str, object], **headers: str) -> Answer:
        headers = {"content-type": "application/x-www-form-urlencoded"} | headers
        return self._ask("POST", path, urlencode(form).encode(), headers)

    def upload(self, path: str, name: str, content: bytes) -> Answer:
        mark = secrets.token_hex(8)
        head = f'--{mark}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = head.encode() + content + f"\r\n--{mark}--\r\n".encode()
        return self._ask("POST", path, body, {"content-type": f"multipart/form-data; boundary={mark}"})

    def followed(self, path: str) -> str:
        """The address of the page of a search once the search is over."""
        until = time.monotonic() + PATIENCE
        while (answer := self.get(path)).status == 200 and "data-events" in answer.text:
            assert time.monotonic() < until, "the search does not end"
            time.sleep(0.1)
        return answer.location or path

    def begun(self, path: str) -> str:
        """The address of the page of a search once it has found something: an interrupt is lost while Python starts."""
        until = time.monotonic() + PATIENCE
        while "estimating layouts" not in self.get(path).text:
            assert time.monotonic() < until, "the search does not begin"
            time.sleep(0.1)
        return path

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent = ({"cookie": self.cookie} if self.cookie else {}) | headers
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        found = Answer(answer.status, answer.headers, answer.read())
        connection.close()
        return found
