"""Layouts of plans in one short line: degrees, and layers by cluster."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from sim.plan.plan import Plan

RANGES = 4
"""Most ranges of numbers of nodes that a row shows. Guess; more make tables wide."""


def short_layout(plan: Plan) -> str:
    """Degrees and layers by cluster: `tp 2, pp 2, dp 8, mb 4: ib 16, roce 14`."""
    return f"{degrees(plan)}: {layers_by_cluster(plan)}"


def degrees(plan: Plan) -> str:
    """Degrees and microbatch size, `tp 2, pp 2, dp 8, mb 4`; cp, ep and recomputation only if they are used."""
    config = plan.config
    full = "" if config.recompute == "none" else f", recompute {config.recomputation}"
    more = "".join(f", {key} {degree}" for key, degree in config.further_degrees.items())
    return f"tp {config.tp_text}, pp {config.pp}, dp {config.dp_text}{more}, mb {config.microbatch_text}{full}"


def layers_by_cluster(plan: Plan) -> str:
    """Layers of each pipeline rank by cluster: `ib 16, roce 14`."""
    config = plan.config
    runs: list[tuple[str, list[int]]] = []
    for pp_rank, layers in enumerate(plan.layers):
        members = range(config.first_rank(pp_rank), config.first_rank(pp_rank + 1))
        clusters = " + ".join(dict.fromkeys(plan.placement[rank].cluster for rank in members))
        if runs and runs[-1][0] == clusters:
            runs[-1][1].append(layers)
        else:
            runs.append((clusters, [layers]))
    return ", ".join(f"{name} {_runs(layers)}" for name, layers in runs)


def _runs(layers: list[int]) -> str:
    """Layers of consecutive pipeline ranks, with equal neighbours counted: `26|27x3|26`."""
    runs: list[list[int]] = []
    for count in layers:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return "|".join(f"{count}x{many}" if many > 1 else str(count) for count, many in runs)


def node_ranges(nodes: Iterable[int]) -> str:
    """Numbers of nodes as text: `0-2` for consecutive ones, `0, 2` for others, `0, 2, ..., 8` for more than `RANGES` ranges."""
    ordered = sorted(set(nodes))
    ends = [number for number, following in itertools.pairwise([*ordered, math.inf]) if following != number + 1]
    begins = [number for before, number in itertools.pairwise([-math.inf, *ordered]) if number != before + 1]
    found = [str(begin) if begin == end else f"{begin}-{end}" for begin, end in zip(begins, ends, strict=True)]
    return ", ".join([*found[: RANGES - 1], "...", found[-1]] if len(found) > RANGES else found)
