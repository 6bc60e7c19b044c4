"""YAML and JSON documents: parse text, validate it with a pydantic model, and report every fault of a file with its line.

Only this file uses PyYAML. Each fault becomes one line `file:line: key: what is wrong; what would be right`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from sim.errors import HolmesError, TopologyError
from sim.formats.suggestions import suggestion

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
KeyPath = tuple[str | int, ...]
"""Keys and indices from the root of a document to a value."""
Checked = TypeVar("Checked", bound=BaseModel)
MISSING = "this key is missing"
WANTED = dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number")
WANTED |= {"string_type": "text", "float_type": "a number", "float_parsing": "a number"}
"""Kind of a fault of pydantic -> what should be written."""


class Document:
    """A parsed file and the line of every key.

    `duplicates` are keys given twice, with the repeating line. `outer` is the path of this document inside a larger file.
    `find_lines` returns the line of every key; it is called when the first fault needs one.
    """

    def __init__(
        self,
        name: str,
        value: object,
        find_lines: Callable[[], Mapping[KeyPath, int]],
        duplicates: list[tuple[KeyPath, int]],
        outer: KeyPath = (),
    ):
        self.name, self.value, self.duplicates, self.outer = name, value, duplicates, outer
        self._find_lines = functools.cache(find_lines)

    @property
    def lines(self) -> Mapping[KeyPath, int]:
        """Line of every key and element."""
        return self._find_lines()

    def inside(self, *keys: str | int) -> Document:
        """The part of the document at a path of keys and indices that exists."""
        value = self.value
        for key in keys:
            value = value[key]  # type: ignore[index]

        def lines() -> Mapping[KeyPath, int]:
            return {path[len(keys) :]: line for path, line in self.lines.items() if path[: len(keys)] == keys}

        return Document(self.name, value, lines, [], (*self.outer, *keys))

    def line(self, path: Iterable[str | int]) -> int:
        """Line of a key, or of its nearest ancestor that exists."""
        where = tuple(path)
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)

    def fault(self, path: Iterable[str | int], message: str) -> str:
        """Message of a fault with file, line and key."""
        where = tuple(path)
        key = key_text((*self.outer, *where))
        return f"{self.name}:{self.line(where)}: {key + ': ' if key else ''}{message}"


def to_yaml(value: object) -> str:
    """YAML text of a value: keys in their order, short lists and mappings on one line."""
    return str(yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=128, allow_unicode=True))


def key_text(path: Iterable[str | int]) -> str:
    """Text of a path in a document: `clusters.ib.node.nics[0].bandwidth`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_text(path: str | Path, error: type[HolmesError] = TopologyError) -> str:
    """Text of a file without its byte order mark; raises `error` with one line if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except IsADirectoryError:
        raise error(f"{path}: is a folder, not a file") from None
    except PermissionError:
        raise error(f"{path}: permission denied") from None
    except UnicodeDecodeError as fault:
        raise error(f"{path}: not a UTF-8 text file ({fault.reason} at byte {fault.start})") from None


def parse(name: str, text: str) -> Document:
    """Parse YAML or JSON text; raises TopologyError if it is malformed. `check` reports keys given twice."""
    try:
        return Document(name, json.loads(text, object_pairs_hook=_unique_keys), lambda: _lines(Loader(text))[1], [])
    except (ValueError, RecursionError):  # YAML, or JSON with a fault: parse it with lines
        return _parse_yaml(name, text)


def parse_json(name: str, text: str) -> Document:
    """Parse JSON text, possibly one long line; raises HolmesError if it is malformed or gives a key twice."""
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as fault:
        raise HolmesError(f"{name}:{fault.lineno}: not well-formed JSON: {fault.msg} (column {fault.colno})") from None
    except (ValueError, RecursionError) as fault:
        raise HolmesError(f"{name}:1: not well-formed JSON: {fault}") from None
    return Document(name, value, lambda: _lines(Loader(text))[1] if text.strip().count("\n") else {}, [])


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object as a dict; raises ValueError if a key is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _lines(loader: Any) -> tuple[yaml.Node | None, dict[KeyPath, int], list[tuple[KeyPath, int]]]:
    """(the root of a YAML text, line of every key and element, keys given twice with the line that repeats them)."""
    lines: dict[KeyPath, int] = {}
    duplicates: list[tuple[KeyPath, int]] = []

    def walk(node: yaml.Node | None, path: KeyPath) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                child = (*path, str(key.value))
                if child in lines:
                    duplicates.append((child, key.start_mark.line + 1))
                lines.setdefault(child, key.start_mark.line + 1)
                walk(value, child)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                lines[(*path, index)] = value.start_mark.line + 1
                walk(value, (*path, index))

    walk(root := loader.get_single_node(), ())
    return root, lines, duplicates


def _parse_yaml(name: str, text: str) -> Document:
    kind = "JSON" if Path(name).suffix == ".json" else "YAML"
    try:
        loader = Loader(text)
        root, lines, duplicates = _lines(loader)  # the lines and the value come from one scan of the text
        value = None if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line = mark.line + 1 if mark else 1
        raise TopologyError(f"{name}:{line}: not well-formed {kind}: {fault.problem or fault.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as fault:
        raise TopologyError(f"{name}:1: not well-formed {kind}: {str(fault).splitlines()[0]}") from None
    return Document(name, value, lambda: lines, duplicates)


def check(document: Document, schema: type[Checked], more: Iterable[tuple[KeyPath, str]] = ()) -> Checked:
    """The document as an instance of `schema`; raises TopologyError with one line per fault, the (path, text) of `more`
    included, or with one line for a document of another kind."""
    faults = [(path, f"key given twice; line {line} repeats it") for path, line in document.duplicates]
    if not isinstance(document.value, dict):
        expected, value = "a mapping of keys is expected here", document.value
        text = f"the file is empty; {expected}" if value is None else f"{expected}, not {type(value).__name__}"
        raise TopologyError(document.fault((), text))
    if other := _other_kind(document.value, schema):
        raise TopologyError(document.fault(("format",), other))
    try:
        checked = schema.model_validate(document.value)
    except ValidationError as error:
        checked, faults = None, faults + _faults(document, error, schema)
    said = [*more]
    told = {path for path, text in said if text.startswith(MISSING)}
    faults = [fault for fault in faults if fault[0] not in told] + said
    if faults or checked is None:
        lines = dict.fromkeys(document.fault(*fault) for fault in sorted(faults, key=lambda fault: document.line(fault[0])))
        raise TopologyError("\n".join(lines))
    return checked


def _other_kind(value: Mapping[str, object], schema: type[BaseModel]) -> str:
    """A text for a document of another kind than that of the schema, such as a plan for a study; empty for others."""
    known = [name for part in get_args(_annotation_at(schema, "format")) for name in get_args(part) or (part,)]
    written, wanted = str(value.get("format")), next((name for name in known if isinstance(name, str)), "")
    kinds = {name.rpartition("/")[0] for name in (written, wanted) if name.count("/") == 2 and name.startswith("holmes-sim/")}
    return f"{written!r} is another kind of file; {wanted!r} is expected" if len(kinds) == 2 else ""


def _faults(document: Document, error: ValidationError, schema: type[BaseModel]) -> list[tuple[KeyPath, str]]:
    """(path, text) of every fault; for a union (a name or facts in place) only those of the branch that was written."""
    lines = []
    for item in error.errors(include_url=False):
        if "[key]" in item["loc"] and item["type"] == "string_type":
            continue  # a key that is not text: `sim.formats.topology` reports it
        path, branch = _document_path(document.value, item["loc"], item["type"] == "missing")
        written = _value_at(document.value, path)
        if (branch == "str" or branch.startswith("literal[")) and isinstance(written, dict):
            continue
        if branch and branch != "str" and not isinstance(written, dict) and item["type"] in {"model_type", "dict_type"}:
            continue
        lines.append((path, _message(item, written, schema)))
    return lines


def _document_path(value: object, loc: tuple[str | int, ...], missing: bool) -> tuple[KeyPath, str]:
    """(path in the document, union branch) of pydantic's location, which mixes keys and names of union branches.

    The last part is a key even if absent, where the fault is a missing key."""
    path: list[str | int] = []
    branch = ""
    for index, part in enumerate(loc):
        inside = isinstance(value, dict) and part in value
        inside = inside or (isinstance(value, list) and isinstance(part, int) and part < len(value))
        if inside:
            value = value[part]  # type: ignore[index]
            path.append(part)
        elif missing and index == len(loc) - 1:
            path.append(part)
        else:
            branch = str(part)
    return tuple(path), branch


def _value_at(value: object, path: KeyPath) -> object:
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _message(item: object, written: object, schema: type[BaseModel]) -> str:
    assert isinstance(item, Mapping)
    kind, text, context = item["type"], str(item["msg"]), item.get("ctx") or {}
    if kind == "extra_forbidden":
        return "unknown key" + suggestion(str(item["loc"][-1]), _sibling_keys(schema, item["loc"]))
    if kind == "missing":
        return MISSING + _only_value(schema, item["loc"])
    if kind == "value_error":
        return str(context.get("error", text))
    if kind in WANTED:
        return f"{written!r} is not {WANTED[kind]}"
    if kind in {"dict_type", "model_type"}:
        return f"a mapping of keys is expected here, not {written!r}"
    if kind in {"list_type", "tuple_type"}:
        return f"a list is expected here, not {written!r}"
    if kind == "too_short":
        return "at least one is needed"
    if kind == "literal_error":
        expected = str(context["expected"])
        return f"{written!r} is unknown; known: {expected}"
    return f"{written!r}: {text[:1].lower()}{text[1:]}"


def _only_value(schema: type[BaseModel], loc: tuple[str | int, ...]) -> str:
    """`; write format: x` for a missing key that has one possible value, else nothing."""
    annotation = functools.reduce(_annotation_at, loc, cast(object, schema))
    values = get_args(annotation) if get_origin(annotation) is Literal else ()
    return f"; write {loc[-1]}: {values[0]}" if len(values) == 1 else ""


def _sibling_keys(schema: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """Keys that the schema allows at the location of a fault."""
    models = _models_in(functools.reduce(_annotation_at, loc[:-1], cast(object, schema)))
    return sorted({info.alias or name for model in models for name, info in model.model_fields.items()})


def _annotation_at(current: object, part: str | int) -> object:
    for model in _models_in(current):
        for name, info in model.model_fields.items():
            if part in (name, info.alias):
                return info.annotation
    if isinstance(part, str) and any(model.__name__ == part for model in _models_in(current)):
        return current
    arguments = getattr(current, "__args__", ())
    return arguments[-1] if arguments and not _models_in(current) else current


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    origin = getattr(annotation, "__origin__", None)
    if origin in (list, dict, tuple):
        return []
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]
