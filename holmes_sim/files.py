"""Write files atomically: a file appears complete or not at all. Remove files of a kind."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from sim.errors import HolmesError
from sim.formats import documents


def folder(path: str | Path) -> None:
    """Create a folder and its parents if they do not exist. Raises HolmesError if it cannot be created."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HolmesError(f"{path}: cannot be created: {error.strerror}") from None


def check(path: str | Path) -> Path:
    """The path that `write` would write, with links followed. Raises HolmesError if it cannot be written.

    Commands call this before long work.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        kind = "Is a directory" if target.is_dir() else "not a regular file"
        raise HolmesError(f"{path}: cannot be written: {kind}")
    target = target.resolve()
    if not target.parent.is_dir():
        raise HolmesError(f"{path}: cannot be written: {os.strerror(errno.ENOENT)}")
    if not os.access(target.parent, os.W_OK):
        raise HolmesError(f"{path}: cannot be written: {os.strerror(errno.EACCES)}")
    return target


def write(path: str | Path, content: str | bytes) -> None:
    """Write a file through a temporary file in the same folder, following links. Raises HolmesError if it cannot be written.

    Refuses folders and devices such as /dev/stdout, because it would replace them.
    """
    target = check(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise HolmesError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except OSError as error:
        raise HolmesError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def remove(path: Path, is_of_kind: Callable[[str], bool]) -> Path | None:
    """Remove a file whose text is of a kind; return it. None where there is no file, or one of another kind, which stays."""
    try:
        is_wanted = is_of_kind(documents.read_text(path, HolmesError))
    except HolmesError:
        return None
    if is_wanted:
        path.unlink()
    return path if is_wanted else None
