"""Copies of dataclasses with some fields changed, as `dataclasses.replace` makes, in a third of its time: the planner changes
shapes and configurations, which have dozens of fields, tens of thousands of times."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def changed(one: Kind, **changes: object) -> Kind:
    """A copy of a dataclass object with other values of some fields, which are checked as those of any new object.

    Its class has two or more fields, and all that its constructor takes can be given by position. Raises KeyError for a name
    that is no such field."""
    kind: Any = type(one)
    values_of, index = _fields_of(kind)
    values = list(values_of(one))
    for name, value in changes.items():
        values[index[name]] = value
    copy: Kind = kind(*values)
    return copy


@functools.cache
def _fields_of(kind: type[Any]) -> tuple[Callable[[Any], tuple[object, ...]], dict[str, int]]:
    """What gives the values of all fields of an object, and the position of each of them."""
    names = [one.name for one in fields(kind) if one.init]
    return operator.attrgetter(*names), {name: index for index, name in enumerate(names)}
