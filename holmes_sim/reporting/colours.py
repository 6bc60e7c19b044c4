"""Colours of the page as CSS properties: stages as in the placement chart, spans as in the pipeline chart.

All are those of `holmes_sim.charts.palette`, equal in the light and dark theme except for greys and black. Text
on a colour is black or white, whichever has more contrast (WCAG 2.2, contrast ratio).
"""

from __future__ import annotations

from holmes_sim.charts import gantt
from holmes_sim.charts.outer_period import COLOURS
from holmes_sim.charts.palette import NICS, SECONDS, island_colours, stage_colours
from holmes_sim.charts.style import BLACK, DARK, GREY, PALE

OTHER = GREY
"""Colour of kinds that are not in `SECONDS`."""
NIGHT = {PALE: "#30363C", BLACK: "#F2F2F2", DARK: "#9AA0A6"}
"""Colours without contrast on a dark page -> their replacements in the dark theme."""


def css(pp: int, vpp: int) -> str:
    """CSS: `--pN` of stages, `--k-KIND` of seconds, `--g-KIND-STEP` of spans, each with its `-ink`, and `--n-TYPE` of NICs."""
    found = {f"p{pp_rank}": colour for pp_rank, colour in enumerate(stage_colours(pp))}
    found |= {f"k-{kind}": colour for kind, colour in SECONDS.items()}
    for kind, (_, colour) in gantt.KINDS.items():
        found |= {f"g-{kind}-{step}": gantt.shade(colour, step) if step else colour for step in range(vpp)}
    return _themes(found) + "".join(
        f".k-{kind}{{background:var(--k-{kind},{OTHER});color:var(--k-{kind}-ink,{ink(OTHER)})}}" for kind in SECONDS
    )


def islands_css(pp: int, islands: int) -> str:
    """CSS: `--pN` of stages, `--iN` of islands, and `--o-KIND` of what they do in an outer period, each with its `-ink`, and
    `--n-TYPE` of NICs."""
    found = {f"p{pp_rank}": colour for pp_rank, colour in enumerate(stage_colours(pp))}
    found |= {f"i{island}": colour for island, colour in enumerate(island_colours(islands))}
    found |= {f"o-{kind}": colour for kind, colour in COLOURS.items()}
    return _themes(found) + "".join(f".o-{kind}{{background:var(--o-{kind});color:var(--o-{kind}-ink)}}" for kind in COLOURS)


def _themes(found: dict[str, str]) -> str:
    """Custom properties of colours with their inks, by day and by night, and of NIC types without ink."""
    day = found | {f"{name}-ink": ink(colour) for name, colour in found.items()}
    night = {name: NIGHT[colour] for name, colour in found.items() if colour in NIGHT}
    night |= {f"{name}-ink": ink(colour) for name, colour in night.items()}
    day |= {f"n-{kind}": colour for kind, colour in NICS.items()}
    return f"{_properties(day)}@media (prefers-color-scheme:dark){{{_properties(night)}}}"


def _properties(values: dict[str, str]) -> str:
    """Custom properties of the root element."""
    return ":root{" + ";".join(f"--{name}:{value}" for name, value in values.items()) + "}"


def ink(colour: str) -> str:
    """Black or white, whichever has more contrast with a colour."""
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
