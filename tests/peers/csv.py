"""CSV: read by pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    return {"pandas": pd.__version__}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Hosts of the ranks, layers of the stages, and groups."""
    ranks = pd.read_csv(folder / "ranks.csv", dtype={"stages": str})
    groups = pd.read_csv(folder / "groups.csv", dtype={"ranks": str})
    first: dict[int, int] = {}
    layers: dict[int, int] = {}
    for stages, ranges in zip(ranks["stages"], ranks["layers"], strict=True):
        for stage, span in zip(stages.split(";"), ranges.split(";"), strict=True):
            first[int(stage)], past = map(int, span.split("-"))
            layers[int(stage)] = past - first[int(stage)]
    kinds: dict[str, list[list[int]]] = {kind: [] for kind in ("tp", "pp", "dp", "cp", "ep")}
    for kind, members in zip(groups["kind"], groups["ranks"], strict=True):
        kinds[kind].append(sorted(map(int, members.split())))
    return {
        "world_size": len(ranks),
        "hosts": {str(rank): host for rank, host in zip(ranks["rank"], ranks["host"], strict=True)},
        "layers": [layers[stage] for stage in sorted(layers)],
        "first_layers": [first[stage] for stage in sorted(first)],
        "groups": {kind: sorted(found) for kind, found in kinds.items()},
    }
