"""Step times in logs: lines as Megatron-LM and torchtitan print them, warm-up, and logs of other runs."""

from __future__ import annotations

import pytest

from holmes_sim.run_logs import step_of
from sim.errors import HolmesError
from sim.plan.plan import Plan
from tests import builders

MEGATRON = (
    " [2025-04-13 23:41:12] iteration {step:8d}/    1000 | consumed samples:          160 |"
    " elapsed time per iteration (ms): {ms} | learning rate: 0.000000E+00 | global batch size:     8 |"
    " loss scale: 8388608.0 | number of nan iterations:   0 |"
)
TITAN = (
    "[rank0]:[titan] 2025-10-30 20:35:34,953 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss:  7.1839  \x1b[38;2;180;60;0m"
    "grad_norm:  0.9971  \x1b[36mmemory: 52.53GiB(66.33%)  \x1b[34mtps: {tps}  "
    "\x1b[36mtflops: 207.87  \x1b[35mmfu: 21.02%\x1b[0m"
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Eight sequences of a step on one device."""
    return builders.plan(builders.fleet(builders.cluster()), microbatches=8)


def megatron(*pairs: tuple[int, object]) -> str:
    return "\n".join(["using world size: 1", *(MEGATRON.format(step=step, ms=ms) for step, ms in pairs), "done"])


def test_megatron_prints_milliseconds(plan: Plan) -> None:
    found = step_of(megatron((10, 31147.6), (20, 1150.0), (30, 1140.0), (40, 1190.0)), plan, "run.log")
    assert found is not None
    assert (found.seconds, found.lines) == (pytest.approx(1.150), 3)


def test_first_line_and_first_five_steps_are_warm_up(plan: Plan) -> None:
    found = step_of(megatron(*((step, 9000.0) for step in range(1, 6)), (6, 1000.0), (7, 1100.0)), plan, "run.log")
    assert found is not None
    assert (found.seconds, found.lines) == (pytest.approx(1.050), 2)


def test_a_log_of_warm_up_alone_is_refused(plan: Plan) -> None:
    for text in (megatron((100, 1000.0)), megatron((1, 1000.0), (2, 1000.0))):
        with pytest.raises(HolmesError, match=r"run.log: no step time after warm-up; a log needs two lines"):
            step_of(text, plan, "run.log")


def test_another_batch_is_another_run(plan: Plan) -> None:
    text = megatron((10, 1000.0), (20, 1000.0)).replace("global batch size:     8", "global batch size:    64")
    with pytest.raises(HolmesError, match=r"^run.log:2: global batch size: 64; the plan of this folder has 8$"):
        step_of(text, plan, "run.log")


def test_torchtitan_prints_tokens_per_second_and_device(plan: Plan) -> None:
    """A step has 8 sequences; at as many tokens a second as 2 sequences have, it takes 4 seconds on one device."""
    tps = f"{2 * plan.workload.seq_len:,}"
    lines = [TITAN.format(step=1, tps="12"), TITAN.format(step=10, tps=tps), TITAN.format(step=20, tps=tps)]
    found = step_of("\n".join(lines), plan, "run.log")
    assert found is not None
    assert (found.seconds, found.lines) == (pytest.approx(4.0), 2)


def test_torchtitans_validation_is_no_step(plan: Plan) -> None:
    text = "[titan] 2025-10-30 20:35:34,953 - root - INFO - validate step: 20  loss:  7.1  memory: 52.53GiB(66.33%)  tps: 9,999"
    assert step_of(text, plan, "run.log") is None


def test_a_file_without_step_times_is_no_log(plan: Plan) -> None:
    assert step_of("--tensor-model-parallel-size 2\niteration of hosts\n", plan, "megatron.txt") is None
