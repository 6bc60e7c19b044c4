"""Regret after measuring the layouts that `plan --shortlist` proposes, on groups of layouts of which all were measured.

    python -m benchmarks shortlist           regret by number of measured layouts; four minutes
    python -m benchmarks shortlist priors    likelihood of the priors of holmes_sim.layout_choice on the runs of validation/

A group has the layouts of one model on one number of nodes (validation/layouts). No measured time of a group is known at first.
The simulator starts with the default stack, or with the stack fitted to the other models (`validate --stack honest`). Then
layouts of the group are proposed and their measured times are looked up: all at once ("list"), or one at a time, each with the
times before it ("one by one"). The choice is the layout with the least expected step (`holmes_sim.layout_choice.best`). Regret
is how much slower it is than the fastest layout of the group.

Beside it: random layouts; and a Gaussian process over the same positions of layouts, without simulator, which proposes one by
one by expected improvement. Of both the fastest measured layout is taken. Their numbers are means over `SEEDS` random orders
or first layouts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, mean

import numpy as np

from holmes_sim import layout_choice, validation
from holmes_sim.cases import Case
from holmes_sim.layout_choice import Belief
from holmes_sim.pooled_fit import USUAL
from holmes_sim.posterior import WIDTH, closed_logs, sensitivities
from sim.hardware.stack import Stack
from sim.plan.parallel_config import ParallelConfig

NUMBERS = (0, 1, 2, 3, 5, 10)
"""Numbers of measured layouts."""
SEEDS = 20
LENGTHS = (0.5, 1.0, 2.0, 4.0)
"""Length scales of the Gaussian process, in octaves; the one with the largest likelihood is taken."""

Choices = list[list[float]]
"""Regrets of a method: one list for each number of `NUMBERS`, with one entry for each group (and seed)."""


@dataclass(frozen=True)
class Group:
    """Layouts of one model on one number of nodes: the distribution of their log step times, and the measured ones."""

    configs: list[ParallelConfig]
    belief: Belief
    measured: np.ndarray

    def regret(self, index: int) -> float:
        """How much slower a layout is than the fastest one."""
        return float(np.exp(self.measured[index] - self.measured.min()) - 1)


def _cases(folder: str) -> list[Case]:
    path = validation.folder() / folder
    return [case for case in validation.read([path]) if case.plan is not None and case.measured_s is not None]


def _linear(cases: Sequence[Case], mode: str) -> tuple[np.ndarray, np.ndarray]:
    """(log step times by the closed form, their slopes) with the stack of each case in a mode of `validation.stack_of`."""
    stacks: dict[Stack, list[int]] = {}
    for index, case in enumerate(cases):
        stacks.setdefault(validation.stack_of(case, mode)[1], []).append(index)
    logs, slopes = np.zeros(len(cases)), np.zeros((len(cases), len(USUAL)))
    for stack, own in stacks.items():
        plans = [plan for index in own if (plan := cases[index].plan) is not None]
        logs[own] = closed_logs(plans, [stack] * len(plans))
        slopes[own] = sensitivities(plans, stack, USUAL, np.zeros(len(USUAL)))
    return logs, slopes


def groups(mode: str) -> list[Group]:
    """All groups with a choice, with the simulator under the stacks of a mode."""
    cases = _cases("layouts")
    logs, slopes = _linear(cases, mode)
    measured = np.log([case.measured_s or math.nan for case in cases])
    configs = [plan.config for case in cases if (plan := case.plan) is not None]
    together: dict[object, list[int]] = {}
    for index, case in enumerate(cases):
        if case.plan is not None:
            together.setdefault((case.plan.workload, case.plan.fleet.clusters), []).append(index)
    found = []
    for own in together.values():
        if len(own) > 1:
            inside = [configs[index] for index in own]
            found.append(Group(inside, layout_choice.belief(inside, logs[own], slopes[own]), measured[own]))
    return found


def as_list(group: Group) -> list[int]:
    """The choice after measuring each number of `NUMBERS` of proposed layouts at once."""
    order = [one.index for one in layout_choice.propose(group.belief, max(NUMBERS))]
    return [layout_choice.best(group.belief, {i: group.measured[i] for i in order[:number]}) for number in NUMBERS]


def one_by_one(group: Group) -> list[int]:
    """The choice after measuring proposed layouts one at a time."""
    measured: dict[int, float] = {}
    found = [layout_choice.best(group.belief, measured)]
    for _ in range(max(NUMBERS)):
        for one in layout_choice.propose(group.belief, 1, measured):
            measured[one.index] = group.measured[one.index]
        found.append(layout_choice.best(group.belief, measured))
    return [found[number] for number in NUMBERS]


def at_random(group: Group, seed: int) -> list[int | None]:
    """The fastest of random layouts; None where none was measured."""
    order = np.random.default_rng(seed).permutation(len(group.measured))
    return [_fastest(group, order[:number]) for number in NUMBERS]


def _fastest(group: Group, indices: Sequence[int]) -> int | None:
    return min(map(int, indices), key=lambda index: float(group.measured[index]), default=None)


def without_simulator(group: Group, seed: int) -> list[int | None]:
    """The fastest of the layouts that a Gaussian process measures by expected improvement, after a random one."""
    where, steps = layout_choice.positions(group.configs), group.measured
    apart = np.sum((where[:, None] - where[None]) ** 2, axis=-1)
    order = [int(np.random.default_rng(seed).integers(len(steps)))]
    while len(order) < min(max(NUMBERS), len(steps)):
        mean_, deviation = _process(apart, order, steps[order])
        best = steps[order].min()
        gain = [improvement(best, m, d) for m, d in zip(mean_, deviation, strict=True)]
        order.append(max(set(range(len(gain))) - set(order), key=lambda index: gain[index]))
    return [_fastest(group, order[:number]) for number in NUMBERS]


def _process(apart: np.ndarray, seen: list[int], steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(means, standard deviations) of log step times after some were measured; length scale and variance by likelihood."""
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for length in LENGTHS:
        kernel = np.exp(-apart / (2 * length**2))
        inverse = np.linalg.inv(kernel[np.ix_(seen, seen)] + 0.01 * np.eye(len(seen)))
        centre = float(inverse.sum(axis=0) @ steps / inverse.sum())
        off = steps - centre
        variance = max(float(off @ inverse @ off) / len(seen), 0.01)
        likelihood = float(np.linalg.slogdet(inverse)[1] - len(seen) * math.log(variance))
        if best is None or likelihood > best[0]:
            gain = kernel[:, seen] @ inverse
            spread = np.sqrt(variance * np.maximum(1 - np.sum(gain * kernel[:, seen], axis=1), 1e-12))
            best = likelihood, centre + gain @ off, spread
    assert best is not None
    return best[1], best[2]


