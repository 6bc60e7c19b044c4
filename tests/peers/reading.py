"""Run by the Python of a reader: `reading.py READER.py` prints its versions, then what it read of each folder it is told of.

A line of stdin is the folder of an export, a line of stdout what was read of it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("reader", sys.argv[1])
assert spec is not None
assert spec.loader is not None
reader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reader)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the programs themselves print goes to stderr
print(json.dumps(reader.versions()), file=answers, flush=True)
for line in sys.stdin:
    folder = Path(line.removesuffix("\n")) / "launch"
    try:
        found = reader.read(folder, json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    except Exception as error:
        found = {"raised": f"{type(error).__name__}: {error}"}
    groups = found.pop("groups", {})
    flat = {f"groups.{kind}": ranks for kind, ranks in groups.items()} | found
    print(json.dumps(flat), file=answers, flush=True)
