"""Journal of a sweep: one line of JSON per finished scenario, on disk before the next scenario is reported.

A process that is killed may leave an incomplete last line. It is ignored when the journal is read, and its scenario is planned
again. Rows remain when the study changes: a scenario that returns later is read from the journal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from holmes_sim import files
from holmes_sim.sweeping.study import Values
from holmes_sim.sweeping.worker import FAILED, Row
from sim.errors import HolmesError

HEADER = b'{"format": "holmes-sim/sweep-journal/1"}\n'
"""First line of a journal."""
Record = Callable[[str, Values, Row], None]
"""Function that appends a finished scenario: (digest, values, row)."""


def path_of(table: Path) -> Path:
    """Path of the journal of a table."""
    return table.with_name(f"{table.name}.journal")


def read(path: Path) -> dict[str, Row]:
    """Rows by digest, without failed scenarios; empty if there is no journal. Raises HolmesError for another kind of file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise HolmesError(f"{path}: cannot be read: {error.strerror}") from None
    if not text.startswith(HEADER) and not HEADER.startswith(text):
        raise HolmesError(f"{path}: is not the journal of a sweep; move it away, or choose another table")
    found: dict[str, Row] = {}
    for line in text.split(b"\n")[1:-1]:
        try:
            record = json.loads(line)
            if record["row"]["status"] != FAILED:
                found[record["digest"]] = record["row"]
        except (ValueError, TypeError, KeyError):
            continue
    return found


@contextmanager
def writer(path: Path) -> Iterator[Record]:
    """A context whose value appends finished scenarios to a journal. The first one creates the file. Raises HolmesError."""
    with ExitStack() as opened:
        file: BinaryIO | None = None

        def record(digest: str, values: Values, row: Row) -> None:
            nonlocal file
            line = json.dumps({"digest": digest, "scenario": dict(values), "row": row})
            with _message_for_disk_errors(path):
                file = file or opened.enter_context(_opened_at_end(path))
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

        yield record


def _opened_at_end(path: Path) -> BinaryIO:
    """The journal opened for appending: with a header if it is new, without the incomplete line of a killed process."""
    file = files.check(path).open("a+b")
    file.seek(0)
    text = file.read()
    if not text.endswith(b"\n"):
        file.truncate(text.rfind(b"\n") + 1)
        file.write(b"" if b"\n" in text else HEADER)
        file.flush()
    return file


@contextmanager
def _message_for_disk_errors(path: Path) -> Iterator[None]:
    """Turns OSError into a HolmesError with the path."""
    try:
        yield
    except OSError as error:
        raise HolmesError(f"{path}: cannot be written: {error.strerror}") from None
