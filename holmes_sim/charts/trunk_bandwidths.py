"""Chart of tokens per second by the bandwidth between islands: exact training, sync strategies, and their crossings."""

from __future__ import annotations

from matplotlib.figure import Figure

from holmes_sim.charts.style import BLACK, BLUE, DARK, DPI, GREEN, ORANGE, PALE, PURPLE, RED, SKY, WIDTH, Picture
from holmes_sim.trunks import TrunkBandwidths
from planner.islands.node_ranges import partition_text
from sim.units import BITS_PER_BYTE, GIGA, rate_text

LINES = ((BLUE, "o-"), (SKY, "o--"), (RED, "s-"), (ORANGE, "s--"), (GREEN, "^-"), (PURPLE, "v-"))
"""Colours and line styles of strategies; their styles differ too."""


def trunk_bandwidths(found: TrunkBandwidths) -> Figure:
    """Curves of tokens per second, over a logarithmic axis of bandwidth; crossings with exact training are marked."""
    sweep = found.sweep
    figure = Picture(figsize=(WIDTH, 6.5), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    rates = [_gbit(bandwidth) for bandwidth in sweep.bandwidths]
    axes.plot(
        rates, [row.tokens_per_s for row in sweep.exact], color=BLACK, linewidth=3, label="exact (best plan without islands)"
    )
    for index, (sync, rows) in enumerate(sweep.rows.items()):
        colour, style = LINES[index % len(LINES)]
        points = [(rate, row.tokens_per_s) for rate, row in zip(rates, rows, strict=True) if row is not None]
        label = sync.short + ("" if sync.price == "exact" else " (not exact)")
        axes.plot(*zip(*points, strict=True), style, color=colour, label=label)
        for crossing in sweep.crossings:
            if crossing.sync == sync:
                axes.axvline(_gbit(crossing.bandwidth), color=colour, linewidth=0.8, linestyle=":")
                text = rate_text(float(f"{crossing.bandwidth:.4g}"))
                axes.annotate(
                    text, (_gbit(crossing.bandwidth), 0.02 + 0.05 * index), xycoords=("data", "axes fraction"),
                    xytext=(3, 0), textcoords="offset points", fontsize=8, color=colour,
                )  # fmt: skip
    axes.set(xscale="log", xlabel="bandwidth between islands, Gbit/s", ylabel="tokens/s (simulated)", ylim=(0, None))
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.grid(color=PALE)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=DARK)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    islands = partition_text(sweep.partition)
    figure.suptitle(f"{sweep.topology.name} · {found.model} · islands {islands}", fontsize=11)
    return figure


def _gbit(bandwidth: float) -> float:
    return bandwidth * BITS_PER_BYTE / GIGA
