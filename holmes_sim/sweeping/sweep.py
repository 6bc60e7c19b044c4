"""A study, answered: every scenario planned and simulated, what was answered before read from the journal beside the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holmes_sim import files, frames
from holmes_sim.sweeping import engines, journal, study, table
from holmes_sim.sweeping.answering import INTERRUPTED, PLANNED, WRONG, Row, task, unanswered
from holmes_sim.sweeping.engines import Engine
from holmes_sim.sweeping.journal import Record
from holmes_sim.sweeping.study import Study, Values
from sim.errors import HolmesError
from sim.hardware.topology import Topology
from sim.units import Seconds

if TYPE_CHECKING:
    import pandas as pd

PAUSE: Seconds = 1.0
"""Between two writings of the table, at least; and so many times as long as the last one took:"""
REST = 20


@dataclass(frozen=True, slots=True)
class Swept:
    """A study and its answers, in the order of its scenarios; None for those that Ctrl-C left without one.

    `planned`: how many were planned now and not read from the journal; `seconds`: wall time."""

    study: Study
    answers: tuple[Row | None, ...]
    planned: int
    seconds: Seconds
    interrupted: bool = False

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each answered scenario; units stand in the names of the columns."""
        return table.frame(self.study, self.answers)

    @property
    def rows(self) -> list[Row]:
        """The rows of the frame as plain data, None where a cell is empty."""
        return table.rows(self.study, self.answers)

    @property
    def best(self) -> Row | None:
        """The row with the most tokens a second, where there is a plan at all."""
        return max((row for row in self.rows if row["status"] == PLANNED), key=lambda row: row["tokens_per_s"], default=None)

    def facts(self) -> dict[str, Any]:
        """What `holmes-sim sweep --json` prints."""
        keys = list(table.varied(self.study))
        return {"name": self.study.name, "keys": keys, "rows": self.rows, "interrupted": self.interrupted}

    def __str__(self) -> str:
        answered = [row for row in self.answers if row is not None]
        without = sum(row["status"] != PLANNED for row in answered)
        text = f"{self.study.name}: {len(answered)} of {len(self.answers)} scenarios, {without} without a plan"
        if self.best is None:
            return text
        given = {key: self.best[key] for key in table.varied(self.study) if self.best[key] is not None}
        cells = ", ".join(f"{key} {cell:g}" if isinstance(cell, float) else f"{key} {cell}" for key, cell in given.items())
        return f"{text}; most tokens/s, {self.best['tokens_per_s']:,.0f}, with {cells or 'nothing changed'}"

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
    """Answer a study: a file, a shipped one by its name, or a topology with `vary`, `scenarios` and options of `plan`.

    `engine` is local or dask://HOST:PORT. With `output` (.csv, .parquet) the table and a journal beside it are kept current,
    and what the journal has is not planned again. `progress` is told how many scenarios are done, of how many. Ctrl-C leaves
    what is done. Raises TopologyError for a faulty study, HolmesError for an engine or a table that cannot be had."""
    asked = _asked(what, vary, scenarios, plan)
    target = None if output is None else Path(output)
    if target is not None:
        table.ending(target)
        files.check(target)
    chosen = engines.get(engine)
    begun = time.monotonic()
    known = journal.read(journal.beside(target)) if target is not None else {}
    digests = [None if scenario.fault else task(scenario).digest for scenario in asked.scenarios]
    answers = [
        unanswered(WRONG, scenario.fault) if digest is None else known.get(digest)
        for scenario, digest in zip(asked.scenarios, digests, strict=True)
    ]
    open_places: dict[str, list[int]] = {}
    for place, digest in enumerate(digests):
        if digest is not None and answers[place] is None:
            open_places.setdefault(digest, []).append(place)
    planned, interrupted = 0, False
    with _kept(asked, answers, target) as keep, closing(_planned(asked, open_places, *chosen)) as finished:
        done = sum(answer is not None for answer in answers)
        progress(done, len(answers))
        try:
            for digest, row in finished:
                planned += 1
                for place in open_places[digest]:
                    answers[place] = row
                keep(digest, asked.scenarios[open_places[digest][0]].values, row)
                done += len(open_places[digest])
                progress(done, len(answers))
        except KeyboardInterrupt:
            interrupted = True
    return Swept(asked, tuple(answers), planned, time.monotonic() - begun, interrupted)


def _asked(
    what: Topology | Study | str | Path,
    vary: Mapping[str, Sequence[Any]] | None,
    scenarios: Sequence[Values],
    plan: Values | None,
) -> Study:
    if isinstance(what, Topology):
        return study.made(what, vary or {}, scenarios, plan or {})
    if vary or scenarios or plan:
        raise HolmesError("vary, scenarios and plan are asked of a topology; a study has its own")
    return what if isinstance(what, Study) else study.load(what)


def _planned(asked: Study, places: Mapping[str, list[int]], engine: Engine, address: str) -> Generator[tuple[str, Row]]:
    """(digest, row) of the scenarios that have no answer yet. Raises KeyboardInterrupt where one was interrupted."""
    tasks = (task(asked.scenarios[where[0]]) for where in places.values())
    if not places:
        return
    with closing(engine.answers(tasks, len(places), address)) as finished:
        for digest, row in finished:
            if row["status"] == INTERRUPTED:
                raise KeyboardInterrupt
            yield digest, row


@contextmanager
def _kept(asked: Study, answers: Sequence[Row | None], target: Path | None) -> Iterator[Record]:
    """What puts a finished scenario into the journal, and now and then all answers into the table; at the end in any case."""
    if target is None:
        yield lambda digest, values, row: None
        return
    due = 0.0

    def write() -> None:
        nonlocal due
        begun = time.monotonic()
        table.write(target, table.frame(asked, answers))
        due = time.monotonic() + max(PAUSE, REST * (time.monotonic() - begun))

    with journal.appending(journal.beside(target)) as record:

        def keep(digest: str, values: Values, row: Row) -> None:
            record(digest, values, row)
            if time.monotonic() >= due:
                write()

        try:
            yield keep
        finally:
            if any(answers):
                write()
