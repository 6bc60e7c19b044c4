"""Documents that commands print, held against their schemas."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import jsonschema

from holmes_sim import schemas


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Validates documents of a name by the schema that `holmes-sim schema NAME` prints."""
    return jsonschema.Draft202012Validator(schemas.schema(name))


def conforms(document: Any) -> str:
    """The name of a document's schema. Fails if it has no `format`, if its model or its JSON Schema refuses it, and if it has
    numbers that JSON lacks, such as NaN."""
    text = json.dumps(document, allow_nan=False)
    found = json.loads(text)
    assert "format" in found, f"a document without format: {text[:80]}"
    names = {name: entry.NAME for entry in schemas.REGISTRY.entries() for name in schemas.formats(entry)}
    assert found["format"] in names, f"{found['format']} has no schema"
    name = names[found["format"]]
    schemas.REGISTRY.get(name).MODEL.model_validate_json(text)
    validator(name).validate(found)
    return name


def printed_documents(arguments: Sequence[object], printed: str) -> list[str]:
    """The texts of the documents that a command printed, given its arguments: none without --json or --json-lines."""
    if "--json-lines" in arguments:
        return printed.splitlines()
    return [printed] if "--json" in arguments else []
