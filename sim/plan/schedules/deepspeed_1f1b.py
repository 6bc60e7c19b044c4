"""1F1B of DeepSpeed: in the steady state a forward's message leaves only after the next gradient has arrived.

DeepSpeed's TrainSchedule (deepspeed/runtime/pipe/schedule.py) puts SendActivation into the following backward step, after
RecvGrad; Megatron-LM sends and receives at the same time. A pipeline whose last stages are slow therefore waits for both
messages, one after the other, in every microbatch.
"""

from __future__ import annotations

from sim.plan.program import Program
from sim.plan.schedules import one_f_one_b

NAME = "1f1b-deepspeed"
CHUNKED = False
OVERLAPS_SENDS = False
SPLITS_BACKWARD = False
RECEIVES_FIRST = True
SEARCHED = False
PRODUCTION = True
FORWARDS_FIRST = False
WHOLE_ROUNDS = False
WARM_UP = 1


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """The compute actions of 1F1B."""
    return one_f_one_b.actions(rank, ranks, microbatches, chunks)
