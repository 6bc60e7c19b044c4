"""Fork server for the ranks on this machine: imports torch once, forks one process per rank, and waits for all of them.

`python -m holmes_sim.torch_backend.fork_server` reads lines from stdin. Each line is the folder of a launch with a file
launch.json. The output of rank r goes to r.err in that folder. When a rank fails, all others are ended. When all ranks of a
launch have ended, one line goes to stdout: the reason of the failure, or an empty line.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_INTERVAL = 0.02
GRACE_PERIOD = 3.0
"""Seconds for other ranks to report a reason before they are killed, because a rank that was killed reports none."""
CLOSED = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused")
"""What gloo says of a rank that has ended (third_party/gloo/gloo/transport/tcp/pair.cc of torch 2.13), in any rank that it
talked to."""
PR_SET_PDEATHSIG = 1
"""Option PR_SET_PDEATHSIG of prctl(2): signal on the death of the parent."""
CLONE_NEWNET = 0x40000000
"""Flag CLONE_NEWNET of setns(2): network namespace."""


@dataclass(frozen=True, slots=True)
class RankProcess:
    """The process of a rank: name of its device, its environment variables, and the file of its network namespace, if any."""

    device: str
    environment: dict[str, str]
    namespace: str = ""


def write(folder: Path, options: str, processes: list[RankProcess], module: str) -> None:
    """Write launch.json for the plan in FOLDER/plan.json. `module`: the module whose `main` each rank calls."""
    facts = {"options": options, "module": module, "processes": [asdict(process) for process in processes]}
    (folder / "launch.json").write_text(json.dumps(facts), encoding="utf-8")


def main() -> None:
    """Run launches until stdin ends."""
    _die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _preload()
    for line in sys.stdin:
        sys.stdout.write(f"{_run_launch(Path(line.strip()))}\n")
        sys.stdout.flush()


def _preload() -> None:
    """Import what every rank needs, including the modules that torch imports with the first optimizer.

    The garbage collection of a rank would write to all that was imported, so that each rank had a copy of it: it is told to
    leave these objects alone."""
    import torch

    from holmes_sim.torch_backend.islands import rank  # noqa: F401

    torch.optim.Adam([torch.zeros(1)])
    gc.collect()
    gc.freeze()


def _run_launch(folder: Path) -> str:
    """Fork the ranks of a launch and wait for them. Returns the reason of a failure, or an empty string."""
    facts = json.loads((folder / "launch.json").read_text(encoding="utf-8"))
    processes = [RankProcess(**process) for process in facts["processes"]]
    children: dict[int, int] = {}
    try:
        for number, process in enumerate(processes):
            child = os.fork()
            if child == 0:
                _run_rank(folder, number, process, facts["options"], facts["module"])
            children[child] = number
        failed = _wait(children)
    finally:
        _kill(children)
    return cause(folder, processes, failed) if failed else ""


def _run_rank(folder: Path, number: int, process: RankProcess, options: str, module: str) -> None:
    """Run one rank in the child process. Does not return."""
    status = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        errors = os.open(folder / f"{number}.err", os.O_WRONLY | os.O_CREAT)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        if process.namespace:
            _enter_namespace(process.namespace)
        os.environ.update(process.environment)
        import torch

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        importlib.import_module(module).main([str(folder / "plan.json"), options])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _enter_namespace(namespace: str) -> None:
    """Enter a network namespace. Python has `os.setns` only from 3.12."""
    handle = os.open(namespace, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
    os.close(handle)


def _wait(children: dict[int, int]) -> list[tuple[int, int]]:
    """(rank, exit code) of the ranks that failed, in the order in which they ended; of those that fail `GRACE_PERIOD` after the
    first one, none."""
    failed: list[tuple[int, int]] = []
    until = float("inf")
    while children and time.monotonic() < until:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            time.sleep(POLL_INTERVAL)
            continue
        number, code = children.pop(child), os.waitstatus_to_exitcode(status)
        if code:
            failed.append((number, code))
            until = min(until, time.monotonic() + GRACE_PERIOD)
    return failed


def _kill(children: dict[int, int]) -> None:
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)


def cause(folder: Path, processes: list[RankProcess], failed: list[tuple[int, int]]) -> str:
    """Why a launch failed: a rank that was killed, else the first rank that did not fail because another one had ended."""
    number, code = min(failed, key=lambda one: (one[1] > 0, one[1] > 0 and _follows(_lines(folder, one[0]))))
    head = f"rank {number} ({processes[number].device})"
    if code < 0:
        signalled = "; Linux kills a process so where memory runs out (dmesg names it)" if -code == signal.SIGKILL else ""
        return f"{head} was killed by signal {-code} ({signal.Signals(-code).name}){signalled}"
    lines = _lines(folder, number)
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[0] if errors else f"{head} ended: {lines[-1] if lines else f'exit code {code}'}"


def _lines(folder: Path, number: int) -> list[str]:
    """What a rank wrote to stderr."""
    return (folder / f"{number}.err").read_text(encoding="utf-8", errors="replace").strip().splitlines()


def _follows(lines: list[str]) -> bool:
    """Whether an error says that another rank has ended: the connection to it is closed."""
    return any(words in line for line in lines[-1:] for words in CLOSED)


if __name__ == "__main__":
    main()
