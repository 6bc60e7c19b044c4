"""The command of a shell script: its words after expansion of variables and arrays, without running anything.

The script is followed statement by statement: assignments (`TP=8`, `export TP=${TP:-8}`, `ARGS=( ... )`, `ARGS+=( ... )`),
arithmetic, and `if` with comparisons of variables. Variables of the environment are unset, unless the user gives them. What
cannot be followed (tests of files, loops, output of commands) is left out; a value from it keeps its `$`, and the reader of the
value refuses it. Words are split by shlex, and again at blanks, as unquoted arrays are."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

ARRAY = re.compile(r"\s*(?:(?:declare|local|readonly|export)\s+(?:-\w+\s+)*)?(\w+)(\+?)=\(")
ASSIGNMENT = re.compile(r"(\w+)(\+?)=(.*)", re.DOTALL)
QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<!\S)#[^\n]*")
REFERENCE = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?:(:?[-=])([^{}]*))?\}|\$(\w+)")
ARITHMETIC = re.compile(r"\$\(\(([^`]*?)\)\)")
DECLARING = ("export", "local", "readonly", "declare")
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv, ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip
COMPARISONS = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
DEPTH = 20
"""Largest depth of references inside references; a guess that ends circles."""


@dataclass(slots=True)
class Script:
    """Words of every command of a script, in order, values of its variables, and blocks that were left out.

    `fixed`: variables whose value no assignment changes."""

    variables: dict[str, str]
    fixed: frozenset[str] = frozenset()
    commands: list[tuple[int, list[str]]] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    _open: list[bool | None] = field(default_factory=list)
    _taken: list[bool] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        """Whether the statement here is run: all conditions around it hold."""
        return all(self._open)

    def follow(self, line: int, text: str) -> None:
        """Follow one statement."""
        text = re.sub(r"^\s*(then|do)\b", "", text).strip()
        word = re.match(r"(if|elif|else|fi)\b", text)
        if word:
            self._branch(word[1], text[word.end() :])
        elif not self.runs:
            if "--" in text and None in self._open:
                self.left_out.append(line)
        elif text and not text.startswith("#"):
            self._statement(line, text)

    def _branch(self, word: str, condition: str) -> None:
        if word == "if":
            self._taken.append(False)
            self._open.append(False)
        if not self._open:
            return
        if word == "fi":
            self._open.pop()
            self._taken.pop()
            return
        holds: bool | None = not self._taken[-1] and (True if word == "else" else self._holds(condition))
        if word == "else" and self._open[-1] is None:
            holds = None
        self._open[-1] = holds
        self._taken[-1] |= bool(holds)

    def _statement(self, line: int, text: str) -> None:
        array = ARRAY.match(text)
        if array:
            inside = self.expand(text[array.end() : text.rindex(")")] if ")" in text else text[array.end() :])
            before = self.variables.get(array[1], "") + " " if array[2] else ""
            self._assign(array[1], before + " ".join(_split(inside)))
            return
        words = _split(ARITHMETIC.sub(self._computed, text))
        while words and words[0] in DECLARING:
            words = [word for word in words[1:] if not word.startswith("-")]
        assigned = [ASSIGNMENT.fullmatch(word) for word in words]
        if words and all(assigned):
            for match in filter(None, assigned):
                before = self.variables.get(match[1], "") if match[2] else ""
                self._assign(match[1], before + self.expand(match[3]))
            return
        expanded = [part for word in words for part in self.expand(word).split()]
        if expanded:
            self.commands.append((line, expanded))

    def _assign(self, name: str, value: str) -> None:
        if name not in self.fixed:
            self.variables[name] = value

    def expand(self, text: str) -> str:
        """The text with the values of variables; references without a value stay."""
        for _ in range(DEPTH):
            found = REFERENCE.sub(self._value, text)
            found = ARITHMETIC.sub(self._computed, found)
            if found == text:
                break
            text = found
        return text

    def _value(self, match: re.Match[str]) -> str:
        name, how, default = match[1] or match[4], match[2], match[3]
        known = self.variables.get(name)
        if known or (known is not None and how is None):
            return known
        if how is None:
            return match[0]
        value = default.strip("\"'")
        if "=" in how:
            self._assign(name, value)
        return value

    def _computed(self, match: re.Match[str]) -> str:
        text = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\}?", lambda name: self.variables.get(name[1], name[0]), match[1])
        try:
            return str(_evaluated(ast.parse(text.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError):
            return match[0]

    def _holds(self, condition: str) -> bool | None:
        """Whether a condition holds; None where that is not known. Variables without a value are empty."""
        every = [[self._test(part) for part in either.split("&&")] for either in condition.rstrip("; ").split("||")]
        results = [None if None in parts and False not in parts else all(parts) for parts in every]
        return True if True in results else None if None in results else False

    def _test(self, text: str) -> bool | None:
        match = re.fullmatch(r"\s*\[\[?\s+(.*?)\s+\]\]?\s*", text)
        if match is None:
            return None
        words = [REFERENCE.sub("", self.expand(word)) for word in _split(match[1])]
        if len(words) == 3 and words[1] in ("=", "==", "!="):
            return (words[0] == words[2]) != (words[1] == "!=")
        if len(words) == 3 and words[1] in COMPARISONS and words[0].isdigit() and words[2].isdigit():
            return bool(COMPARISONS[words[1]](int(words[0]), int(words[2])))
        if len(words) == 2 and words[0] in ("-z", "-n"):
            return bool(words[1]) == (words[0] == "-n")
        return None


def follow(text: str, variables: dict[str, str], fixed: dict[str, str] | None = None) -> Script:
    """Follow a script from its first to its last statement; it may change `variables`, but not `fixed`."""
    given = fixed or {}
    script = Script(variables | given, frozenset(given))
    for line, statement in statements(text):
        for part in parts(statement):
            script.follow(line, part)
    return script


def parts(statement: str) -> Iterator[str]:
    """The statements that `;` separates, outside quotes and brackets."""
    masked = QUOTED.sub(lambda match: "x" * len(match[0]), statement)
    begun, depth = 0, 0
    for index, sign in enumerate(masked):
        depth += (sign in "({") - (sign in ")}")
        if sign == ";" and depth == 0:
            yield statement[begun:index]
            begun = index + 1
    yield statement[begun:]


def statements(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of every statement: lines that a backslash, a quote or an array joins."""
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first if begun else number
        begun += line
        if re.search(r"(?<!\\)\\\s*$", begun) and not line.lstrip().startswith("#"):
            begun = re.sub(r"\\\s*$", " ", begun)
        elif _is_open(begun):
            begun += "\n"
        else:
            yield first, begun
            begun = ""
    if begun.strip():
        yield first, begun


def _is_open(text: str) -> bool:
    """Whether a quote, or the bracket of an array, is not closed."""
    if text.lstrip().startswith("#"):
        return False
    bare = QUOTED.sub("", text)
    if '"' in bare or "'" in bare:
        return True
    return ARRAY.match(text) is not None and bare.count("(") > bare.count(")")


def _split(text: str) -> list[str]:
    """The words of a text without its comments; an open quote ends at its end."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _evaluated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return int(OPERATORS[type(node.op)](_evaluated(node.left), _evaluated(node.right)))
    raise ValueError(ast.unparse(node))
