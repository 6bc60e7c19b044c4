"""`make test-peers`: what is exported, read by the programs that it is for.

A module of this folder is the reader of one target: `versions()` says which programs it runs, and `read(folder, plan)` runs
them on an exported folder and returns what they read. It runs in an environment of its own (`requirements-TARGET.txt`), imports
nothing of holmes-sim, and what it says is compared with the plan. The verdicts are kept in `verdicts/TARGET.json` with their
date: tests/holmes_sim/exporters/test_verdicts.py sees that what is exported today is what was read then.

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
    """Export all plans for a target, have them read, compare, and keep the verdicts. Ends with exit code 1 at a difference."""
    with tempfile.TemporaryDirectory() as name:
        plans = {key: (plan, launch) for key, plan, launch in exported.launches(target)}
        for index, (plan, launch) in enumerate(plans.values()):
            folder.write(folder.complete(plan, target, "", launch), Path(name) / str(index))
            (Path(name) / str(index) / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
        command = [python_for(target), "-P", HERE / "reading.py", HERE / f"{target}.py", name, str(len(plans))]
        told = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    if told.returncode or len(lines) != len(plans) + 1:
        sys.exit(f"{target}: the reader ended with exit code {told.returncode} after {len(lines)} lines")
    versions, *answers = lines
    verdicts = {
        key: verdict(plan, launch, answer) for (key, (plan, launch)), answer in zip(plans.items(), answers, strict=True)
    }
    wrong = {key: kept["differs"] for key, kept in verdicts.items() if kept["differs"]}
    for key, differs in wrong.items():
        print(f"{target}: {key}: {'; '.join(differs)}")
    if wrong:
        sys.exit(f"{target}: {len(wrong)} of {len(verdicts)} exports are not read as they are meant")
    kept = {
        "date": datetime.date.today().isoformat(),
        "versions": versions,
        "verdicts": {key: {name: v[name] for name in ("digest", "read")} for key, v in verdicts.items()},
    }
    exported.keep(target, kept)
    print(f"{target}: {len(verdicts)} exports read as they are meant by {versions}")


def verdict(plan: Plan, launch: Launch, answer: dict[str, object]) -> dict[str, object]:
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
