"""Fit of the matrix product curve (`sim.hardware.device_spec.GemmCurve`) to measured products."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holmes_sim.profiling.timings import Timings
from sim.hardware.device_spec import GemmCurve
from sim.units import MICRO, BytesPerSecond, FlopsPerSecond

TILE = (128, 256)
"""Tile of a GPU's matrix products, as in the catalogue."""
EXPONENTS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
SHARES = np.geomspace(0.05, 1.0, 41)
STEPS = 25


@dataclass(frozen=True, slots=True)
class Product:
    """A product of (m x k) and (k x n), and its measured seconds."""

    m: int
    n: int
    k: int
    seconds: Timings

    @property
    def flops(self) -> float:
        """FLOPs; a multiply-add counts as two."""
        return 2.0 * self.m * self.n * self.k


def fit(
    products: Sequence[Product], peak: FlopsPerSecond, bandwidth: BytesPerSecond, nbytes: int, units: int, tiled: bool
) -> tuple[GemmCurve, float]:
    """The curve with the least error, and its error: mean of |log(curve / measured)|. The search is a grid over launch times,
    shares of peak and bandwidth and, if `tiled`, wave exponents.

    A CPU has no waves of tiles, so its exponent is 0. `nbytes` is the size of a value, `units` the number of compute units.
    """
    m, n, k = (np.array([getattr(product, side) for product in products], float) for side in "mnk")
    seconds = np.array([product.seconds.minimum for product in products])
    tiles = np.ceil(m / TILE[0]) * np.ceil(n / TILE[1])
    waves = np.ceil(tiles / units) * units * TILE[0] * TILE[1] / (m * n)
    moving = (m * k + k * n + m * n) * nbytes / bandwidth
    launches = np.geomspace(min(0.1 * MICRO, seconds.min() / 2), seconds.min(), STEPS)[:, None, None]
    best: tuple[float, GemmCurve] | None = None
    for exponent, share in itertools.product(EXPONENTS if tiled else (0.0,), SHARES):
        computing = 2.0 * m * n * k * np.maximum(waves, 1.0) ** exponent / (peak * share)
        curves = launches + np.maximum(computing, moving / SHARES[:, None])
        errors = np.abs(np.log(curves / seconds)).mean(axis=-1)
        launch, memory = np.unravel_index(errors.argmin(), errors.shape)
        if best is None or errors[launch, memory] < best[0]:
            found = GemmCurve(float(launches[launch, 0, 0]), float(share), float(SHARES[memory]), exponent, TILE)
            best = float(errors[launch, memory]), found
    assert best is not None
    return best[1], best[0]
