"""What all pictures share: size, colours, and how a picture becomes a file.

Colours are of Okabe and Ito's palette, which colour-blind readers can tell apart. Pictures are 1,400 pixels
wide, drawn in inches.
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
WIDTH, DPI = 14.0, 100
DASH = 4
"""Points of a dash and of the gap after it: of lines in one place, each starts a dash later and is seen in the gaps."""
SKY, BLUE, GREEN, YELLOW = "#56B4E9", "#0072B2", "#009E73", "#F0E442"
ORANGE, RED, PURPLE, BLACK = "#E69F00", "#D55E00", "#CC79A7", "#000000"
PALE, GREY, DARK = "#F1F1F1", "#BDBDBD", "#444444"


class Picture(Figure):
    """A figure that a notebook shows: Jupyter shows matplotlib's own only where pyplot was imported."""

    def _repr_png_(self) -> bytes:
        shown = io.BytesIO()
        self.savefig(shown, format="png")
        return shown.getvalue()


def listed(items: Iterable[object]) -> str:
    """`3`, `0, 2`, `0, 4 … 28`."""
    words = [str(item) for item in items]
    return ", ".join(words) if len(words) <= 4 else f"{words[0]}, {words[1]} … {words[-1]}"


def ending(path: str | Path) -> str:
    """The kind of picture that a path names, one of `ENDINGS`. Raises HolmesError for any other."""
    target = Path(path)
    found = target.suffix[1:].lower()
    if found not in ENDINGS:
        right = ", ".join(f".{known}" for known in ENDINGS)
        raise HolmesError(f"{target}: a picture ends in one of {right}, not in {target.suffix or 'nothing'}")
    return found


def save(figure: Figure, path: str | Path) -> None:
    """Write a picture by the ending of its path, whole or not at all; the same picture gives the same bytes."""
    kind = ending(path)
    undated = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    picture = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "holmes-sim"}):
        figure.savefig(picture, format=kind, metadata=undated)
    files.write(path, picture.getvalue())
