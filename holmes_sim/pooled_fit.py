"""One set of constants for the runs of all stacks, fitted with equal weight for each source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from holmes_sim.posterior import posterior, stack_at
from sim.hardware.stack import DEFAULT, NUMBERS, Stack

USUAL = tuple(name for name in NUMBERS if getattr(DEFAULT, name))
"""Constants that are chosen by sensitivity; the others describe particular software, so its stack file must name them."""
MEASURED = ("attention", "attention_newest")
"""Constants of `USUAL` that a set for all stacks does not fit, because the default has a measured value (`DEFAULT`); attention:
FlashAttention-2 on an H100 reached 0.77 of the catalogue's rate forward and 0.71 backward (docs/model.md, attention in a step).
Most runs that depend on it are of one source, without which three runs would set it."""


@dataclass(frozen=True, slots=True)
class Common:
    """One set of constants for all stacks, fitted with equal weight for each source.

    Errors are means over sources of the mean absolute error of a source, computed with the linearised step times of the fit:
    with the default, with this set, and for each source with a set fitted to the other sources.
    """

    stack: Stack
    default_error: float
    error: float
    left_out_error: float


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Cases as the common fit sees them: its source, sensitivities to `USUAL` and
    residual at the default (log seconds) of each."""

    of: np.ndarray
    slopes: np.ndarray
    residuals: np.ndarray

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources, in the order of the cases."""
        return tuple(dict.fromkeys(self.of.tolist()))


def joined(parts: Sequence[Linear]) -> Linear:
    """The cases of several stacks together."""
    columns = ((part.of, part.slopes, part.residuals) for part in parts)
    return Linear(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def unknowns(linear: Linear, chosen: np.ndarray) -> np.ndarray:
    """Unknowns of `USUAL` for the common set of constants fitted to the chosen cases, with equal weight for each source; 0 for
    those of `MEASURED`."""
    total, many = len(linear.of), len(linear.sources)
    weights = np.array([total / many / int(np.sum(linear.of == source)) for source in linear.of[chosen]])
    fitted = np.array([name not in MEASURED for name in USUAL])
    found = np.zeros(len(USUAL))
    names = [name for name in USUAL if name not in MEASURED]
    found[fitted] = posterior(linear.slopes[chosen][:, fitted], linear.residuals[chosen], names, weights)
    return found


def common(linear: Linear) -> Common | None:
    """Fit one set of constants to all sources with equal weights, and predict each source by a fit to the others.

    None if there is one source.
    """
    of, slopes, residuals, names = linear.of, linear.slopes, linear.residuals, linear.sources
    if len(names) < 2:
        return None
    factors = unknowns(linear, np.full(len(of), True))
    held_out = residuals.copy()
    for name in names:
        held_out[of == name] += slopes[of == name] @ unknowns(linear, of != name)
    errors = [mean(mean_error(r[of == name]) for name in names) for r in (residuals, residuals + slopes @ factors, held_out)]
    return Common(stack_at(USUAL, factors, DEFAULT), *errors)


def mean_error(residuals: np.ndarray) -> float:
    """Mean absolute relative error of residuals in log seconds."""
    return float(np.mean(np.abs(np.expm1(residuals))))
