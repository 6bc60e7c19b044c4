"""Candidates written by hand, and the seconds of their step."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sim.analytic.candidates import PIPELINE_RANK, STAGE, UNTIED, Candidates
from sim.analytic.recurrence import steps
from sim.plan import schedules

CASES = [(name, 1) for name in filter(schedules.is_planned, schedules.names())] + [("interleaved", 2), ("interleaved", 3)]


def candidate(
    schedule: str, pp: int, microbatches: int, vpp: int = 1, tied: float = UNTIED, zero_stage: int = 0, **seconds: Any
) -> Candidates:
    """One candidate; a number stands for all stages (or pipeline ranks), a tuple has one for each."""
    stages, ranks = np.zeros((len(STAGE), pp * vpp, 1)), np.zeros((len(PIPELINE_RANK), pp, 1))
    for name, value in ({"parts": 1.0} | seconds).items():
        whole, names = (stages, STAGE) if name in STAGE else (ranks, PIPELINE_RANK)
        whole[names.index(name), :, 0] = value
    stages[STAGE.index("ahead"), -1] = stages[STAGE.index("back"), 0] = 0.0
    return Candidates(schedule, pp, vpp, microbatches, stages, ranks, np.array([tied]), (zero_stage,) * pp)


def step(*args: Any, **seconds: Any) -> float:
    """Seconds of the step of one candidate, with the arguments of `candidate`."""
    (found,) = steps(candidate(*args, **seconds))
    return float(found)


@st.composite
def many(draw: st.DrawFn) -> Candidates:
    """Candidates of one structure with seconds of all sizes."""
    schedule, vpp = draw(st.sampled_from(CASES))
    pp, count = draw(st.integers(1, 8)), draw(st.integers(1, 30))
    unit = pp if schedule == "interleaved" else 1
    microbatches = unit * draw(st.integers(1, max(1, 120 // unit)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    stages = rng.choice([0.0, 0.5, 1.0, 1.25], (len(STAGE), pp * vpp, count)) + rng.choice([0.0, 1e-3]) * rng.random(count)
    stages *= draw(st.sampled_from([1.0, 0.1])) ** (np.arange(len(STAGE)) > STAGE.index("weight"))[:, None, None]
    for name in ("forward", "inputs"):
        stages[STAGE.index(f"{name}_compute")] = stages[STAGE.index(name)]
    stages[STAGE.index("parts")] = rng.integers(1, 5, (pp * vpp, count))
    stages[STAGE.index("reduce")] *= draw(st.sampled_from([1.0, 10.0]))
    unused = "stream" if schedules.get(schedule).SPLITS_BACKWARD else "weight"  # B's stream: it reduces nothing then
    stages[STAGE.index(unused)] = 0.0
    ranks = rng.random((len(PIPELINE_RANK), pp, count)) * rng.choice([0.0, 1.0], (len(PIPELINE_RANK), 1, 1))
    ranks[PIPELINE_RANK.index("gathered")] *= stages[STAGE.index("gather"), :pp] > 0
    tied, unlike = rng.choice([UNTIED, 0.0, 1.0], count), draw(st.booleans())
    zero = tuple(rng.integers(1, 4, pp if unlike else 1).tolist()) * (1 if unlike else pp)
    return Candidates(schedule, pp, vpp, microbatches, stages, ranks, tied, zero)
