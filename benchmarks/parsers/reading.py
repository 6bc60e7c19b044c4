"""Run by the Python of a target: `reading.py PROGRAM.py FOLDER` says what a target's own parser makes of a launch.

A line of stdin is a JSON object, what was written for the target; a line of stdout is `{"refused": why, "at": where}`, empty
where the parser and the checks take it. The first line of stdout says whether the folder has the target. The program is a
module of this folder with `prepare(folder)` and `check(launch)`, which raises what the target raises. Nothing of holmes-sim is
imported here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


def where(error: BaseException) -> str:
    """The deepest line of a traceback outside of this folder: file and number."""
    here = Path(__file__).parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent != here]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _refused(_: object, message: str) -> NoReturn:
    """In place of a usage text and exit code 2."""
    raise ValueError(message)


def answer(call: Callable[[Any], None], given: object) -> str:
    """The line that says what a call raised, whatever it was: the target's own code raises what it likes."""
    try:
        call(given)
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        return json.dumps({"refused": f"{type(error).__name__}: {said}"[:300], "at": where(error)})
    return json.dumps({"refused": "", "at": ""})


def main(program: str, folder: str) -> None:
    """Answer line by line."""
    spec = importlib.util.spec_from_file_location("program", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    argparse.ArgumentParser.error = _refused  # type: ignore[assignment]
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    print(answer(module.prepare, Path(folder)), file=answers, flush=True)
    os.dup2(quiet, 2)  # what the programs themselves say of each launch
    for line in sys.stdin:
        print(answer(module.check, json.loads(line)), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
