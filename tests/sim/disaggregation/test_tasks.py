"""Order and dependencies of tasks, as theorem 1 of arXiv 2504.03871 has them."""

from __future__ import annotations

from sim.disaggregation.tasks import tasks


def on(stream: str, kept: tuple[int, ...], microbatches: int = 2, rounds: int = 1) -> str:
    return " ".join(str(task) for task in tasks(kept, microbatches, rounds) if task.stream == stream)


def test_streams_of_two_layers_and_two_microbatches():
    assert on("attention", (0, 0)) == "A0F0 A0F1 A1F0 A1F1 A2F0 A2B0 A2F1 A2B1 A1B0 A1B1 A0B0 A0B1"
    assert on("experts", (0, 0)) == "E1F0 E1F1 E2F0 E2F1 E2B0 E2B1 E1B0 E1B1"
    assert on("dispatch", (0, 0)) == "D1F0 D1F1 D2F0 D2F1 D2B0 D2B1 D1B0 D1B1"
    assert on("combine", (0, 0)) == "C1F0 C1F1 C2F0 C2F1 C2B0 C2B1 C1B0 C1B1"


def test_kept_experts_come_after_the_attention_of_all_microbatches():
    assert on("attention", (0, 4)) == ("A0F0 A0F1 A1F0 A1F1 X2F0 X2F1 A2F0 A2B0 A2F1 A2B1 X2B0 X2B1 A1B0 A1B1 A0B0 A0B1")


def test_what_a_task_waits_for():
    listed = tasks((0, 4), 1)
    waits = {str(task): " ".join(str(listed[other]) for other in task.after) for task in listed}
    assert waits == {
        "A0F0": "", "D1F0": "A0F0", "E1F0": "D1F0", "C1F0": "E1F0",
        "A1F0": "C1F0", "D2F0": "A1F0", "X2F0": "D2F0", "E2F0": "D2F0", "C2F0": "E2F0 X2F0",
        "A2F0": "C2F0", "A2B0": "", "D2B0": "A2B0", "X2B0": "D2B0", "E2B0": "D2B0", "C2B0": "E2B0 X2B0",
        "A1B0": "C2B0", "D1B0": "A1B0", "E1B0": "D1B0", "C1B0": "E1B0", "A0B0": "C1B0",
    }  # fmt: skip


def test_rounds_follow_each_other():
    once = on("experts", (0,), 1)
    assert on("experts", (0,), 1, rounds=3) == " ".join([once] * 3)
