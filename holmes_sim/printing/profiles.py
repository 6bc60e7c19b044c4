"""Tables of a profiling run: peak rates of the device, seconds of layers, and the fit of a link."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.profiling.results import DeviceProfile, LinkProfile, ProfileResult
from sim.units import MILLI, bytes_per_second_text, flops_text, time_text


def profiled(found: ProfileResult) -> Group:
    """Tables of the profiled device and of the profiled link."""
    parts: list[Text | Table] = []
    if found.device is not None:
        parts += [*_device(found.device), Text()]
    if found.link_profile is not None:
        parts += [*_joined(found.link_profile), Text()]
    return Group(*parts[:-1])


def _device(found: DeviceProfile) -> list[Text | Table]:
    top, here = found.ceilings, found.machine
    curve = top.gemm
    parts: list[Text | Table] = [
        Text(f"{found.name}: {here.label}, {found.software}, {found.date}", style=STYLE),
        Text(f"{top.precision} matrix products up to {flops_text(top.peak)} (spread {top.spread:.1%}); fitted curve: "
             f"{curve.compute_efficiency:.0%} of it after {time_text(curve.launch)} of launch, mean error {top.error:.0%}"),
        Text(f"memory {bytes_per_second_text(top.memory_bandwidth)}, elementwise passes {top.elementwise:.0%} of it, "
             f"attention forward {top.attention.forward:.0%} and backward {top.attention.backward:.0%} of the peak"),
    ]  # fmt: skip
    if found.layers:
        table = grid(
            "One rank and microbatch (forward / backward in ms)", "name", "tp", "size", "layer", "spread", "embedding", "head",
            "optimizer",
        )  # fmt: skip
        table.columns[0].header = "model"
        for row in found.layers:
            cells = [" / ".join(f"{s.median / MILLI:.2f}" for s in both) for both in (row.layer, row.embedding, row.head)]
            spread = f"{max(s.relative_spread for s in row.layer):.1%}"
            update = f"{row.update.median * row.model.parameters / row.tp / row.updated / MILLI:.2f}"
            table.add_row(row.model.name, str(row.tp), str(row.microbatch_size), cells[0], spread, *cells[1:], update)
        parts += [Text(), table]
    return parts


def _joined(found: LinkProfile) -> list[Text | Table]:
    link = found.link
    table = grid("Large payloads", "name", "rate", "of the fastest")
    table.columns[0].header = "operation"
    for name, rate in link.rates.items():
        table.add_row(name, bytes_per_second_text(rate), f"{rate / link.bandwidth:.0%}")
    guess = "" if link.separable else " (guess: equal)"
    where = "between hosts" if found.across else "inside a host"
    return [
        Text(f"{found.name}: {', '.join(one.source for one in found.measured)}, {where}, {found.ranks} ranks", style=STYLE),
        Text(f"overhead {time_text(link.overhead)}, latency of a step {time_text(link.latency)}{guess}; "
             f"mean error of the fit {link.error:.0%}"),
        table,
    ]  # fmt: skip
