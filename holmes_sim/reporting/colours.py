"""Colours of the page as CSS properties: pipeline places as in the picture of a placement, spans as in that of a step.

Both are the colour-blind-safe ones of `holmes_sim.charts`, the same in both themes but for greys and black. Words on a colour
are black or white, whichever reads better (WCAG 2.2, contrast ratio)."""

from __future__ import annotations

from holmes_sim.charts import gantt
from holmes_sim.charts.fleet import NICS, stage_colours
from holmes_sim.charts.style import BLACK, BLUE, DARK, GREEN, GREY, ORANGE, PALE, PURPLE, RED, SKY, YELLOW

SECONDS = {
    "forward": SKY, "backward": GREEN, "recompute": YELLOW, "optimizer": PURPLE, "tp": ORANGE, "cp": GREY, "ep": DARK,
    "pp": BLACK, "dp": BLUE, "edp": "#8C510A", "embedding": RED, "bubble": PALE,
}  # fmt: skip
"""Kinds of seconds of `sim.results.explain` -> colour."""
OTHER = GREY
"""Of kinds that have none."""
NIGHT = {PALE: "#30363C", BLACK: "#F2F2F2", DARK: "#9AA0A6", GREY: "#7D848A"}
"""Colours that would not be seen on a dark page -> those that are."""


def css(places: int, vpp: int) -> str:
    """`--pN` of places, `--k-KIND` of seconds, `--g-KIND-STEP` of spans, each with its `-ink`, and `--n-TYPE` of NICs."""
    found = {f"p{place}": colour for place, colour in enumerate(stage_colours(places))}
    found |= {f"k-{kind}": colour for kind, colour in SECONDS.items()}
    for kind, (_, colour) in gantt.KINDS.items():
        found |= {f"g-{kind}-{step}": gantt.shade(colour, step) if step else colour for step in range(vpp)}
    day = found | {f"{name}-ink": ink(colour) for name, colour in found.items()}
    night = {name: NIGHT[colour] for name, colour in found.items() if colour in NIGHT}
    night |= {f"{name}-ink": ink(colour) for name, colour in night.items()}
    day |= {f"n-{kind}": colour for kind, colour in NICS.items()}
    rules = "".join(
        f".k-{kind}{{background:var(--k-{kind},{OTHER});color:var(--k-{kind}-ink,{ink(OTHER)})}}" for kind in SECONDS
    )
    return f"{_properties(day)}@media (prefers-color-scheme:dark){{{_properties(night)}}}{rules}"


def _properties(values: dict[str, str]) -> str:
    return ":root{" + ";".join(f"--{name}:{value}" for name, value in values.items()) + "}"


def ink(colour: str) -> str:
    """Black or white, whichever has more contrast to a colour."""
    return max(("#000000", "#FFFFFF"), key=lambda word: contrast(word, colour))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours `#rrggbb`: 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
