"""Which layouts to measure: a joint distribution of their step times, and the few whose fastest one is expected to be fastest.

The log step time of a layout is the simulator's, plus unknown terms with normal priors. The constants of the software stack
act through their sensitivities, with the prior of the fit (`holmes_sim.posterior`). One factor is common to all layouts. What
the simulator has wrong besides is a Gaussian process over the layout, so similar layouts err alike (Kennedy and O'Hagan,
Bayesian calibration of computer models, 2001), and an error of each layout's own. So the log step times of all layouts are
jointly normal, and measured times change their distribution by conditioning.

A list is worth the expected step of its fastest layout: who measures the list trains with that one. `propose` adds, one after
the other, the layout that lowers this most (batch expected improvement: Ginsbourger, Le Riche and Carraro 2010). The first one
has the least expected step. The next one is near the best too, but unlike it, because a layout that errs alike adds nothing.
The gain of a list is monotone and submodular, so a greedy list has at least 1 - 1/e of the best list's gain (Nemhauser, Wolsey
and Fisher 1978)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holmes_sim.posterior import WIDTH
from sim.plan.parallel_config import ParallelConfig

DISCREPANCY = 0.1
"""Standard deviation of the log step time that the simulator has wrong beyond its constants. With the prior of the fit and no
common factor, this value, `OCTAVES` and `OWN` have the largest likelihood on the 542 runs of validation/ (`python -m benchmarks
shortlist priors`); no run of validation/layouts is among them. Larger spreads the list more."""
OCTAVES = 2.0
"""Length scale of that error: errors of layouts that are this many factors of two apart have a correlation of 0.6."""
OWN = 0.1
"""Standard deviation of what the simulator has wrong of a single layout, and of the measurement itself."""
COMMON = 0.3
"""Standard deviation of the log factor that is common to all layouts. Guess; so wide that one measured layout shows how fast
the software is, and the choice rests on differences between layouts."""
DRAWS = 1024
"""Draws of all step times from their distribution. Guess; more takes longer, and fewer changes the list by chance."""


@dataclass(frozen=True, slots=True)
class Belief:
    """Joint normal distribution of the log step times of layouts: means and covariances."""

    mean: np.ndarray
    covariance: np.ndarray

    def given(self, measured: Mapping[int, float]) -> Belief:
        """The distribution after measurements: index of a layout -> log of its measured step time."""
        if not measured:
            return self
        seen = list(measured)
        gain = np.linalg.solve(self.covariance[np.ix_(seen, seen)], self.covariance[seen]).T
        surprise = np.array([measured[index] for index in seen]) - self.mean[seen]
        return Belief(self.mean + gain @ surprise, self.covariance - gain @ self.covariance[seen])

    def draws(self) -> np.ndarray:
        """Draws of the log step times (layouts x `DRAWS`), the same ones in each call."""
        jitter = 1e-9 * np.eye(len(self.mean))  # the covariance of measured layouts is zero
        root = np.linalg.cholesky(self.covariance + jitter)
        normal = np.random.default_rng(0).standard_normal((len(self.mean), DRAWS))
        found: np.ndarray = self.mean[:, None] + root @ normal
        return found


@dataclass(frozen=True, slots=True)
class Proposal:
    """A layout to measure (its index), and the share of draws in which it is the fastest of the list."""

    index: int
    share: float


def belief(configs: Sequence[ParallelConfig], log_steps: np.ndarray, slopes: np.ndarray) -> Belief:
    """The distribution of the log step times of layouts before any is measured.

    `log_steps` are the simulator's; `slopes` (layouts x constants) their derivatives by the logarithm of each constant."""
    where = positions(configs) / OCTAVES
    apart = np.sum((where[:, None] - where[None]) ** 2, axis=-1)
    constants = WIDTH**2 * slopes @ slopes.T
    alike = DISCREPANCY**2 * np.exp(-apart / 2)
    return Belief(log_steps, constants + COMMON**2 + alike + OWN**2 * np.eye(len(log_steps)))


def positions(configs: Sequence[ParallelConfig]) -> np.ndarray:
    """Layouts as points (layouts x dimensions): degrees and microbatch size in octaves; 1 apart for another schedule, sharded
    optimizer state or recomputation."""
    schedules = sorted({config.schedule for config in configs})
    return np.array([_position(config, schedules) for config in configs])


def _position(config: ParallelConfig, schedules: Sequence[str]) -> list[float]:
    sizes = (config.tp, config.pp, config.dp, config.cp, config.ep, config.vpp, config.microbatch_size)
    kinds = [math.sqrt(0.5) * (config.schedule == name) for name in schedules]
    whole = config.zero_stage > 0, config.zero_stage == 3, config.recompute != "none", config.recompute == "full"
    return [*map(math.log2, sizes), *kinds, *map(float, whole)]


def propose(
    belief: Belief, number: int, measured: Mapping[int, float] | None = None, failed: Sequence[int] = ()
) -> tuple[Proposal, ...]:
    """The layouts to measure next, at most `number`, the first choice first; neither measured ones nor those that `failed`."""
    known = dict(measured or {})
    steps = belief.given(known).draws()
    fastest = np.full(steps.shape[1], min(known.values(), default=math.inf))
    chosen: list[int] = []
    free = [index for index in range(len(steps)) if index not in known and index not in failed]
    while free and len(chosen) < number:
        least = min(free, key=lambda index: float(np.minimum(fastest, steps[index]).mean()))
        fastest = np.minimum(fastest, steps[least])
        chosen.append(least)
        free.remove(least)
    return tuple(Proposal(index, float(np.mean(steps[index] <= fastest))) for index in chosen)


def best(belief: Belief, measured: Mapping[int, float], failed: Sequence[int] = ()) -> int:
    """The layout with the least expected step, where a measured one has its measured step."""
    steps = belief.given(measured).mean.copy()
    for index, seconds in measured.items():
        steps[index] = seconds
    steps[list(failed)] = math.inf
    return int(np.argmin(steps))
