"""Network namespaces that exist as long as the process that created them, however it ends.

Each namespace is held by a child process that reads its standard input from a pipe of ours. When we close the pipe, are
interrupted or are killed, the child reads end-of-file and exits, and the kernel removes namespace, links and queues. The first
child is also the init process of a PID namespace in which all programs run: when it exits, the kernel kills them. So namespaces
need no names, which could collide between two labs, and nothing remains after a crash.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from sim.errors import HolmesError

HOLD = ("sh", "-c", "echo held; exec cat")
"""Command that reports that the namespace exists and then waits for end-of-file."""


class Namespaces:
    """One namespace for bridges (number 0) and one for each host (from 1). Needs root or user namespaces.

    Raises HolmesError if the system allows neither.
    """

    def __init__(self, hosts: int):
        self._holders: list[subprocess.Popen[bytes]] = []
        self._user: tuple[str, ...] = ()
        try:
            self._hold_first()
            first = self._holders[0].pid
            self._pid = f"--pid=/proc/{first}/ns/pid_for_children"
            for _ in range(hosts):
                if fault := self._hold(*self._enter_user, "unshare", "--net"):
                    raise HolmesError(f"cannot create the lab's network namespaces: {fault}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Namespaces:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process that holds each namespace."""
        return tuple(holder.pid for holder in self._holders)

    def inside(self, number: int, command: Sequence[str], is_program: bool = False) -> list[str]:
        """A command line that runs a command in a namespace. Programs also join the PID namespace and are killed when the lab
        ends.
        """
        net = f"--net=/proc/{self.pids[number]}/ns/net"
        enter = ["nsenter", *self._user, net] + ([self._pid] if is_program else [])
        return [*enter, "--", *command]

    def run(self, number: int, command: Sequence[str], lines: Iterable[str] = ()) -> None:
        """Run a command in a namespace with lines as its input. Raises HolmesError with its output if it fails."""
        text = "\n".join(lines)
        done = subprocess.run(self.inside(number, command), input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            message = (done.stderr or done.stdout).decode(errors="replace").strip().replace("\n", "; ")
            raise HolmesError(f"the lab cannot be set up: {' '.join(command)}: {message}")

    def close(self) -> None:
        """End all programs and remove all namespaces. May be called twice."""
        for holder in self._holders:
            assert holder.stdin is not None
            holder.stdin.close()
        for holder in self._holders:
            holder.wait()
        self._holders.clear()

    @property
    def _enter_user(self) -> tuple[str, ...]:
        """Prefix of a command line that enters the user namespace, if there is one."""
        return ("nsenter", *self._user, "--") if self._user else ()

    def _hold_first(self) -> None:
        """Create the first namespace, as root or else as root of a user namespace."""
        ours = ("unshare", "--net", "--pid", "--fork", "--kill-child")
        fault = "not root" if os.geteuid() else self._hold(*ours)
        if not fault:
            return
        refused = self._hold(*ours, "--user", "--map-root-user")
        if refused:
            raise HolmesError(f"the lab needs root or user namespaces to create network namespaces: {fault}; {refused}")
        self._user = (f"--user=/proc/{self._holders[0].pid}/ns/user", "--preserve-credentials")

    def _hold(self, *unshare: str) -> str:
        """Start a process that holds a new namespace. Returns the error message, or ""."""
        pipe = subprocess.PIPE
        try:
            holder = subprocess.Popen((*unshare, *HOLD), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except FileNotFoundError as error:
            return f"{error.filename} is not installed (it comes with util-linux)"
        assert holder.stdout is not None and holder.stderr is not None and holder.stdin is not None
        with holder.stdout, holder.stderr:
            if holder.stdout.readline():
                self._holders.append(holder)
                return ""
            fault = holder.stderr.read().decode(errors="replace").strip().replace("\n", "; ")
        holder.stdin.close()
        holder.wait()
        return fault or "no answer"


def set_below_proc(path: str, value: str) -> list[str]:
    """A command that writes a kernel setting of the namespace it runs in."""
    return ["sh", "-c", 'echo "$1" > "$2"', "sh", value, str(Path("/proc/sys") / path)]
