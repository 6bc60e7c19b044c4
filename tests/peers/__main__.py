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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holmes_sim.launching import folder
from holmes_sim.launching.folder import Launch
from sim import planfile
from sim.plan import Plan
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


def read(target: str) -> None:
    """Have the exports of a target read that were not read before as they are now, the small ones first.

    What was read is kept, also where Ctrl-C comes; the rest stands there as unread. Ends with a line at a difference."""
    launches = {key: (plan, launch) for key, plan, launch in exported.launches(target)}
    before = exported.kept(target)["verdicts"] if exported.file_of(target).exists() else {}
    known = {key: before[key] for key, (_, launch) in launches.items() if key in before and is_now(before[key], launch)}
    asked = sorted(launches.keys() - known.keys(), key=lambda key: len(launches[key][0].placement))
    versions, wrong = exported.kept(target)["versions"] if known else {}, []
    with tempfile.TemporaryDirectory() as name:
        for index, key in enumerate(asked):
            plan, launch = launches[key]
            folder.write(folder.complete(plan, target, "", launch), Path(name) / str(index))
            (Path(name) / str(index) / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
        try:
            for index, answer in enumerate(answers(target, name, len(asked))):
                if index == 0:
                    versions = answer
                    continue
                key = asked[index - 1]
                found = verdict(*launches[key], answer)
                wrong += [f"{key}: {line}" for line in found["differs"]]
                if not found["differs"]:
                    known[key] = {"digest": found["digest"], "read": found["read"]}
        except (KeyboardInterrupt, SystemExit) as end:
            wrong.append(str(end) or "stopped")
    exported.keep(
        target,
        {
            "date": datetime.date.today().isoformat(),
            "versions": versions,
            "unread": sorted(launches.keys() - known.keys()),
            "verdicts": {key: known[key] for key in launches if key in known},
        },
    )
    if wrong:
        sys.exit("\n".join(f"{target}: {line}" for line in wrong))
    print(f"{target}: {len(known)} of {len(launches)} exports read as they are meant by {versions}")


def is_now(before: dict[str, object], launch: Launch) -> bool:
    """Whether what was read then is what is exported now."""
    return before["digest"] == exported.digest(launch)


def answers(target: str, name: str, count: int) -> Iterator[dict[str, object]]:
    """What the reader says, line by line: its versions, then what it read of each export. Ends with a line where it fails."""
    if not count:
        return
    command = [python_for(target), "-P", HERE / "reading.py", HERE / f"{target}.py", name, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        for line in reader.stdout:
            yield json.loads(line)
    if reader.returncode:
        sys.exit(f"{target}: the reader ended with exit code {reader.returncode}")


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
