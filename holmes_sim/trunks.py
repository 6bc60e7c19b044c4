"""Exact training against sync strategies by the bandwidth of the links between clusters: table, crossings, data frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holmes_sim import frames, islands, targets
from planner.islands.allowed_sync import parse
from planner.islands.trunk_sweep import TrunkSweep, trunk_sweep
from planner.request import Wishes
from sim import units
from sim.errors import OptionError
from sim.hardware.topology import Topology
from sim.sync import Sync
from sim.units import BytesPerSecond, rate_text
from sim.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "holmes-sim/trunk/1"
BANDWIDTHS = ("100 Mbit/s", "300 Mbit/s", "1 Gbit/s", "3 Gbit/s", "10 Gbit/s", "30 Gbit/s", "100 Gbit/s")
"""Bandwidths where none are given."""
STRATEGIES = ("every-step,none", "every-step,int8", "diloco=30,none", "diloco=30,int8", "streaming-diloco=30,int8")
"""Strategies where none are given: without compression and with it; 30 inner steps are those of the published losses."""


@dataclass(frozen=True, slots=True)
class TrunkBandwidths:
    """A sweep of bandwidths of one model; `seconds` of planning."""

    sweep: TrunkSweep
    model: str
    seconds: float

    def facts(self) -> dict[str, Any]:
        """The sweep as plain data (format holmes-sim/trunk/1)."""
        sweep = self.sweep
        exact = [{"tokens_per_s": row.tokens_per_s, "clusters": list(row.islands[0])} for row in sweep.exact]
        rows = [
            {
                "sync": str(sync),
                "price": sync.price,
                "tokens_per_s": [None if row is None else row.tokens_per_s for row in found],
                "token_worth": next((islands.worth_facts(row.worth) for row in found if row is not None), None),
            }
            for sync, found in sweep.rows.items()
        ]
        crossings = [
            {"sync": str(one.sync), "bandwidth_bytes_per_s": one.bandwidth, "faster_above": one.gains}
            for one in sweep.crossings
        ]
        return {
            "format": FORMAT,
            "islands": [list(names) for names in sweep.partition],
            "bandwidths_bytes_per_s": list(sweep.bandwidths),
            "exact": exact,
            "rows": rows,
            "crossings": crossings,
        }

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with a row for each bandwidth: Gbit/s, and tokens/s of exact training and of each strategy."""
        sweep, rows = self.sweep, []
        for index, bandwidth in enumerate(sweep.bandwidths):
            row: dict[str, Any] = {"gbit_per_s": bandwidth * units.BITS_PER_BYTE / units.GIGA}
            row["exact"] = sweep.exact[index].tokens_per_s
            for sync, found in sweep.rows.items():
                one = found[index]
                row[str(sync)] = None if one is None else one.tokens_per_s
            rows.append(row)
        return frames.table(rows)

    def __repr__(self) -> str:
        low, high = rate_text(self.sweep.bandwidths[0]), rate_text(self.sweep.bandwidths[-1])
        return f"{self.sweep.topology.name}: {len(self.sweep.rows)} sync strategies from {low} to {high}"


def trunk_bandwidths(
    where: Topology,
    workload: Workload | None = None,
    bandwidths: Sequence[str] = BANDWIDTHS,
    sync: Sequence[str] = STRATEGIES,
    wishes: Wishes | None = None,
    time_limit: float = 60.0,
    progress: Callable[[str], None] = lambda text: None,
) -> TrunkBandwidths:
    """Tokens per second of exact training and of sync strategies, by the bandwidth of the links between clusters.

    `bandwidths` are texts with units, `sync` texts of one setting each, as `plan --sync` takes them. Raises OptionError,
    Infeasible."""
    begun = time.perf_counter()
    request = islands.request_of(where, workload, wishes or Wishes(), time_limit, targets.ANY)
    settings = [one for text in sync for one in _setting(text, request.workload.model)]
    found = trunk_sweep(request, [_rate(text) for text in bandwidths], settings, progress)
    return TrunkBandwidths(found, request.workload.model.name, time.perf_counter() - begun)


def _setting(text: str, model: Any) -> list[Sync]:
    """The one setting that a text allows. Raises OptionError where it allows several or none."""
    found = list(parse(text).settings(model))
    if len(found) != 1:
        raise OptionError(f"--sync {text!r} allows {len(found)} settings; write one, such as diloco=30,int8 or every-step,none")
    return found


def _rate(text: str) -> BytesPerSecond:
    try:
        rate = units.parse(text.strip(), "rate")
    except ValueError as error:
        raise OptionError(f"--bandwidths: {error}") from None
    if not rate > 0:
        raise OptionError(f"--bandwidths: {text.strip()!r} is not above 0")
    return rate
