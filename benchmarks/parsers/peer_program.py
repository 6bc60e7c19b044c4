"""A target's parser and checks as its reader of `tests/peers` runs them, run by `reading` with PEER, the path of that reader.

What the reader finds is compared with the plan; where both differ, or a check of the reader fails, the target takes the launch
and reads another plan (`Differs`)."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

CHECKOUTS = {"holmes": "HOLMES_CHECKOUT", "flagscale": "FLAGSCALE_CHECKOUT"}
"""Readers of a checkout -> the variable that names it; other targets are packages of the folder."""
loaded: dict[str, Any] = {}


class Differs(Exception):
    """The target reads another plan."""


def prepare(folder: Path) -> None:
    """Import the reader, and with it the target."""
    peer = Path(os.environ["PEER"])
    if peer.stem in CHECKOUTS:
        os.environ[CHECKOUTS[peer.stem]] = str(folder)
    else:
        sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("peer", peer)
    assert spec is not None
    assert spec.loader is not None
    loaded["reader"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded["reader"])
    loaded["reader"].versions()


def check(launch: dict[str, Any]) -> None:
    """Raises what the target raises, or Differs."""
    with tempfile.TemporaryDirectory() as name:
        for file, text in launch["files"].items():
            path = Path(name) / "launch" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        try:
            found = loaded["reader"].read(Path(name) / "launch", launch["plan"])
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            if isinstance(error, AssertionError) and Path(last.filename).parent.name == "peers":
                raise Differs(f"{last.line}: {error}") from None
            raise
        finally:
            os.chdir("/")
    flat = {f"groups.{kind}": ranks for kind, ranks in found.pop("groups", {}).items()} | found
    other = [key for key in flat if flat[key] != launch["facts"].get(key)]
    if other:
        raise Differs(", ".join(f"{key} {str(flat[key])[:60]}, planned {str(launch['facts'].get(key))[:60]}" for key in other))
