"""The journal of a sweep: a line of JSON for every finished scenario, on the disk before the next one is told.

A process that is killed may leave half a line at the end; it is passed over when the journal is read, and what it told of is
asked again. Rows stay when a study changes: a scenario that is asked again later is answered from here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from holmes_sim import files
from holmes_sim.sweeping.answering import FAILED, Row
from holmes_sim.sweeping.study import Values
from sim.errors import HolmesError

HEADER = b'{"format": "holmes-sim/sweep-journal/1"}\n'
Record = Callable[[str, Values, Row], None]


def beside(table: Path) -> Path:
    """The journal of a table."""
    return table.with_name(f"{table.name}.journal")


def read(path: Path) -> dict[str, Row]:
    """Rows by digest; those that failed are left out. Empty where there is no journal. Raises HolmesError for another file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise HolmesError(f"{path}: cannot be read: {error.strerror}") from None
    if not text.startswith(HEADER) and not HEADER.startswith(text):
        raise HolmesError(f"{path}: is no journal of a sweep; move it away, or name another table")
    found: dict[str, Row] = {}
    for line in text.split(b"\n")[1:-1]:
        try:
            told = json.loads(line)
            if told["row"]["status"] != FAILED:
                found[told["digest"]] = told["row"]
        except (ValueError, TypeError, KeyError):
            continue
    return found


@contextmanager
def appending(path: Path) -> Iterator[Record]:
    """What writes a finished scenario at the end of a journal, which the first one begins; it raises HolmesError."""
    with ExitStack() as opened:
        file: BinaryIO | None = None

        def record(digest: str, values: Values, row: Row) -> None:
            nonlocal file
            line = json.dumps({"digest": digest, "scenario": dict(values), "row": row})
            with _told(path):
                file = file or opened.enter_context(_mended(path))
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

        yield record


def _mended(path: Path) -> BinaryIO:
    """The journal, opened at its end: begun where it is new, and without the half line that a killed process left."""
    file = files.check(path).open("a+b")
    file.seek(0)
    text = file.read()
    if not text.endswith(b"\n"):
        file.truncate(text.rfind(b"\n") + 1)
        file.write(b"" if b"\n" in text else HEADER)
        file.flush()
    return file


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """A fault of the disk as a line."""
    try:
        yield
    except OSError as error:
        raise HolmesError(f"{path}: cannot be written: {error.strerror}") from None
