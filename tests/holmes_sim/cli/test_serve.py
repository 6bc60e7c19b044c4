"""holmes-sim serve as a command: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from importlib import util
from pathlib import Path

import pytest

from holmes_sim.cli.commands import serve


def test_it_serves_until_ctrl_c_and_removes_its_files(tmp_path):
    """A process of its own, whose temporary folders are in `tmp_path`."""
    command = [sys.executable, "-m", "holmes_sim.cli", "serve", "lab/lab-slow-trunk", "--no-browser", "--set", "name=mine"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/\?token=[\w-]{32}", address)
        with urllib.request.urlopen(address) as answer:
            cookie = answer.headers["set-cookie"].partition(";")[0]
        request = urllib.request.Request(address.partition("?")[0], headers={"cookie": cookie})
        with urllib.request.urlopen(request) as answer:  # it goes on to the first state
            assert "<h1>mine</h1>" in answer.read().decode()
        assert [file.name for file in tmp_path.rglob("topology-*.yaml")] != []
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert said == (
        "Topologies and plans are deleted at the end.\nCtrl-C ends the server. Open this address, which has the token:\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_said(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        seen = run("serve", "lab/lab-slow-trunk", "--no-browser", "--port", port)
    assert (seen.code, seen.out) == (2, "")
    assert (
        seen.err == f"error: port {port} of 127.0.0.1 cannot be used: Address already in use; leave out --port for a free one\n"
    )


def test_without_the_extra_one_line_says_what_to_install(run, monkeypatch):
    found = util.find_spec
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name in ("starlette", "uvicorn") else found(name))
    seen = run("serve")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == "error: serve needs starlette, uvicorn; install with: pip install 'holmes-sim[serve]'\n"


def test_a_wrong_topology_is_said_before_the_server_starts(run):
    seen = run("serve", "nope.yaml")
    assert (seen.code, seen.out, seen.err) == (2, "", "error: nope.yaml: no such file\n")


def test_a_browser_gets_a_file_that_only_its_user_can_read(run, monkeypatch, tmp_path):
    """Other users of the machine see the command line of a browser, which must not have the token."""
    from holmes_sim.serving import server

    opened: list[tuple[str, int, str]] = []

    def see(address: str) -> None:
        file = Path(address.removeprefix("file://"))
        opened.append((address, file.stat().st_mode & 0o777, file.read_text()))

    class Ended:
        def run(self, sockets: object) -> None:
            """Ends at once."""

    monkeypatch.setattr(server.webbrowser, "open", see)
    monkeypatch.setattr(server, "made", lambda *given: Ended())
    monkeypatch.setattr(
        server.threading, "Thread", lambda target, args, daemon: type("Now", (), {"start": lambda self: target(*args)})()
    )
    monkeypatch.setattr(server.signal, "signal", lambda *given: None)
    seen = run("serve", "lab/lab-slow-trunk", "--folder", tmp_path / "kept")
    ((address, mode, text),) = opened
    assert seen.code == 0 and seen.err.startswith(f"Topologies and plans are kept in {tmp_path / 'kept'}.\n")
    assert seen.out.strip() in text and "token" not in address and mode == 0o600
    assert [file.name[:9] for file in (tmp_path / "kept").iterdir()] == ["topology-"]


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_wrong_port_is_said(run, port):
    seen = run("serve", "--port", port)
    assert seen.code == 2 and seen.err.startswith("error: invalid value for '--port'")
