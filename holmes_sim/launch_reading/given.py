"""What the user says of a launch beside its file."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.errors import HolmesError
from sim.workload.model import Model


@dataclass(frozen=True, slots=True)
class Given:
    """`variables`: values of shell variables, in place of the script's; `model`: the model, in place of the launch's."""

    variables: dict[str, str] = field(default_factory=dict)
    model: Model | None = None


def variables(words: list[str]) -> dict[str, str]:
    """NAME=VALUE words as a mapping. Raises HolmesError for another word."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise HolmesError(f"--var {word!r} should be NAME=VALUE, such as TP=8")
        found[name] = value
    return found
