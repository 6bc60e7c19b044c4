"""Colours of what charts and the report show: actions, pipeline stages, islands and NIC types, each with colours of its own.

Actions have the colours of Okabe and Ito (`holmes_sim.charts.style`), which colour-blind readers can distinguish, and a few
beside them. Stages have one hue, violet, from pale to dark in the order of the pipeline, and islands another one, sand to
rust. NIC types have pairs of a dark and a pale colour of other hues. Stages, islands and NIC types are always named beside
their colour.
"""

from __future__ import annotations

from matplotlib.colors import to_hex, to_rgb

from holmes_sim.charts.style import BLACK, BLUE, DARK, GREEN, ORANGE, PALE, PURPLE, RED, SKY, YELLOW

BROWN = "#6D4C41"
ACTIONS = {
    "F": SKY, "B": GREEN, "W": YELLOW, "optimizer": PURPLE, "tp": ORANGE, "ep": DARK, "cp": BROWN, "exposed": RED,
    "bubble": PALE, "dp": BLUE, "embedding": "#B000B0", "send": BLACK,
}  # fmt: skip
"""Kind of bar of the pipeline chart (`holmes_sim.charts.gantt`) -> colour."""
SECONDS = {
    "forward": ACTIONS["F"], "backward": ACTIONS["B"], "recompute": "#A6761D", "offload": "#C3A98B",
    "optimizer": ACTIONS["optimizer"],
    "tp": ACTIONS["tp"], "cp": ACTIONS["cp"], "ep": ACTIONS["ep"], "etp": "#5E5E7E", "pp": ACTIONS["send"],
    "dp": ACTIONS["dp"], "edp": "#003F66", "embedding": ACTIONS["embedding"], "bubble": ACTIONS["bubble"],
}  # fmt: skip
"""Kind of seconds of `sim.results.explain` -> colour: that of the bars in which these seconds are, or one of its own."""
NICS = {
    "infiniband": "#A1003A", "roce": "#F28CA3", "ethernet": "#4C7A1F", "slingshot": "#A9CF54", "omni-path": "#0E7C86",
    "efa": "#7FD6D6",
}  # fmt: skip
"""NIC type -> colour."""
FIRST, LAST = "#D5C2FF", "#2E006E"
"""Colours of the first and the last stage of a pipeline; those between are mixed of both."""
FIRST_ISLAND, LAST_ISLAND = "#FEE4A0", "#6E1400"
"""The same of the islands of a plan of islands."""


def stage_colours(pp: int) -> list[str]:
    """A colour for each pipeline rank, the paler the earlier it is in the pipeline."""
    return [_mixed(FIRST, LAST, pp_rank / max(pp - 1, 1)) for pp_rank in range(pp)]


def island_colours(islands: int) -> list[str]:
    """A colour for each island, in the order of a plan of islands."""
    return [_mixed(FIRST_ISLAND, LAST_ISLAND, index / max(islands - 1, 1)) for index in range(islands)]


def _mixed(first: str, last: str, share: float) -> str:
    """The colour `first` with a share of `last`."""
    red, green, blue = (a + (b - a) * share for a, b in zip(to_rgb(first), to_rgb(last), strict=True))
    return to_hex((red, green, blue)).upper()
