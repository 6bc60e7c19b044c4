"""Starts all ranks of a launch that stand on this machine: imports torch once, forks each rank, and waits for all.

`python -m holmes_sim.torch_backend.nursery` reads lines from stdin, each the folder of a launch: FOLDER/launch.json. What rank
r says goes into FOLDER/r.err. The first rank that fails ends all others. When all have ended a line on stdout says why: it is
empty where all is well.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

LOOK = 0.02
GRACE = 3.0
"""Seconds that the others have to say why, before they are killed; a rank that was killed says nothing."""
PARENT_DIES = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
NETWORK = 0x40000000
"""CLONE_NEWNET of setns(2)."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank stands: its device, its environment, and the file of the network namespace that it enters, if any."""

    device: str
    environment: dict[str, str]
    namespace: str = ""


def write(folder: Path, asked: str, seats: list[Seat]) -> None:
    """The launch of the plan FOLDER/plan.json, rank by rank."""
    facts = {"asked": asked, "seats": [asdict(seat) for seat in seats]}
    (folder / "launch.json").write_text(json.dumps(facts), encoding="utf-8")


def main() -> None:
    """Play launch after launch, until stdin ends."""
    _die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _import()
    for line in sys.stdin:
        sys.stdout.write(f"{_launched(Path(line.strip()))}\n")
        sys.stdout.flush()


def _import() -> None:
    """Import once what every rank needs: also what torch imports with its first optimizer."""
    import torch

    from holmes_sim.torch_backend import rank  # noqa: F401

    torch.optim.Adam([torch.zeros(1)])


def _launched(folder: Path) -> str:
    """Fork the ranks of a launch and wait for them; the reason where one fails."""
    facts = json.loads((folder / "launch.json").read_text(encoding="utf-8"))
    seats = [Seat(**seat) for seat in facts["seats"]]
    children: dict[int, int] = {}
    try:
        for number, seat in enumerate(seats):
            child = os.fork()
            if child == 0:
                _be(folder, number, seat, facts["asked"])
            children[child] = number
        failed = _wait(children)
    finally:
        _end(children)
    return "" if failed is None else _reason(folder, seats, *failed)


def _be(folder: Path, number: int, seat: Seat, asked: str) -> None:
    """Be one rank, in the child; never comes back."""
    status = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        told = os.open(folder / f"{number}.err", os.O_WRONLY | os.O_CREAT)
        os.dup2(told, 1)
        os.dup2(told, 2)
        if seat.namespace:
            _enter(seat.namespace)
        os.environ.update(seat.environment)
        import torch

        from holmes_sim.torch_backend import rank

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        rank.main([str(folder / "plan.json"), asked])
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
        ctypes.CDLL(None).prctl(PARENT_DIES, signal.SIGKILL)


def _enter(namespace: str) -> None:
    """Enter a network namespace (`os.setns` comes with Python 3.12)."""
    handle = os.open(namespace, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, NETWORK):
        raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
    os.close(handle)


def _wait(children: dict[int, int]) -> tuple[int, int] | None:
    """(rank, exit code) of what failed first, a rank that was killed before those that fell with it; None where none did."""
    failed: tuple[int, int] | None = None
    until = float("inf")
    while children and time.monotonic() < until:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            time.sleep(LOOK)
            continue
        number, code = children.pop(child), os.waitstatus_to_exitcode(status)
        if code and (failed is None or (code < 0 <= failed[1])):
            failed = number, code
            until = min(until, time.monotonic() + GRACE)
    return failed


def _end(children: dict[int, int]) -> None:
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)


def _reason(folder: Path, seats: list[Seat], number: int, code: int) -> str:
    head = f"rank {number} ({seats[number].device})"
    if code < 0:
        return f"{head} was killed by signal {-code}"
    lines = (folder / f"{number}.err").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return told[0] if told else f"{head} ended: {lines[-1] if lines else f'exit code {code}'}"


if __name__ == "__main__":
    main()
