"""Schemas of the JSON documents that commands print, and of the files that they read: one file, one format.

A module defines `NAME`, its own name with hyphens; `FORMAT`, the value of the key `format`; `WRITTEN_BY`, the command lines
that print or write the document (empty for a file that you write); and `MODEL`, a pydantic model. The first line of its
docstring says what the document is. The folder is the registry; `holmes-sim schema NAME` prints a schema."""

from __future__ import annotations

import functools
import operator
from typing import Annotated, Any, Protocol, get_args

from pydantic import Field, TypeAdapter

from sim.formats.fields import StrictModel
from sim.registry import Registry, known_names

DIALECT = "https://json-schema.org/draft/2020-12/schema"
RESULT = "result"
"""Name of the schema that accepts every document that a command prints or writes."""


class Schema(Protocol):
    """Interface of every module of this folder. `FORMAT` is the first format where `MODEL` takes several (`formats`)."""

    NAME: str
    FORMAT: str
    WRITTEN_BY: tuple[str, ...]
    MODEL: type[StrictModel]
    __doc__: str | None


def _hint(name: str, known: tuple[str, ...]) -> str:
    return known_names(name, (RESULT, *known))


REGISTRY: Registry[Schema] = Registry(__name__, "schema", hint=_hint, by_constant=True)


def names() -> tuple[str, ...]:
    """Names of all schemas: `result`, then the documents, sorted."""
    return (RESULT, *REGISTRY.names)


def results() -> tuple[Schema, ...]:
    """The documents that commands print or write, in the order of their names."""
    return tuple(entry for entry in REGISTRY.entries() if entry.WRITTEN_BY)


def formats(entry: Schema) -> tuple[str, ...]:
    """Values of the key `format` that a document may have."""
    return get_args(entry.MODEL.model_fields["format"].annotation)


def what(entry: Schema) -> str:
    """What a document is: the first line of its module's docstring, without the full stop."""
    return (entry.__doc__ or "").strip().splitlines()[0].removesuffix(".")


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document; for `result`, of all that commands print or write, told apart by `format`.

    Raises OptionError for an unknown name."""
    if name == RESULT:
        union = functools.reduce(operator.or_, (entry.MODEL for entry in results()))
        any_of_them: Any = Annotated[union, Field(discriminator="format")]
        found: dict[str, Any] = TypeAdapter(any_of_them).json_schema()
    else:
        found = REGISTRY.get(name).MODEL.model_json_schema()
    return found | {"title": f"holmes-sim {name.replace('-', ' ')}", "$schema": DIALECT}
