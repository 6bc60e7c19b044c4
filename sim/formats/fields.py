"""Field types and base class of the pydantic models of files.

Quantities are text with a unit (`sim.units`). A validator raises ValueError with a message that says what would be right.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from sim import units
from sim.errors import TopologyError
from sim.formats import hostlist
from sim.workload.model import PRECISION_BYTES


def _quantity(kind: str) -> Any:
    """Annotated type of a quantity: parsed by `units.parse` to SI, in JSON Schema a text with an example."""
    accepted, example = units.KINDS[kind]
    schema = {"type": "string", "description": f"a {kind} with its unit: {', '.join(accepted)}", "examples": [example]}

    def positive(value: object) -> float:
        si = units.parse(value, kind)
        if si <= 0:
            raise ValueError(f"{value!r} must be greater than zero")
        return si

    def not_negative(value: object) -> float:
        return units.parse(value, kind)

    return Annotated[float, BeforeValidator(not_negative if kind == "time" else positive), WithJsonSchema(schema)]


Rate: Any = _quantity("rate")
Size: Any = _quantity("size")
Time: Any = _quantity("time")
ComputeRate: Any = _quantity("compute rate")
Power: Any = _quantity("power")
Price: Any = _quantity("price")
Cost: Any = _quantity("cost")
TokenCount: Any = _quantity("number of tokens")


def not_whole(value: object) -> str:
    """What is wrong with a value that is no whole number, and what it may mean: 8192 for `8k`, 1024 for `1,024`."""
    text = re.sub(r"[ ,_]", "", value) if isinstance(value, str) else ""
    match = re.fullmatch(r"(\d+)([kK]?)", text)
    right = f"; write {int(match[1]) * (units.KIBI if match[2] else 1)}" if match else ""
    return f"{value!r} is not a whole number{right}"


def _not_a_share(value: object, most: float) -> str:
    """What is wrong with a value that is no number up to `most`, and what it may mean: 0.08 for 8 or `8%`, where most is 1."""
    text = str(value).removesuffix("%").strip()
    percent = float(text) if most == 1 and re.fullmatch(r"\d+(\.\d+)?", text) else 0.0
    return f"; write {percent / 100:g} for {percent:g} %" if 0 < percent <= 100 else ""


def _positive(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(not_whole(value))
    if value < 1:
        raise ValueError(f"{value} must be at least 1")
    return value


def _efficiency(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    if not 0 < value <= 2:
        raise ValueError(f"{value} must be above 0 and at most 2 (1 unless it was fitted)")
    return float(value)


def _not_negative(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(not_whole(value))
    if value < 0:
        raise ValueError(f"{value} must not be negative")
    return value


def _between(least: float, most: float) -> BeforeValidator:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{value!r} is not a number{_not_a_share(value, most)}")
        if not least <= value <= most:
            below = f" and at most {most:g}" if most < LARGEST else ""
            raise ValueError(f"{value} must be at least {least:g}{below}{_not_a_share(value, most)}")
        return float(value)

    return BeforeValidator(check)


def _capacity_factor(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    if not 0 < value <= LARGEST:
        right = "above 0" if value <= 0 else f"at most {LARGEST:g}"
        raise ValueError(f"{value} must be {right}; leave it out to drop no token")
    return float(value)


def _exponent(value: object) -> object:
    """Read a text such as 3e-06 as a float: JSON and PyYAML write such numbers, YAML 1.1 reads them as text (no point)."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?[eE][+-]?\d+", value) else value


def _flag(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _cluster_pair(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"two cluster names are expected here, not {value!r}")
    return value


def _host_names(value: object) -> object:
    """Expanded host names of a text, or of a list of texts, in Slurm's notation."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"host names such as gpu[001-004], or a list of them, are expected here, not {value!r}")
    try:
        return [_host_name(name) for item in items for name in hostlist.expand(item)]
    except TopologyError as error:
        raise ValueError(str(error)) from None


def _host_name(value: object) -> str:
    """Check that a name is safe in a shell, in YAML and in an environment variable of NCCL."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*", value):
        raise ValueError(f"{value!r} is not a name of a host or interface; write letters, digits, '.', '_', ':' and '-'")
    return value


LARGEST = 1e6
"""Upper limit of numbers that have no limit of their own; refuses infinity. Guess; a larger one accepts more values."""


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


def _word_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


# Names, then integers and floats: Count >= 1, Whole >= 0, Fraction 0 to 1, UsefulShare 0.01 to 1, Ratio >= 1, Measured > 0,
# Share above 0 to 2.
HostNames = Annotated[list[str], BeforeValidator(_host_names)]
ClusterPair = Annotated[tuple[str, str], BeforeValidator(_cluster_pair)]
HostName = Annotated[str, BeforeValidator(_host_name)]
Count = Annotated[int, BeforeValidator(_positive)]
Whole = Annotated[int, BeforeValidator(_not_negative)]
# A whole number, or a list of them.
Wholes = Annotated[
    tuple[Whole, ...],
    BeforeValidator(_one_or_more),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
]
# A word, or a list of them.
Words = Annotated[
    tuple[str, ...],
    BeforeValidator(_word_or_more),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Fraction = Annotated[float, _between(0, 1)]
UsefulShare = Annotated[float, _between(0.01, 1)]
Ratio = Annotated[float, _between(1, LARGEST)]
NonNegative = Annotated[float, _between(0, LARGEST), BeforeValidator(_exponent)]
Measured = Annotated[float, _between(1e-9, LARGEST), BeforeValidator(_exponent)]
RotaryBase = Annotated[float, _between(1, LARGEST**2), BeforeValidator(_exponent)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Share = Annotated[float, BeforeValidator(_efficiency)]
# Most tokens that an expert takes, over the mean: above 0.
CapacityFactor = Annotated[float, BeforeValidator(_capacity_factor)]
Factor = Annotated[float, _between(0.01, 100)]
RelativeError = Annotated[float, _between(0, LARGEST)]
PRECISIONS = tuple(PRECISION_BYTES)


def _precision(value: object) -> object:
    if value not in PRECISIONS:
        raise ValueError(f"precision {value!r} is unknown; known: {', '.join(PRECISIONS)}")
    return value


Precision = Annotated[str, BeforeValidator(_precision), WithJsonSchema({"enum": list(PRECISIONS)})]


class StrictModel(BaseModel):
    """Base class of the models of files: unknown keys are errors, instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
