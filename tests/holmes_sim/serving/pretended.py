"""Programs in place of `holmes-sim plan`: they print what it prints, in a moment, and do not plan."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sim.formats import planfile
from sim.plan.plan import Plan

BEGIN = """
import signal, sys, time
line = '{"format": "holmes-sim/improvement/1", "seconds": %s, "activity": "%s", "step_s": %s, "lower_bound_s": %s, "gap": %s}'
print(line % (0.5, "estimating layouts", 2.0, 0.5, 0.75), flush=True)
"""
BETTER = """
print(line % (1.5, "2 layouts settled", 1.25, 1.0, 0.2), flush=True)
"""


def program(folder: Path, text: str) -> tuple[str, ...]:
    """A command that runs a text."""
    file = folder / "pretended.py"
    file.write_text(BEGIN + text)
    return sys.executable, str(file)


def with_plan(folder: Path, plan: Plan, until_stopped: bool) -> tuple[str, ...]:
    """It improves its plan once, after 0.3 s, and ends with a plan; where it is to be stopped, only then."""
    file = folder / "pretended.json"
    file.write_text(json.dumps(json.loads(planfile.to_json(plan))) + "\n")
    wait = "signal.pause()" if until_stopped else "time.sleep(0.6)"
    end = f"sys.stdout.write(open({str(file)!r}).read())\nsys.stdout.flush()"
    return program(folder, f"time.sleep(0.3){BETTER}try:\n    {wait}\nexcept KeyboardInterrupt:\n    pass\n{end}\n")
