"""Errors on software that no fit has seen: `python -m benchmarks unseen`, in half a minute.

The runs of validation/new_software, with the default constants and the facts of their software, by the evaluator. A kind of
software is a case file; files with runs of one kind count together, and a file with two kinds counts twice. Ranges are those
that the other sources of `holmes_sim/residuals.csv` give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from benchmarks import residuals
from holmes_sim import intervals, validation

SAME_SOFTWARE = {"mlperf_v60": "mlperf", "alps_lengths": "alps_gh200", "torchtitan_elsewhere": "torchtitan"}
"""Case file -> the case file with which it is one kind of software."""
TWO_KINDS = ("dlperf",)
"""Case files whose runs are of two kinds of software, by the stacks of the cases."""
FIRST = ("dgx_cloud", "libai", "megatron_bridge", "mindformers", "mindspeed", "mlperf", "modalities")
"""The kinds whose causes of errors were looked for longest; docs/accuracy.md has a table of them."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its case file, kind of software, predicted and measured step, and whether the range holds the measured one."""

    file: str
    kind: str
    predicted_s: float
    measured_s: float
    inside: bool

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1


def measure() -> list[Run]:
    """All runs, in the order of their files."""
    found = []
    for path in sorted((validation.folder() / "new_software").glob("*.yaml")):
        cases = residuals.runs(path)
        source = residuals.ONE_SOURCE.get(path.stem, path.stem)
        for case, seconds in zip(cases, residuals.unfitted(cases), strict=True):
            if case.plan is None or case.measured_s is None:
                continue
            low, high = intervals.ratios_without(source, False, case.plan.nodes > 1)
            inside = low <= case.measured_s / seconds <= high
            found.append(Run(path.stem, _kind(path.stem, case.stack), seconds, case.measured_s, inside))
    return found


def _kind(file: str, stack: str) -> str:
    return f"{file}, {stack}" if file in TWO_KINDS else SAME_SOFTWARE.get(file, file)


def grouped(runs: Sequence[Run], key: str) -> Mapping[str, list[Run]]:
    """The runs by case file or by kind of software: `file` or `kind`."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(getattr(run, key), []).append(run)
    return found


def mean_error(groups: Mapping[str, Sequence[Run]]) -> float:
    """The mean over groups of the mean absolute error."""
    return mean(mean(abs(run.error) for run in runs) for runs in groups.values())


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Lines of a Markdown table: kinds of software by their share of the mean over kinds, the largest first."""
    kinds = grouped(runs, "kind")
    yield "| software | runs | mean error | median | bias | inside the 80 % range | tau | share of the mean, points |"
    yield "| --- " * 8 + "|"
    for kind, found in sorted(kinds.items(), key=lambda item: -mean(abs(run.error) for run in item[1])):
        errors = [run.error for run in found]
        sizes = [abs(error) for error in errors]
        tau = validation.kendall_tau([(run.predicted_s, run.measured_s) for run in found])
        numbers = f"{mean(sizes):.1%} | {median(sizes):.1%} | {mean(errors):+.1%} | {mean(run.inside for run in found):.0%}"
        order = "-" if tau is None else f"{tau:.2f}"
        yield f"| {kind} | {len(found)} | {numbers} | {order} | {mean(sizes) / len(kinds) * 100:.2f} |"
    yield from _totals(runs)


def _totals(runs: Sequence[Run]) -> Iterator[str]:
    kinds, files = grouped(runs, "kind"), grouped(runs, "file")
    first = {name: found for name, found in kinds.items() if name in FIRST}
    alone = {str(index): [run] for index, run in enumerate(runs)}
    for title, groups in (
        (f"mean over {len(kinds)} kinds", kinds),
        (f"mean over {len(files)} case files", files),
        (f"mean over the first {len(first)} kinds", first),
        ("each run once", alone),
    ):
        if not groups:
            continue
        count = sum(map(len, groups.values()))
        bias = mean(mean(run.error for run in found) for found in groups.values())
        inside = mean(mean(run.inside for run in found) for found in groups.values())
        typical = median(abs(run.error) for found in groups.values() for run in found)
        yield f"| {title} | {count} | {mean_error(groups):.1%} | {typical:.1%} | {bias:+.1%} | {inside:.0%} | | |"


def show() -> None:
    """Print the table."""
    for line in table(measure()):
        print(line)
