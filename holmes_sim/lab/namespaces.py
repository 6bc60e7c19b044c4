"""Network namespaces that live as long as the process that made them, however it ends.

A namespace is held by a process that reads its standard input, the other end of which is ours: when we close it, are
interrupted or are killed, it reads the end and is gone, and the kernel takes namespace, links and queues with it. The first one
is also the first process of a PID namespace in which all programs are run: with it the kernel kills them. So there are no
names, in which two labs could meet, and nothing to sweep after a crash.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from sim.errors import HolmesError

HOLD = ("sh", "-c", "echo held; exec cat")


class Namespaces:
    """One namespace for bridges (number 0) and one for each host (from 1). Needs root, or user namespaces.

    Raises HolmesError where the system allows neither.
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
                    raise HolmesError(f"the lab's network namespaces cannot be made: {fault}")
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
        """A command line that runs a command in a namespace; programs run in the PID namespace and die with the lab."""
        net = f"--net=/proc/{self.pids[number]}/ns/net"
        enter = ["nsenter", *self._user, net] + ([self._pid] if is_program else [])
        return [*enter, "--", *command]

    def run(self, number: int, command: Sequence[str], lines: Iterable[str] = ()) -> None:
        """Run a command in a namespace with lines as its input. Raises HolmesError with what it says where it fails."""
        text = "\n".join(lines)
        done = subprocess.run(self.inside(number, command), input=text.encode(), capture_output=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().replace("\n", "; ")
            raise HolmesError(f"the lab cannot be wired: {' '.join(command)}: {said}")

    def close(self) -> None:
        """End every program and namespace. A second time does nothing."""
        for holder in self._holders:
            assert holder.stdin is not None
            holder.stdin.close()
        for holder in self._holders:
            holder.wait()
        self._holders.clear()

    @property
    def _enter_user(self) -> tuple[str, ...]:
        return ("nsenter", *self._user, "--") if self._user else ()

    def _hold_first(self) -> None:
        """As root, else as root of a user namespace."""
        ours = ("unshare", "--net", "--pid", "--fork", "--kill-child")
        fault = "not root" if os.geteuid() else self._hold(*ours)
        if not fault:
            return
        refused = self._hold(*ours, "--user", "--map-root-user")
        if refused:
            raise HolmesError(f"the lab needs root or user namespaces to make network namespaces: {fault}; {refused}")
        self._user = (f"--user=/proc/{self._holders[0].pid}/ns/user", "--preserve-credentials")

    def _hold(self, *unshare: str) -> str:
        """Start a process that holds a new namespace; what went wrong, or ""."""
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
    """A command that writes a kernel setting of the namespace that it runs in."""
    return ["sh", "-c", 'echo "$1" > "$2"', "sh", value, str(Path("/proc/sys") / path)]
