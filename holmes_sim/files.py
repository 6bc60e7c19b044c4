"""Files appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sim.errors import HolmesError


def write(path: str | Path, text: str) -> None:
    """Write a text file by way of a temporary one beside it. Raises HolmesError where the place cannot be written."""
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent or Path(), prefix=f".{target.name}.")
    except OSError as error:
        raise HolmesError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise HolmesError(f"{path}: cannot be written: {error.strerror}") from None
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
