"""What a token of training by islands is worth: the tokens of synchronous training that reach the same loss.

The loss of DiLoCo above that of synchronous training with the same tokens is published by number of parameters N, islands M
and inner steps H; `LOSS_GAP` and `GAP_BY_STEPS` have these numbers. A gap in loss becomes a number of tokens by the law of
Hoffmann et al. (arXiv 2203.15556, equation 10 and section 3.3, approach 3: L = 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28) at
D = 20 N tokens: synchronous training has the same loss after D' < D tokens, and a token is worth D' / D. The same batch is
divided among the islands, as in these papers. The laws themselves (arXiv 2503.09799, table 7) are not used: at 10 billion
parameters their difference has the wrong sign.

Nothing like it is published for other strategies on language models, so that their worth is unknown (None)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sim.plan.islands import IslandsPlan
from sim.sync import Sync
from sim.units import GIGA

PARAMETERS = (35e6, 90e6, 180e6, 335e6, 550e6, 1.3e9, 2.4e9, 4e9, 10e9)
LOSS_GAP = {
    1: (-0.001, -0.001, -0.002, -0.003, -0.003, -0.004, -0.004, -0.002, -0.002),
    2: (0.007, 0.005, 0.003, 0.001, 0.002, 0.002, -0.001, -0.002, -0.002),
    4: (0.020, 0.015, 0.011, 0.009, 0.007, 0.005, 0.003, 0.003, 0.003),
    8: (0.039, 0.031, 0.023, 0.020, 0.017, 0.013, 0.011, 0.011, 0.011),
}
"""Islands -> loss above that of data-parallel training, as a share of it, at `PARAMETERS` and 30 inner steps (Charles et al.,
arXiv 2503.09799, tables 4 and 5). Their table ends at 2.4e9 parameters for 8 islands; that value stands for larger models, too.
Of a model between two sizes the gap is interpolated over the logarithm of the parameters."""
INNER_STEPS = 30
"""Inner steps of `LOSS_GAP`."""
GAP_BY_STEPS = {1: 0.0024, 2: 0.0058, 4: 0.0092, 8: 0.0126}
"""Islands -> what the gap grows for each factor e of the inner steps above 30. For 2 and 4: the mean over 35e6 to 1e9
parameters of 100 against 30 inner steps (Douillard et al., arXiv 2501.18512, table 6, whose losses have two decimals); for 1
and 8, their line over the logarithm of the islands, a guess. DiLoCo's own paper has 0.0035 for 8 islands from 50 to 1000 steps
(arXiv 2311.08105, section 3.1: 2.9 % of perplexity)."""
ROUNDING = 0.004
"""Uncertainty of a gap, as a share of the loss: the two decimals of the published losses, 0.01 of 2.5."""
STRATEGIES = ("diloco", "streaming-diloco")
"""Strategies whose loss is published. That of streaming DiLoCo, with fragments, an overlap of one inner step and 4-bit values,
is that of DiLoCo within the rounding (arXiv 2501.18512, table 5)."""
COMPRESSIONS = ("none", "bf16", "int8", "int4")
"""Compressions of outer gradients without a published loss of quality (same table; arXiv 2412.01152, section 2.2)."""
SOURCE = "arXiv 2503.09799, tables 4 and 5; arXiv 2501.18512, table 6; arXiv 2203.15556, approach 3"
_E, _A, _B, _ALPHA, _BETA = 1.69, 406.4, 410.7, 0.34, 0.28


@dataclass(frozen=True, slots=True)
class TokenWorth:
    """Tokens of synchronous training that a token is worth: the expected value and its range; never above 1.

    extrapolated: what lies outside the published range, in words; empty if nothing does."""

    expected: float
    low: float
    high: float
    extrapolated: str = ""


EXACT = TokenWorth(1.0, 1.0, 1.0)


def token_worth(plan: IslandsPlan) -> TokenWorth | None:
    """What a token of a plan of islands is worth; None if it is unknown, as for adapters, for which no loss is published."""
    if plan.workload.adapter is not None and plan.sync.price != "exact":
        return None
    return worth_of(plan.sync, plan.workload.model.parameters, len(plan.islands))


def worth_of(sync: Sync, parameters: float, islands: int) -> TokenWorth | None:
    """What a token is worth for a model with so many parameters on so many islands; None if it is unknown."""
    if sync.price == "exact":
        return EXACT
    if sync.strategy not in STRATEGIES or sync.compression not in COMPRESSIONS or sync.aggregation != "mean":
        return None
    gap = loss_gap(parameters, islands, sync.inner_steps)
    outside = [f"{parameters / GIGA:.3g} billion parameters (published: to 10)"] if parameters > PARAMETERS[-1] else []
    outside += [f"{islands} islands (published: to 8)"] if islands > max(LOSS_GAP) else []
    outside += [f"{sync.inner_steps} inner steps (published: to 100)"] if sync.inner_steps > 100 else []
    expected, low, high = (_worth(gap + spread, parameters) for spread in (0.0, ROUNDING, -ROUNDING))
    return TokenWorth(expected, low, high, ", ".join(outside))


def loss_gap(parameters: float, islands: int, inner_steps: int) -> float:
    """Loss above that of synchronous training with the same tokens, as a share of it.

    Interpolated over the logarithms of parameters and islands; beyond the published numbers, that of the nearest one."""
    counts = sorted(LOSS_GAP)
    by_count = [float(np.interp(math.log(parameters), np.log(PARAMETERS), LOSS_GAP[count])) for count in counts]
    slopes = [GAP_BY_STEPS[count] for count in counts]
    gap, slope = (float(np.interp(math.log2(islands), np.log2(counts), values)) for values in (by_count, slopes))
    return gap + slope * max(math.log(inner_steps / INNER_STEPS), 0.0)


def _worth(gap: float, parameters: float) -> float:
    """Tokens of synchronous training for one token with a gap in loss."""
    tokens = 20 * parameters
    by_data = _B / tokens**_BETA
    loss = _E + _A / parameters**_ALPHA + by_data
    return float((1 + max(gap, 0.0) * loss / by_data) ** (-1 / _BETA))
