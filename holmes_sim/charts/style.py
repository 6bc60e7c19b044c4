"""Style of all charts: size, colours, and writing a chart to a file.

Colours are from the palette of Okabe and Ito, which colour-blind readers can distinguish. Charts are 1,400 pixels wide and
measured in inches.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from holmes_sim import files
from sim.errors import HolmesError

ENDINGS = ("png", "svg", "pdf")
"""Supported file formats."""
WIDTH, DPI = 14.0, 100
"""Width of a chart in inches, and dots per inch."""
DASH = 4
"""Length of a dash, and of the gap after it, in points. Lines that may coincide start one dash apart, so that each is visible
in the gaps of the others.
"""
SKY, BLUE, GREEN, YELLOW = "#56B4E9", "#0072B2", "#009E73", "#F0E442"
ORANGE, RED, PURPLE, BLACK = "#E69F00", "#D55E00", "#CC79A7", "#000000"
PALE, GREY, DARK = "#F1F1F1", "#BDBDBD", "#444444"


class Picture(Figure):
    """A figure that notebooks display. Jupyter displays matplotlib's own figures only if pyplot is imported."""

    def _repr_png_(self) -> bytes:
        shown = io.BytesIO()
        self.savefig(shown, format="png", metadata={"Software": None})
        return shown.getvalue()


def listed(items: Iterable[object]) -> str:
    """Items as text: `3`, `0, 2`, `0, 4 … 28`."""
    words = [str(item) for item in items]
    return ", ".join(words) if len(words) <= 4 else f"{words[0]}, {words[1]} … {words[-1]}"


def numbers(first: int, past_last: int) -> str:
    """Consecutive numbers, of which `past_last` is the first after them, as text: `0-11`, `37`, `none`."""
    if past_last <= first:
        return "none"
    return f"{first}-{past_last - 1}" if past_last - first > 1 else str(first)


def ending(path: str | Path) -> str:
    """The format of a chart, one of `ENDINGS`, from its path. Raises HolmesError for other endings."""
    target = Path(path)
    found = target.suffix[1:].lower()
    if found not in ENDINGS:
        right = ", ".join(f".{known}" for known in ENDINGS)
        raise HolmesError(f"{target}: a picture ends in one of {right}, not in {target.suffix or 'nothing'}")
    return found


def save(figure: Figure, path: str | Path) -> None:
    """Write a chart in the format of its ending, atomically; equal charts give equal bytes."""
    kind = ending(path)
    undated = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    picture = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "holmes-sim"}):
        figure.savefig(picture, format=kind, metadata=undated)
    files.write(path, picture.getvalue())
