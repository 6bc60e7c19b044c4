"""Units of quantities: SI floats in the program, text with a unit in files and on the command line.

In the program every number is in seconds, bytes, bytes per second, FLOP per second, watts or USD per second. In input and
output a quantity is text such as `200 Gbit/s`, `80 GiB` or `5 us`; a number without unit is an error, because it could mean
bits or bytes. GB is 10^9 bytes, GiB is 2^30 bytes; bits are written `bit`, bytes `B`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TypeAlias

Seconds: TypeAlias = float
Bytes: TypeAlias = float
BytesPerSecond: TypeAlias = float
Flops: TypeAlias = float
FlopsPerSecond: TypeAlias = float
Watts: TypeAlias = float
UsdPerSecond: TypeAlias = float
UsdPerToken: TypeAlias = float
JoulesPerToken: TypeAlias = float

BITS_PER_BYTE = 8
KILO, MEGA, GIGA, TERA, PETA = 1e3, 1e6, 1e9, 1e12, 1e15
KIBI, MEBI, GIBI, TEBI = 2**10, 2**20, 2**30, 2**40
MICRO, MILLI = 1e-6, 1e-3

_DECIMAL = {"": 1.0, "k": KILO, "M": MEGA, "G": GIGA, "T": TERA, "P": PETA}
_BINARY = {"Ki": KIBI, "Mi": MEBI, "Gi": GIBI, "Ti": TEBI}

_BYTES = {f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()}
_RATES = {f"{unit}/s": f for unit, f in _BYTES.items()} | {f"{p}bit/s": f / BITS_PER_BYTE for p, f in _DECIMAL.items()}
_TIMES = {"s": 1.0, "ms": MILLI, "us": MICRO, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_FLOPS = {f"{p}FLOP/s": f for p, f in _DECIMAL.items()}
_WATTS = {"W": 1.0, "kW": KILO}
_PRICES = {"USD/h": 1 / _TIMES["h"]}
_TOKENS = {"k": KILO, "M": MEGA, "B": GIGA, "T": TERA}
_MONEY = {f"{p}USD": f for p, f in _DECIMAL.items()}
_COSTS = {"USD/Mtoken": 1 / MEGA, "USD/token": 1.0}

KINDS: dict[str, tuple[dict[str, float], str]] = {
    "rate": (_RATES, "200 Gbit/s"),
    "size": (_BYTES, "80 GiB"),
    "time": (_TIMES, "5 us"),
    "compute rate": (_FLOPS, "312 TFLOP/s"),
    "power": (_WATTS, "400 W"),
    "price": (_PRICES, "2.50 USD/h"),
    "cost": (_COSTS, "0.15 USD/Mtoken"),
    "number of tokens": (_TOKENS, "2T"),
    "sum of money": (_MONEY, "500 kUSD"),
}
"""Kind of quantity -> (unit -> SI factor, example text)."""

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]+)")


def parse(value: object, kind: str) -> float:
    """SI value of a quantity of a kind (a key of `KINDS`). Raises ValueError that shows a right example."""
    units, example = KINDS[kind]
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a {kind}: the unit is missing; write for example '{example}'")
    match = _QUANTITY.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a {kind}; write for example '{example}'")
    number, unit = match.groups()
    if unit not in units:
        meant = _meant(unit, units)
        example = f"{number} {meant}" if meant else example
        raise ValueError(f"{value!r} is not a {kind}: unit {unit!r} is unknown here; write for example '{example}'")
    si = float(number) * units[unit]
    if not math.isfinite(si):
        raise ValueError(f"{value!r} is too large")
    return si


_SPELLINGS = (("b(ps|/s)", "bit/s"), ("Bps", "B/s"), ("(?i:flops)", "FLOP/s"))
"""(how units that are not taken end, how those that they mean do)."""


def _meant(unit: str, units: Iterable[str]) -> str:
    """The unit that one in other letters means, such as Gbit/s for `Gbps` and `GBit/s`; empty where there is none."""
    for ending, right in _SPELLINGS:
        unit = re.sub(f"{ending}$", right, unit)
    return next((one for one in units if one.lower() == unit.lower()), "")


def common_unit(values: Iterable[object]) -> tuple[str, tuple[float, ...]] | None:
    """(unit of the first quantity, all numbers in that unit); None if a value is no quantity or the kinds differ."""
    found = [_QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None for value in values]
    pairs = [(float(match[1]), match[2]) for match in found if match is not None]
    if not pairs or len(pairs) < len(found):
        return None
    first = pairs[0][1]
    for units, _ in KINDS.values():
        if all(unit in units for _, unit in pairs):
            return first, tuple(n if unit == first else n * units[unit] / units[first] for n, unit in pairs)
    return None


def _scaled(value: float, unit: str) -> str:
    for prefix in ("P", "T", "G", "M", "k"):
        if abs(value) >= _DECIMAL[prefix]:
            return f"{value / _DECIMAL[prefix]:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def rate_text(value: BytesPerSecond) -> str:
    """Bytes per second as text in bits, as for networks: `200 Gbit/s`."""
    return _scaled(value * BITS_PER_BYTE, "bit/s")


def bytes_per_second_text(value: BytesPerSecond) -> str:
    """Bytes per second as text in bytes, as for interconnects: `300 GB/s`."""
    return _scaled(value, "B/s")


def flops_text(value: FlopsPerSecond) -> str:
    """FLOP per second as text: `312 TFLOP/s`."""
    return _scaled(value, "FLOP/s")


def size_text(value: Bytes) -> str:
    """Bytes as text in binary units: `80 GiB`."""
    for prefix in ("Ti", "Gi", "Mi", "Ki"):
        if abs(value) >= _BINARY[prefix]:
            return f"{value / _BINARY[prefix]:.4g} {prefix}B"
    return f"{value:.4g} B"


def time_text(value: Seconds) -> str:
    """Seconds as text in s, ms or us: `7.74 s`, `12.5 ms`, `5 us`."""
    if value == 0 or abs(value) >= 1:
        return f"{value:.4g} s"
    if abs(value) >= MILLI:
        return f"{value / MILLI:.4g} ms"
    return f"{value / MICRO:.4g} us"


LONG_HOURS = 1000
"""Hours from which durations are written in whole hours with separators, not with an exponent."""


def duration_text(value: Seconds) -> str:
    """Long durations as text in h or min: `25,300 h`, `7.25 h`, `12 min`; below a minute as `time_text`."""
    if abs(value) >= _TIMES["h"]:
        hours = float(f"{value / _TIMES['h']:.3g}")
        return f"{hours:,.0f} h" if abs(hours) >= LONG_HOURS else f"{hours:g} h"
    return f"{value / _TIMES['min']:.3g} min" if abs(value) >= _TIMES["min"] else time_text(value)


def tokens_text(value: float) -> str:
    """A number of tokens as text: `2 T`, `300 B`, `100 M`."""
    if value >= TERA:
        return f"{value / TERA:.4g} T"
    return f"{value / GIGA:.4g} B" if value >= GIGA else f"{value / MEGA:.4g} M"
