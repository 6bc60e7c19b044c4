"""The comparison of exporters with parsers: what is drawn, who refuses, and what breaks the law, without any target."""

from __future__ import annotations

import pytest

from benchmarks.parsers import draws, law, reading, reasons
from holmes_sim import exporters

PROGRAM = """
def prepare(folder):
    print("loading")

def check(launch):
    if "--squared-relu" in launch["files"]["megatron.args"].split():
        raise ValueError("no  relu2")
"""


def test_drawn_plans_are_the_same_and_differ_from_each_other():
    plans = list(draws.plans(3, count=40))
    assert plans == list(draws.plans(3, count=40))
    assert {plan.config.pp for plan in plans} == {1, 2, 3, 4}
    assert {bool(list(exporters.unsupported("megatron", plan))) for plan in plans} == {True, False}
    assert len({plan.workload.model for plan in plans}) > 8


def test_what_is_refused_is_written_as_well():
    refused = next(plan for plan in draws.plans(0) if plan.config.schedule == "gpipe" and plan.config.pp == 2)
    found = law.written(refused, "megatron")
    assert found["world"] == refused.config.world_size
    assert "--pipeline-model-parallel-size 2" in found["files"]["megatron.args"].splitlines()
    assert found["environment"] == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


@pytest.mark.parametrize(
    ("ours", "is_written", "theirs", "kind"),
    [
        ((), True, "", "take"), ((), True, "ValueError: no (a.py:1)", "it"), ((), True, "Differs: layers (a.py:1)", "it"),
        (("pp 2: no",), True, "ValueError: no (a.py:1)", "both"), (("pp 2: no",), False, "", "both"),
        (("pp 2: no",), True, "Differs: layers (a.py:1)", "other"), (("pp 2: no",), True, "", "we"),
    ],
)  # fmt: skip
def test_who_refuses(ours, is_written, theirs, kind):
    assert law.Asked(ours, is_written, theirs).kind == kind


def test_the_law_is_broken_by_an_export_that_is_refused_and_by_an_unknown_reason():
    gpipe = "schedule gpipe: it supports 1F1B, plain or interleaved; --schedule 1f1b or interleaved"
    known = {
        "megatron": [
            law.Asked((), True, ""), law.Asked((), True, "ValueError: no (a.py:1)"), law.Asked((gpipe,), True, ""),
            law.Asked((gpipe, "pp 2: no"), True, ""),
        ]
    }  # fmt: skip
    assert [law.broken("megatron", one) for one in known["megatron"]] == [False, True, False, True]
    said = reasons.behind("megatron", gpipe)
    assert said.endswith("it runs 1F1B (core/pipeline_parallel/schedules.py, get_forward_backward_func)")
    assert list(law.table(known)) == [
        *law.HEAD, "| megatron | 4 | 1 | 0 | 0 | 2 | 1 |", "megatron alone refuses 1: ValueError: no (a.py:1)",
        f"megatron takes 2 that we refuse: {said}", "megatron takes 1 that we refuse: NOT KNOWN: pp 2: no",
    ]  # fmt: skip


def test_a_program_answers_in_a_process_of_its_own(tmp_path, monkeypatch, capsys):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(law, "OWN", tmp_path / "program.py")
    with pytest.raises(SystemExit):
        law.show(["--megatron", str(tmp_path), "--plans", "30", "--seed", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == law.HEAD[0]
    assert lines[3] == "megatron alone refuses 3: ValueError: no relu2 (program.py:7)"


def test_without_a_folder_there_is_nothing_to_ask(capsys):
    with pytest.raises(SystemExit):
        law.show(["--plans", "1"])
    assert "name a folder of megatron, flagscale, torchtitan, deepspeed, holmes" in capsys.readouterr().err


def test_a_folder_that_is_not_there_or_has_no_such_target_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as missing:
        law.show(["--holmes", str(tmp_path / "nowhere")])
    assert missing.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: --holmes {tmp_path / 'nowhere'}: no such folder")
    with pytest.raises(SystemExit) as empty:
        law.show(["--megatron", str(tmp_path), "--plans", "1"])
    assert empty.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"error: --megatron {tmp_path}: this folder has no megatron that can be imported: " in last


def test_every_framework_has_reasons_that_lie_behind_its_parser():
    assert set(reasons.BEHIND) == set(law.TARGETS) == set(exporters.frameworks())


def test_a_refusal_of_arguments_is_an_answer():
    with pytest.raises(ValueError, match="unrecognized"):
        reading._refused(None, "unrecognized arguments: --x")
