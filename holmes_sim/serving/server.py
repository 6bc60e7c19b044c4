"""Runs the page on this machine until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path

import uvicorn

from holmes_sim.serving.app import application
from holmes_sim.serving.page import State
from holmes_sim.serving.store import Store
from sim.errors import HolmesError
from sim.hardware.topology import Topology

ADDRESS = "127.0.0.1"
PATIENCE = 1
"""Seconds for which open answers, such as events of a search, may go on after Ctrl-C. Chosen."""


def serve(topology: Topology, folder: Path | None, port: int, announce: Callable[[str, Path], None], browse: bool) -> None:
    """Serve the page until Ctrl-C or SIGTERM. `folder` of the files: a temporary one if None; `port` 0 is a free one.

    `announce` receives the address with the token and the folder when the server listens; `browse` opens the address in a
    browser. Raises HolmesError if the port or the folder cannot be used."""
    with tempfile.TemporaryDirectory(prefix="holmes-sim-serve-") as own, listening(port) as listener:
        store, token = Store(folder or Path(own) / "states"), secrets.token_urlsafe(24)
        server = made(store, State(store.keep_topology(topology)), token)
        address = f"http://{ADDRESS}:{listener.getsockname()[1]}/?token={token}"
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the temporary folder is removed
        announce(address, store.folder)
        if browse:
            threading.Thread(target=webbrowser.open, args=(_leading_to(address, Path(own)),), daemon=True).start()
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def made(store: Store, begin: State, token: str) -> uvicorn.Server:
    """The server of a store, to be run with a socket that listens. It writes no log, which would have the token."""
    app = application(store, begin, token)
    return uvicorn.Server(
        uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=PATIENCE, server_header=False)
    )


def listening(port: int) -> socket.socket:
    """A socket that listens on a port of this machine alone. Raises HolmesError if the port cannot be used."""
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise HolmesError(f"port {port} of {ADDRESS} cannot be used: {why}; leave out --port for a free one") from None


def _leading_to(address: str, folder: Path) -> str:
    """The address of a file that leads to the address: other users of this machine see the command line of a browser."""
    file = folder / "open.html"
    file.touch(mode=0o600)
    file.write_text(f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={escape(address)}">', encoding="utf-8")
    return file.as_uri()