def improvement(best: float, mean_: float, deviation: float) -> float:
    """Expected amount by which a normal variable is below `best`."""
    z = (best - mean_) / deviation
    return deviation * (z * NormalDist().cdf(z) + NormalDist().pdf(z))


def _regrets(found: list[Group], method: Callable[[Group], Sequence[int | None]]) -> Choices:
    chosen = [(group, method(group)) for group in found]
    return [[group.regret(i) for group, some in chosen if (i := some[at]) is not None] for at in range(len(NUMBERS))]


def _mean_over_seeds(found: list[Group], method: Callable[[Group, int], Sequence[int | None]]) -> Choices:
    seeds = [_regrets(found, lambda group, seed=seed: method(group, seed)) for seed in range(SEEDS)]  # type: ignore[misc]
    return [[mean(numbers) for numbers in zip(*column, strict=True)] for column in zip(*seeds, strict=True)]


def table() -> Iterator[str]:
    """A Markdown table: mean and worst regret over the groups, by method and number of measured layouts."""
    yield "| measured layouts | " + " | ".join(map(str, NUMBERS)) + " |"
    yield "| --- " * (len(NUMBERS) + 1) + "|"
    found: list[Group] = []
    for mode, words in (("default", "default stack"), ("honest", "stack fitted to other models")):
        found = groups(mode)
        yield _row(f"a list at once, {words}", _regrets(found, as_list))
        yield _row(f"one by one, {words}", _regrets(found, one_by_one))
    yield _row("Gaussian process without simulator, one by one", _mean_over_seeds(found, without_simulator))
    yield _row("random layouts, the fastest of them", _mean_over_seeds(found, at_random))
    sizes = sorted(len(group.measured) for group in found)
    yield ""
    yield f"Mean (worst) regret of {len(found)} groups of {sizes[0]} to {sizes[-1]} layouts, {sum(sizes)} in all."


def _row(name: str, choices: Choices) -> str:
    cells = [f"{mean(one):.1%} ({max(one):.0%})" if one else "-" for one in choices]
    return f"| {name} | " + " | ".join(cells) + " |"


def priors() -> Iterator[str]:
    """The priors with the largest likelihood of the runs of validation/, the default stack and equal weight for each run."""
    cases = _cases("")
    logs, slopes = _linear(cases, "default")
    residuals = np.log([case.measured_s or math.nan for case in cases]) - logs
    stacks: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        stacks.setdefault(case.stack, []).append(index)
    where = layout_choice.positions([plan.config for case in cases if (plan := case.plan) is not None])
    rows = []
    for point in itertools.product((0.1, 0.2, 0.3), (0.0, 0.1, 0.3), (0.05, 0.1, 0.2), (1.0, 2.0, 4.0), (0.05, 0.1, 0.15)):
        rows.append((sum(_likelihood(point, residuals[own], slopes[own], where[own]) for own in stacks.values()), point))
    yield "log likelihood   WIDTH  COMMON  DISCREPANCY  OCTAVES    OWN"
    used = (WIDTH, layout_choice.COMMON, layout_choice.DISCREPANCY, layout_choice.OCTAVES, layout_choice.OWN)
    for likelihood, point in sorted(rows, reverse=True)[:5] + [row for row in rows if row[1] == used]:
        width, common, discrepancy, octaves, own_error = point
        words = "  in use" if point == used else ""
        yield f"{likelihood:14.1f}{width:8}{common:8}{discrepancy:13}{octaves:9}{own_error:7}{words}"


def _likelihood(point: tuple[float, ...], residuals: np.ndarray, slopes: np.ndarray, where: np.ndarray) -> float:
    """Log likelihood of the residuals of one stack under the priors (width, common, discrepancy, octaves, own_error)."""
    width, common, discrepancy, octaves, own_error = point
    apart = np.sum((where[:, None] - where[None]) ** 2, axis=-1) / octaves**2
    covariance = width**2 * slopes @ slopes.T + common**2 + discrepancy**2 * np.exp(-apart / 2)
    root = np.linalg.cholesky(covariance + own_error**2 * np.eye(len(residuals)))
    white = np.linalg.solve(root, residuals)
    return float(-white @ white / 2 - np.log(np.diag(root)).sum() - len(white) * math.log(2 * math.pi) / 2)


def show(words: list[str]) -> None:
    """Print the table, or with the word `priors` the likelihoods."""
    if words not in ([], ["priors"]):
        raise SystemExit(f"unknown: {' '.join(words)}; known: priors")
    for line in priors() if words else table():
        print(line, flush=True)
