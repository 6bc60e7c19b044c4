"""Arguments of the public functions: one line of text for a value of a wrong type, in place of an error somewhere inside."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from reprlib import Repr
from typing import Any

from sim.errors import OptionError

EXPECTED = {
    "Topology": ("a topology", "hs.load(name or file) gives one"),
    "Plan": ("a plan", "hs.plan(topology).plan is one"),
    "IslandsPlan": ("a plan of islands", "hs.plan_islands(topology).plan may be one"),
    "DisaggregatedPlan": ("a plan with two sets of ranks", "hs.read_disaggregated(file) reads one"),
    "PipelinesPlan": ("a plan of unlike pipelines", "hs.read_pipelines(file) reads one"),
    "Simulated": ("a simulated step", "hs.simulate(plan) gives one"),
    "Timeline": ("a timeline", "hs.simulate(plan).timeline is one"),
    "Workload": ("a workload", "topology.workload is one"),
    "Wishes": ("an object of pinned dimensions", "hs.Wishes(tp=2) is one"),
    "RunOptions": ("an object of run options", "hs.RunOptions() has the usual ones"),
    "Cancel": ("an object with is_set()", "threading.Event() is one"),
    "str": ("a text", ""),
    "bytes": ("bytes", ""),
    "bool": ("True or False", ""),
    "int": ("a whole number", ""),
    "float": ("a number", ""),
    "Path": ("a path", ""),
}
"""Name of a type -> (what an argument of it is called, what gives one)."""
SECONDS = "time_limit"
"""The name of an argument that is a number of seconds."""
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


@functools.cache
def checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the package `holmes_sim` with this name, which raises OptionError for an argument of a wrong type.

    Arguments that are missing or unknown raise TypeError, as ever. It can be pickled by its name."""
    signature, hints = inspect.signature(function), typing.get_type_hints(function)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            arguments = signature.bind_partial(*given, **named).arguments
        except TypeError:
            arguments = {}
        for key, value in arguments.items():
            _check(name, signature.parameters[key], hints.get(key, Any), value)
        return function(*given, **named)

    call.__module__, call.__qualname__ = "holmes_sim", name
    return call


def _check(name: str, parameter: inspect.Parameter, hint: Any, value: Any) -> None:
    if parameter.kind == parameter.VAR_KEYWORD:  # pins, which `holmes_sim.pins` checks
        return
    for one in value if parameter.kind == parameter.VAR_POSITIONAL else (value,):
        if not _fits(one, hint):
            what, gives = _expected(hint)
            what = "a number of seconds" if parameter.name == SECONDS else what
            raise OptionError(f"{name}: {parameter.name}: {what} is expected, not {_SHORT.repr(one)}{gives and f'; {gives}'}")


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type. A text is no list of texts; elements of other iterables than lists are not looked at."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if hint is None or hint is type(None):
        return value is None
    if hint in (bool, int, float):
        return _is_number(value, hint)
    if origin is None:
        return _is_instance(value, hint)
    if issubclass(origin, Callable):  # type: ignore[arg-type]  # an abstract class is a class
        return callable(value)
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return False
    return not isinstance(value, list | tuple) or all(_fits(one, inner[0]) for one in value)


def _is_number(value: object, hint: type) -> bool:
    """Whether a value is True or False, a whole number, or a number. True is no number; NaN is none, either."""
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    kind = numbers.Integral if hint is int else numbers.Real
    return isinstance(value, kind) and not math.isnan(value)


def _is_instance(value: object, kind: type) -> bool:
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, member) for member in vars(kind) if not member.startswith("_"))
    return isinstance(value, kind)


def _expected(hint: Any) -> tuple[str, str]:
    """(what is expected, what gives one) of a type."""
    origin, inner = typing.get_origin(hint), [one for one in typing.get_args(hint) if one is not type(None)]
    if origin in (typing.Union, types.UnionType):
        whats, gives = zip(*map(_expected, inner), strict=True)
        return " or ".join(dict.fromkeys(whats)), next(filter(None, gives), "")
    if origin is typing.Literal:
        return " or ".join(map(repr, inner)), ""
    if origin is None:
        return EXPECTED.get(hint.__name__, (f"a {hint.__name__}", ""))
    if issubclass(origin, Callable):  # type: ignore[arg-type]  # an abstract class is a class
        return "a function", ""
    return ("a mapping", "") if issubclass(origin, Mapping) else (f"a list ({_expected(inner[0])[0]} each)", "")
