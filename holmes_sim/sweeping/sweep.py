"""Runs a study: every scenario is planned and simulated, or read from the journal beside the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holmes_sim import files, frames
from holmes_sim.sweeping import engines, journal, speeds, study, table
from holmes_sim.sweeping.engines import Engine
from holmes_sim.sweeping.journal import Record
from holmes_sim.sweeping.study import Study, Values
from holmes_sim.sweeping.worker import INTERRUPTED, PLANNED, WRONG, Row, row_without_plan, task_of
from sim.errors import HolmesError
from sim.hardware.topology import Topology
from sim.units import Seconds

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "holmes-sim/sweep/1"
PAUSE: Seconds = 1.0
"""Least time between two writes of the table."""
REST = 20
"""Least time between two writes of the table, as a multiple of the duration of the last write."""


@dataclass(frozen=True, slots=True)
class Swept:
    """A study and its results, in the order of its scenarios; None for scenarios that Ctrl-C left without a result.

    `planned`: number of scenarios planned now, not read from the journal. `seconds`: wall time.
    """

    study: Study
    results: tuple[Row | None, ...]
    planned: int
    seconds: Seconds
    interrupted: bool = False

    @property
    def frame(self) -> pd.DataFrame:
        """The results as a pandas frame, one row per finished scenario; column names contain the units."""
        return table.frame(self.study, self.results)

    @property
    def rows(self) -> list[Row]:
        """The rows of the frame as plain data; empty cells are None."""
        return table.rows(self.study, self.results)

    @property
    def best(self) -> Row | None:
        """The row with the most tokens/s, effective ones where their worth is known; None if no scenario has a plan."""
        return max((row for row in self.rows if row["status"] == PLANNED), key=speeds.rank, default=None)

    def facts(self) -> dict[str, Any]:
        """The data that `holmes-sim sweep --json` prints (format holmes-sim/sweep/1)."""
        keys = list(table.varied(self.study))
        found = {"format": FORMAT, "name": self.study.name, "keys": keys}
        return found | {"rows": self.rows, "interrupted": self.interrupted}

    def __str__(self) -> str:
        done = [row for row in self.results if row is not None]
        without = sum(row["status"] != PLANNED for row in done)
        text = f"{self.study.name}: {len(done)} of {len(self.results)} scenarios, {without} without a plan"
        if self.best is None:
            return text
        given = {key: self.best[key] for key in table.varied(self.study) if self.best[key] is not None}
        cells = ", ".join(f"{key} {cell:g}" if isinstance(cell, float) else f"{key} {cell}" for key, cell in given.items())
        what = "most tokens/s"
        if speeds.allows_islands(self.study) and self.best["effective_tokens_per_s"] is not None:
            what = "most effective tokens/s"
        sync = f", with sync {self.best['sync']}" if speeds.allows_islands(self.study) else ""
        return f"{text}; {what}, {speeds.speed(self.best):,.0f}, with {cells or 'nothing changed'}{sync}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return frames.html(str(self), self.frame)


def sweep(
    what: Topology | Study | str | Path,
    vary: Mapping[str, Sequence[Any]] | None = None,
    scenarios: Sequence[Values] = (),
    plan: Values | None = None,
    *,
    engine: str = "local",
    output: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Swept:
    """Run a study: a file, a shipped study by name, or a topology with `vary`, `scenarios` and options of `plan`.

    `engine` is local or dask://HOST:PORT. With `output` (.csv, .parquet), a table and a journal beside it are updated during
    the sweep, and scenarios in the journal are not planned again. `progress` is called with the number of finished scenarios
    and the total. Ctrl-C ends the sweep and keeps finished scenarios. Raises TopologyError for a faulty study, HolmesError if
    the engine is not available or the table cannot be written.
    """
    given = _study_of(what, vary, scenarios, plan)
    target = None if output is None else Path(output)
    if target is not None:
        table.ending(target)
        files.check(target)
    chosen = engines.get(engine)
    begun = time.monotonic()
    journaled = journal.read(journal.path_of(target)) if target is not None else {}
    digests = [None if scenario.fault else task_of(scenario).digest for scenario in given.scenarios]
    results = [
        row_without_plan(WRONG, scenario.fault) if digest is None else journaled.get(digest)
        for scenario, digest in zip(given.scenarios, digests, strict=True)
    ]
    open_rows: dict[str, list[int]] = {}
    for index, digest in enumerate(digests):
        if digest is not None and results[index] is None:
            open_rows.setdefault(digest, []).append(index)
    planned, interrupted = 0, False
    with _recording(given, results, target) as keep, closing(_run_tasks(given, open_rows, *chosen)) as finished:
        done = sum(result is not None for result in results)
        progress(done, len(results))
        try:
            for digest, row in finished:
                planned += 1
                for index in open_rows[digest]:
                    results[index] = row
                keep(digest, given.scenarios[open_rows[digest][0]].values, row)
                done += len(open_rows[digest])
                progress(done, len(results))
        except KeyboardInterrupt:
            interrupted = True
    return Swept(given, tuple(results), planned, time.monotonic() - begun, interrupted)


def _study_of(
    what: Topology | Study | str | Path,
    vary: Mapping[str, Sequence[Any]] | None,
    scenarios: Sequence[Values],
    plan: Values | None,
) -> Study:
    """The study that the arguments of `sweep` describe. Raises HolmesError."""
    if isinstance(what, Topology):
        return study.study_of(what, vary or {}, scenarios, plan or {})
    if vary or scenarios or plan:
        raise HolmesError("vary, scenarios and plan go with a topology; a study contains its own")
    return what if isinstance(what, Study) else study.load(what)


def _run_tasks(given: Study, open_rows: Mapping[str, list[int]], engine: Engine, address: str) -> Generator[tuple[str, Row]]:
    """(digest, row) of the scenarios without result. Raises KeyboardInterrupt if one was interrupted."""
    tasks = (task_of(given.scenarios[where[0]]) for where in open_rows.values())
    if not open_rows:
        return
    with closing(engine.results(tasks, len(open_rows), address)) as finished:
        for digest, row in finished:
            if row["status"] == INTERRUPTED:
                raise KeyboardInterrupt
            yield digest, row


@contextmanager
def _recording(given: Study, results: Sequence[Row | None], target: Path | None) -> Iterator[Record]:
    """A context whose value records a finished scenario in the journal, and writes the table from time to time and at
    the end.
    """
    if target is None:
        yield lambda digest, values, row: None
        return
    table.frame(given, results)  # imports pandas, which would hold up the first results that workers return
    due = 0.0

    def write() -> None:
        nonlocal due
        begun = time.monotonic()
        table.write(target, table.frame(given, results))
        due = time.monotonic() + max(PAUSE, REST * (time.monotonic() - begun))

    with journal.writer(journal.path_of(target)) as record:

        def keep(digest: str, values: Values, row: Row) -> None:
            record(digest, values, row)
            if time.monotonic() >= due:
                write()

        try:
            yield keep
        finally:
            if any(results):
                write()
