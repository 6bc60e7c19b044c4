"""`make test-peers`: what is exported, read by the programs that it is for.

A module of this folder is the reader of one target: `versions()` says which programs it runs, and `read(folder, plan)` runs
them on an exported folder and returns what they read. It runs in an environment of its own (`requirements-TARGET.txt`), imports
nothing of holmes-sim, and what it says is compared with the plan. The verdicts are kept in `verdicts/TARGET.json` with their
date, and what is exported as it was then is not read again: tests/holmes_sim/exporters/test_verdicts.py sees that what is
exported today is what was read.

`python -m tests.peers [TARGET ...]` reads the exports of the named targets, or of all.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from holmes_sim import exporters
from holmes_sim.launching import folder
from holmes_sim.launching.folder import Launch
from sim.formats import planfile
from sim.plan.plan import Plan
from tests.peers import exported

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".venv-peers"


def python_for(target: str) -> str:
    """The Python of a reader: an environment of its own where it needs one."""
    wanted = HERE / f"requirements-{target}.txt"
    if not wanted.exists():
        return sys.executable
    home = ENVIRONMENTS / target
    found, done = home / "bin" / "python", home / "installed"
    if not done.exists() or done.stat().st_mtime < wanted.stat().st_mtime:
        venv.create(home, with_pip=True)
        subprocess.run([found, "-m", "pip", "install", "--quiet", "-r", wanted], check=True)
        done.touch()
    return str(found)


class Reader:
    """A target's reader: the Python of its environment, started when it is first asked, given one folder after the other."""

    def __init__(self, target: str):
        self.target, self.versions, self._scratch = target, {}, tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[str] | None = None

    def read(self, plan: Plan, launch: Launch) -> dict[str, Any]:
        """What it read of an export, whose folder is there as long as it reads. Ends with a line where the reader fails."""
        if self._process is None:
            command = [python_for(self.target), "-P", HERE / "reading.py", HERE / f"{self.target}.py"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.versions = self._answer()
        with tempfile.TemporaryDirectory(dir=self._scratch.name) as name:
            folder.write(folder.complete(plan, self.target, "", launch), Path(name) / "launch")
            (Path(name) / "launch" / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
            print(name, file=self._process.stdin, flush=True)
            return self._answer()

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            with self._process as process:
                process.stdin.close()
        self._scratch.cleanup()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the reader ended with exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


def read(target: str) -> None:
    """Have the exports of a target read that were not read before as they are now, the small ones first.

    What was read is kept, also where Ctrl-C comes; the rest stands there as unread. Ends with a line at a difference."""
    plans = dict(exported.expressible(target, exported.shipped()))
    before = exported.kept(target) if exported.file_of(target).exists() else {"versions": {}, "verdicts": {}}
    known: dict[str, dict[str, Any]] = {}
    wrong, reader = [], Reader(target)
    try:
        launches = {key: exporters.get(target).launch(plan) for key, plan in plans.items()}
        same = {key for key, launch in launches.items() if _digest(before, key) == exported.digest(launch)}
        for key in sorted(plans, key=lambda key: (key not in same, len(plans[key].placement))):
            launch, found = launches[key], before["verdicts"].get(key)
            if key not in same:
                found = verdict(plans[key], launch, reader.read(plans[key], launch))
                wrong += [f"{key}: {line}" for line in found["differs"]]
            if not found.get("differs"):
                known[key] = {"digest": found["digest"], "read": found["read"]}
    except (KeyboardInterrupt, SystemExit) as end:
        wrong.append(str(end) or "stopped")
    reader.close()
    versions = reader.versions or before["versions"]
    exported.keep(
        target,
        {
            "date": datetime.date.today().isoformat() if reader.versions else before["date"],
            "versions": versions,
            "unread": sorted(plans.keys() - known.keys()),
            "verdicts": {key: known[key] for key in plans if key in known},
        },
    )
    if wrong:
        sys.exit("\n".join(f"{target}: {line}" for line in wrong))
    print(f"{target}: {len(known)} of {len(plans)} exports read as they are meant by {versions}")


def _digest(kept: dict[str, Any], key: str) -> str | None:
    """Short name of what an export launched when it was read; None if it was not."""
    found: str | None = kept["verdicts"].get(key, {}).get("digest")
    return found


def verdict(plan: Plan, launch: Launch, answer: dict[str, object]) -> dict[str, Any]:
    """What was read of an export, and where it differs from the plan."""
    if "raised" in answer:
        return {"digest": exported.digest(launch), "read": [], "differs": [str(answer["raised"])]}
    facts = exported.facts(plan)
    differs = [
        f"{key} is {str(answer[key])[:200]}, planned {str(facts.get(key))[:200]}"
        for key in answer
        if answer[key] != facts.get(key)
    ]
    return {"digest": exported.digest(launch), "read": sorted(answer), "differs": differs if answer else ["nothing was read"]}


def main(targets: list[str]) -> None:
    """Read target after target; one that cannot be read, or is read otherwise, does not keep the others from it."""
    failed = []
    for target in targets:
        try:
            read(target)
        except SystemExit as end:
            print(end)
            failed.append(target)
    sys.exit(f"not read as meant: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1:] or exported.readers())
