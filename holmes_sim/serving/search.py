"""A search for a plan in a child process: the command `holmes-sim plan FILE --json-lines`, whose lines a thread reads.

The server stays quick, and a search can be stopped: SIGINT makes the command end with its best plan."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.errors import HolmesError
from sim.formats import planfile
from sim.plan.plan import Plan
from sim.units import Seconds

COMMAND = (sys.executable, "-P", "-m", "holmes_sim.cli", "plan")
"""What plans; it gets a file and options. -P: a folder of the user may have the name of a package of ours."""
STOPPED = "Stopped before a plan was found."
NO_PLAN = "The search ended without a plan."


class Search:
    """A running or finished search. `improvements`: the lines of the command so far (`holmes_sim.improvements`).

    `is_stopped`: it was told to end. When it `is_over`, `plan` is the digest that `keep` returned for its plan, or empty, and
    `error` says why."""

    def __init__(self, topology: Path, time_limit: Seconds, keep: Callable[[Plan], str]):
        self.name = secrets.token_hex(4)
        self.time_limit, self.begun = time_limit, time.monotonic()
        self.improvements: tuple[dict[str, Any], ...] = ()
        self.plan, self.error, self.is_stopped = "", NO_PLAN, False
        self._keep = keep
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (open until the process has ended)
        options = (str(topology.resolve()), "--json-lines", "--time-limit", f"{time_limit:g}")
        self._process = subprocess.Popen(
            (*COMMAND, *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C in the terminal ends the server, which ends the search
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_over(self) -> bool:
        """Whether the process has ended and its plan is kept."""
        return not self._reader.is_alive()

    @property
    def seconds(self) -> Seconds:
        """Seconds since the start."""
        return time.monotonic() - self.begun

    def stop(self) -> None:
        """End the search with the best plan so far. It may take a moment."""
        self.is_stopped = True
        self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """End the search at once, without a plan, and wait for the end."""
        self.is_stopped = True
        self._process.kill()
        self._reader.join()

    def _read(self) -> None:
        """Read the lines of the process until it ends."""
        assert self._process.stdout is not None
        last = ""
        with self._process.stdout as lines:
            for line in lines:
                if not line.endswith(b"\n"):  # it was killed
                    break
                found = json.loads(line)
                if found["format"] == planfile.PLAN_FORMAT:
                    last = line.decode()
                else:
                    self.improvements += (found,)
        self._process.wait()
        with self._said as said:
            said.seek(0)
            self.error = _reason(said.read().decode(errors="replace"), self.is_stopped)
        try:
            self.plan = self._keep(planfile.from_text("plan.json", last)) if last else ""
        except HolmesError as error:  # the folder of the plans is gone, or full
            self.error = str(error)


def _reason(said: str, is_stopped: bool) -> str:
    """Why a search has no plan: the errors that it printed."""
    errors = [line.removeprefix("error: ") for line in said.splitlines() if line.startswith("error: ")]
    return "\n".join(errors) or (STOPPED if is_stopped else "\n".join([NO_PLAN, *said.splitlines()[-1:]]))
