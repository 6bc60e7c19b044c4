"""mkdocs hooks that generate parts of the reference from the code when the site is built.

A comment on a line of its own, for example `<!-- generated: commands -->`, is replaced by the generated part. Links to files
outside `docs/` work in a checkout only; on the site they are replaced by the path of the file.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from html import escape
from typing import Any

import typer

import holmes_sim
from holmes_sim.cases import CasesFacts
from holmes_sim.cli import application
from holmes_sim.cli.commands import schema as schema_command

GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
OUTWARD = re.compile(r"\[([^\]]+)\]\((\.\./(?!pictures/)[^)#]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """The text of a page with its generated parts filled in."""
    filled = GENERATED.sub(lambda found: "\n".join(PARTS[found[1]]()), markdown)
    return OUTWARD.sub(_outward, filled) if "/" not in page.file.src_uri else filled


def _outward(link: re.Match[str]) -> str:
    path = link[2].removeprefix("../")
    return f"`{path}`" if link[1].strip("`") == path else f"{link[1]} (`{path}`)"


def commands() -> Iterator[str]:
    """One section for each command, from its typer declaration."""
    group: Any = typer.main.get_command(application())
    for name, command in group.commands.items():
        context = command.make_context(name, [], resilient_parsing=True)
        arguments = [one.metavar for one in command.params if one.param_type_name == "argument"]
        yield f"## {name}\n\n{_prose(command.help)}\n\n```\n{' '.join(['holmes-sim', name, *arguments, '[OPTIONS]'])}\n```\n"
        rows = [_parameter(one, context) for one in command.params if not getattr(one, "hidden", False)]
        yield from _table(("argument or option", "meaning"), rows)
        yield f"{command.epilog.replace('Example: ', 'Example: `')}`\n"


def _parameter(parameter: Any, context: Any) -> tuple[str, str]:
    """(name, meaning) of an argument or option, as printed by --help."""
    names, meaning = parameter.get_help_record(context)
    return f"`{parameter.metavar if parameter.param_type_name == 'argument' else names}`".replace("|", "\\|"), _prose(meaning)


def interface() -> Iterator[str]:
    """One section for each public name of holmes_sim, filled by mkdocstrings from the docstring of its definition."""
    for name, module in holmes_sim._PUBLIC.items():
        yield f"::: {module}.{name}\n    options:\n      heading: hs.{name}\n      toc_label: hs.{name}\n"
    for name in holmes_sim._MODULES:
        yield f"::: holmes_sim.{name}\n    options:\n      heading: hs.{name}\n      toc_label: hs.{name}\n"


def formats() -> Iterator[str]:
    """One section for each file format, with a table for each of its objects."""
    written: set[str] = set()
    for title, schema in (
        *((name.capitalize(), _schema(name)) for name in ("topology", "plan", "require", "study", "expert-counts")),
        ("Measured runs", CasesFacts.model_json_schema()),
    ):
        yield f"## {title}\n\n{_prose(schema.get('description', ''))}\n"
        yield from _keys(schema)
        for name, part in schema.get("$defs", {}).items():
            if name not in written:
                written.add(name)
                yield f"### {name}\n\n{_prose(part.get('description', ''))}\n"
                yield from _keys(part)


def _schema(name: str) -> dict[str, Any]:
    """The JSON Schema that `holmes-sim schema` prints."""
    with redirect_stdout(io.StringIO()) as printed:
        schema_command.command(name)
    schema: dict[str, Any] = json.loads(printed.getvalue())
    return schema


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    required = schema.get("required", [])
    rows = []
    for key, facts in schema.get("properties", {}).items():
        default = (
            "required" if key in required else f"`{facts['default']}`" if facts.get("default") not in (None, {}, [], "") else ""
        )
        rows.append((f"`{key}`", _type(facts), "" if len(default) > 60 else default, _prose(_description(facts))))
    yield from _table(("key", "type", "default", "meaning"), rows)


def _type(facts: dict[str, Any]) -> str:
    if "$ref" in facts:
        name = facts["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "const" in facts:
        return f"`{facts['const']}`"
    if "enum" in facts:
        return " or ".join(f"`{word}`" for word in facts["enum"])
    if "anyOf" in facts:
        return " or ".join(dict.fromkeys(_type(one) for one in facts["anyOf"] if one.get("type") != "null"))
    if facts.get("type") == "array":
        return f"list of {_type(facts['items'])}" if facts.get("items") else "list"
    if facts.get("type") == "object":
        inner = facts.get("additionalProperties")
        return f"map of {_type(inner)}" if isinstance(inner, dict) else "map"
    return (
        f"{facts.get('type', 'anything')}, for example `{facts['examples'][0]}`"
        if "examples" in facts
        else str(facts.get("type", "anything"))
    )


def _description(facts: dict[str, Any]) -> str:
    """The description of a key, or of one of its types."""
    parts = [facts, *facts.get("anyOf", []), facts.get("items", {})]
    inner = facts.get("additionalProperties")
    parts += [inner] if isinstance(inner, dict) else []
    return next((part["description"] for part in parts if "description" in part), "")


def _prose(text: str | None) -> str:
    return escape(" ".join((text or "").split()), quote=False).replace("|", "\\|")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        lines = [head, tuple("---" for _ in head), *rows]
        yield "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


PARTS = {"commands": commands, "interface": interface, "formats": formats}
