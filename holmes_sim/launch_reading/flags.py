"""Flags of a command: their values as numbers and texts, and the line of the file where each is written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sim.errors import HolmesError


@dataclass(slots=True)
class Flags:
    """Values of the flags of one command by name, without dashes and with `-` for `_`; `used`: those that were asked for."""

    name: str
    text: str
    values: dict[str, list[str]]
    used: set[str] = field(default_factory=set)

    def has(self, flag: str) -> bool:
        """Whether a flag is there."""
        self.used.add(flag)
        return flag in self.values

    def words(self, flag: str) -> list[str]:
        """The values of a flag; empty if it has none or is not there. Raises HolmesError for a variable without a value."""
        self.used.add(flag)
        found = self.values.get(flag, [])
        for word in found:
            if "$" in word or "`" in word:
                name = re.search(r"\w+", word)
                what = f"variable {name[0]} has no value" if name and "(" not in word else "it comes from another command"
                raise self.fault(flag, f"{word}: {what}; give it with --var {name[0] if name else 'NAME'}=VALUE")
        return found

    def word(self, flag: str, default: str = "") -> str:
        """The value of a flag as text."""
        found = self.words(flag)
        return found[0] if found else default

    def number(self, flag: str, default: int | None = None, least: int = 1) -> int:
        """The value of a flag as a whole number. Raises HolmesError for another value, and if it is missing without default."""
        found = self.words(flag)
        if not found and default is not None and flag not in self.values:
            return default
        if len(found) != 1 or not found[0].isdigit() or int(found[0]) < least:
            if flag not in self.values:
                raise HolmesError(f"{self.name}: --{flag} is missing; write for example --{flag} {max(least, 1)}")
            shown = " ".join(found) or "no value"
            raise self.fault(flag, f"{shown}: a whole number of at least {least} is expected here")
        return int(found[0])

    def fault(self, flag: str, what: str) -> HolmesError:
        """An error at a flag."""
        return HolmesError(f"{self.name}:{self.line(flag)}: --{flag}: {what}")

    def line(self, flag: str) -> int:
        """The first line of the file where a flag is written outside a comment; 1 if there is none."""
        pattern = re.compile(rf"(?<![\w-])--{flag.replace('-', '[-_]')}(?![\w-])")
        lines = enumerate(self.text.splitlines(), 1)
        return next((number for number, line in lines if pattern.search(line.split("#")[0])), 1)


def by_name(words: Iterable[str]) -> dict[str, list[str]]:
    """Flags of a command with their values; the last one counts where a flag is repeated."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            flag, equals, value = word[2:].partition("=")
            values = found[flag.replace("_", "-")] = [value] if equals else []
        else:
            values.append(word)
    return found
