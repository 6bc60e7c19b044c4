"""Host lists as Slurm writes them: `gpu[001-003,007]` is gpu001, gpu002, gpu003 and gpu007.

Several brackets multiply (`r[1-2]n[1-2]`), commas outside brackets separate, leading zeros are kept (Slurm's scontrol, man
page section "show hostnames").
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from sim.errors import TopologyError

MAX_HOSTS = 1 << 20
"""Maximum number of hosts of one text. Guess: a larger range is assumed to be a typing error."""
_PART = re.compile(r"[^\[\],\s]+|\[[^\[\]]*\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> tuple[str, ...]:
    """Host names of a host list, in order. Raises TopologyError if the text is no host list."""
    found: list[str] = []
    for item in re.split(r",(?![^\[]*\])", text):
        found += _expanded(item.strip(), text)
        if len(found) > MAX_HOSTS:
            raise TopologyError(f"{text!r}: more than {MAX_HOSTS:,} hosts")
    return tuple(found)


def _expanded(item: str, text: str) -> list[str]:
    parts = _PART.findall(item)
    if not item or "".join(parts) != item:
        raise TopologyError(f"{text!r} is not a list of hosts; write for example gpu[001-004,007]")
    choices = [_numbers(part[1:-1], text) if part.startswith("[") else [part] for part in parts]
    size = 1
    for choice in choices:
        size *= len(choice)
    if size > MAX_HOSTS:
        raise TopologyError(f"{text!r}: more than {MAX_HOSTS:,} hosts")
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _numbers(inside: str, text: str) -> list[str]:
    found: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None:
            raise TopologyError(f"{text!r}: [{inside}] is not a list of numbers and ranges; write for example [001-004,007]")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= MAX_HOSTS:
            raise TopologyError(f"{text!r}: [{piece}] must ascend and have at most {MAX_HOSTS:,} hosts")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def compress(names: Iterable[str]) -> tuple[str, ...]:
    """Host list items of the names in the same order, with runs of consecutive numbers in brackets: the inverse of `expand`."""
    return tuple(_written(list(run)) for run in _runs(names))


def _split(name: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"(.*?)(\d*)(\D*)", name)
    assert match is not None
    return match[1], match[2], match[3]


def _runs(names: Iterable[str]) -> Iterator[list[tuple[str, str, str]]]:
    run: list[tuple[str, str, str]] = []
    for name in names:
        head, number, tail = _split(name)
        follows = bool(run) and bool(number) and (head, tail) == (run[-1][0], run[-1][2])
        if follows and number == str(int(run[-1][1] or -2) + 1).zfill(len(run[0][1])):
            run.append((head, number, tail))
            continue
        if run:
            yield run
        run = [(head, number, tail)]
    if run:
        yield run


def _written(run: list[tuple[str, str, str]]) -> str:
    head, first, tail = run[0]
    return f"{head}{first}{tail}" if len(run) == 1 else f"{head}[{first}-{run[-1][1]}]{tail}"
