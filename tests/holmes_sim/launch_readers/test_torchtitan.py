"""A TOML file of torchtitan as a job."""

from __future__ import annotations

import pytest

from holmes_sim import launch_readers
from holmes_sim.launch_reading.given import Given
from sim.errors import HolmesError

JOB = """\
[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
"""


def job(tmp_path, text):
    path = tmp_path / "job.toml"
    path.write_text(text, encoding="utf-8")
    return launch_readers.read(path, Given())


def test_a_job_without_a_pipeline_is_zero_3(tmp_path):
    found = job(tmp_path, JOB)
    assert (found.target, found.model.name, found.seq_len, found.precision) == ("torchtitan", "llama-3-70b", 8192, "bf16")
    assert (found.global_batch_size, found.local_batch_size, found.sharded, found.not_modelled) == (None, 8, 0, ())
    assert {key: found.config[key] for key in ("tp", "pp", "zero_stage", "recompute", "microbatch_size")} == {
        "tp": 8, "pp": 1, "zero_stage": 3, "recompute": "full", "microbatch_size": 8,
    }  # fmt: skip


def test_a_pipeline_is_zero_1_with_microbatches_of_its_own(tmp_path):
    more = 'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "Interleaved1F1B"\n[activation'
    found = job(tmp_path, JOB.replace("[activation", more))
    assert {key: found.config[key] for key in ("pp", "vpp", "schedule", "zero_stage", "microbatch_size")} == {
        "pp": 4, "vpp": 2, "schedule": "interleaved", "zero_stage": 1, "microbatch_size": 1,
    }  # fmt: skip
    assert found.ends_count


def test_what_is_not_modelled_is_told_with_its_line(tmp_path):
    text = JOB.replace('"full"', '"selective"') + '[compile]\nenable = true\n[optimizer]\nlr = 1e-4\n[float8]\nfilter = "x"\n'
    assert [line.removeprefix(f"{tmp_path}/") for line in job(tmp_path, text).not_modelled] == [
        "job.toml:11: activation_checkpoint.mode selective: counted as none",
        "job.toml:13: compile.enable = True",
    ]


def test_asynchronous_tensor_parallelism_is_read(tmp_path):
    assert job(tmp_path, JOB).config["own_tp_overlap"] is False
    found = job(tmp_path, JOB.replace("[activation", "enable_async_tensor_parallel = true\n[activation"))
    assert (found.config["own_tp_overlap"], found.not_modelled) == (True, ())


def test_float8_counts_where_a_converter_names_it(tmp_path):
    assert job(tmp_path, JOB.replace('"70B"', '"70B"\nconverters = ["float8"]')).precision == "fp8"


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("8192", '"long"', "job.toml:6: training.seq_len: 'long': a whole number is expected"),
        ('"70B"', '"9B"', "job.toml:3: model.flavor: llama3 9B is not in the catalogue; give --model; known families: "
         "llama3 (llama-3-...), deepseek_v3 (deepseek-v3-...), qwen3 (qwen3-...)"),
        ("-1", '-1\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "ZBVZeroBubble"',
         "job.toml:10: parallelism.pipeline_parallel_schedule: ZBVZeroBubble: 1F1B, GPipe, Interleaved1F1B are modelled"),
        ("-1", "= 1", "job.toml:8: not TOML: Invalid value (at line 8, column 30)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(tmp_path, before, after, fault):
    with pytest.raises(HolmesError) as caught:
        job(tmp_path, JOB.replace(before, after))
    assert str(caught.value) == f"{tmp_path}/{fault}"
