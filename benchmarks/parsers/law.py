"""What exporters refuse and what the targets' own parsers refuse, compared on random plans.

`python -m benchmarks parsers --megatron FOLDER [--holmes FOLDER] ... [--plans N] [--seed S] [--python PATH]`

A folder is a checkout of the target, or where it is installed; `benchmarks.parsers.NAME_program` says what of it runs, at which
version it was read, and what it needs. Every plan of `draws` is written for the target, also where the exporter refuses it, and
read by the target's parser. Prints, for each target, how many plans both take, both refuse, and only one refuses, with each
reason. Ends with exit code 1 where the target refuses what its exporter takes, and where an exporter refuses for a reason that
is neither the parser's nor known to come behind it (`reasons`). 300 plans take a minute or two for each target.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.parsers import draws, reasons
from holmes_sim import exporters
from holmes_sim.launching import folder
from sim.errors import OptionError
from sim.formats import planfile
from sim.plan.plan import Plan
from tests.peers import exported

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / "tests" / "peers"
OWN = HERE / "megatron_program.py"
TARGETS = ("megatron", "flagscale", "torchtitan", "deepspeed", "holmes")
DIFFERS = "Differs: "
"""How an answer begins where the target takes a launch, and reads another plan."""
USUAL = {"deepspeed": "1f1b-deepspeed"}
"""Targets whose plain schedule is not Megatron-LM's 1F1B."""
HEAD = (
    "| target | plans | both take | both refuse | it reads another plan | only we refuse | only it refuses |",
    "| --- " + "| ---: " * 6 + "|",
)


class Asked(NamedTuple):
    """What was said of a plan: each refusal of the exporter, whether something could be written for the target, and the
    refusal of the target's parser, with its place (empty: taken)."""

    ours: tuple[str, ...]
    is_written: bool
    theirs: str

    @property
    def kind(self) -> str:
        """Who refuses it."""
        if not self.ours:
            return "it" if self.theirs else "take"
        if self.theirs.startswith(DIFFERS):
            return "other"
        return "both" if self.theirs or not self.is_written else "we"


class Program:
    """The parser of a target in a process of its own. Raises OptionError where its folder has none."""

    def __init__(self, target: str, where: Path, python: str = sys.executable):
        program = OWN if target == "megatron" else HERE / "peer_program.py"
        words = [python, "-W", "ignore", "-P", HERE / "reading.py", program, where.resolve()]
        variables = os.environ | {"PEER": str(PEERS / f"{target}.py")}
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
        if why := self._answer(target)["refused"]:
            self.close()
            raise OptionError(f"--{target} {where}: this folder has no {target} that can be imported: {why}")

    def refusal(self, target: str, launch: dict[str, object]) -> str:
        """Why the target refuses what was written, empty where it takes it. Raises SystemExit where the program ended."""
        assert self._process.stdin is not None
        print(json.dumps(launch), file=self._process.stdin, flush=True)
        found = self._answer(target)
        return f"{found['refused']} ({found['at']})" if found["refused"] else ""

    def close(self) -> None:
        """End it."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()

    def _answer(self, target: str) -> dict[str, str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the parser of {target} ended with exit code {self._process.wait()}")
        found: dict[str, str] = json.loads(line)
        return found


def written(plan: Plan, target: str) -> dict[str, object] | None:
    """What is launched for a target, refused plans included; None where nothing can be written."""
    try:
        files = exporters.get(target).launch(plan).files
    except (KeyError, ValueError, ZeroDivisionError, StopIteration):
        return None
    texts = {name: file.content for name, file in files.items() if isinstance(file.content, str)}
    variables = dict(re.findall(r"^export (CUDA_DEVICE_MAX_CONNECTIONS)='(\d+)'$", "\n".join(texts.values()), re.M))
    texts[folder.PLAN] = planfile.to_json(plan)
    facts = {"plan": json.loads(texts[folder.PLAN]), "facts": exported.facts(plan)}
    return {"files": texts, "world": plan.config.world_size, "environment": variables} | facts


def asked(plan: Plan, target: str, program: Program) -> Asked:
    """What exporter and parser say of a plan."""
    ours, launch = tuple(exporters.unsupported(target, plan)), written(plan, target)
    if launch is None and not ours:
        raise AssertionError(f"{target} takes {plan}, and nothing can be written")
    return Asked(ours, launch is not None, program.refusal(target, launch) if launch else "")


def show(options: list[str]) -> None:
    """Print a table of all targets, then each reason of which only one side knows. Raises SystemExit where the law fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks parsers", description=str(__doc__).partition("\n")[0])
    for target in TARGETS:
        parser.add_argument(f"--{target}", type=Path, metavar="FOLDER")
    parser.add_argument("--plans", type=int, default=300, metavar="N", help="plans of each target (default 300)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the drawn plans (default 0)")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="of the parsers (default: this one)")
    given = parser.parse_args(options)
    folders = {target: where for target in TARGETS if (where := getattr(given, target))}
    if not folders:
        parser.error(f"name a folder of {', '.join(TARGETS)}")
    known: dict[str, list[Asked]] = {}
    if missing := [f"--{target} {where}" for target, where in folders.items() if not where.is_dir()]:
        parser.error(f"{', '.join(missing)}: no such folder")
    for target, where in folders.items():
        try:
            program = Program(target, where, given.python)
        except OptionError as error:
            parser.error(str(error))
        plans = draws.plans(given.seed, USUAL.get(target, "1f1b"), given.plans)
        known[target] = [asked(plan, target, program) for plan in plans]
        program.close()
    for line in table(known):
        print(line, flush=True)
    if any(broken(target, one) for target, every in known.items() for one in every):
        raise SystemExit(1)


def broken(target: str, one: Asked) -> bool:
    """Whether a plan breaks the law: its target refuses what is exported, or only an unknown reason of ours refuses it."""
    return one.kind == "it" or (one.kind == "we" and not all(reasons.behind(target, reason) for reason in one.ours))


def table(known: dict[str, list[Asked]]) -> Iterator[str]:
    """A row for each target, then its reasons."""
    yield from HEAD
    for target, every in known.items():
        kinds = Counter(one.kind for one in every)
        numbers = " | ".join(str(kinds[kind]) for kind in ("take", "both", "other", "we", "it"))
        yield f"| {target} | {len(every)} | {numbers} |"
    for target, every in known.items():
        yield from _reasons(target, every)


def _reasons(target: str, every: Iterable[Asked]) -> Iterator[str]:
    """Each reason of which only one side knows, with its number, the commonest first."""
    theirs, ours = Counter[str](), Counter[str]()
    for one in every:
        if one.kind == "it":
            theirs[one.theirs] += 1
        elif one.kind == "we":
            ours.update(reasons.behind(target, reason) or f"NOT KNOWN: {reason}" for reason in one.ours)
    yield from (f"{target} alone refuses {number}: {reason}" for reason, number in theirs.most_common())
    yield from (f"{target} takes {number} that we refuse: {reason}" for reason, number in ours.most_common())
