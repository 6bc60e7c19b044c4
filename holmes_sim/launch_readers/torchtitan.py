"""torchtitan: a TOML file of a job.

Keys and defaults are those of torchtitan 0.1 and 0.2 (torchtitan/config/job_config.py, distributed/parallel_dims.py and
pipeline_parallel.py); 0.3 has Python functions in place of TOML, which are not read. Without a pipeline FSDP gathers weights
and reduces gradients with every microbatch: ZeRO 3, or ZeRO 2 where they are not sharded again. A pipeline does so once: ZeRO
1."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holmes_sim.launch_reading.given import Given
from holmes_sim.launch_reading.job import Job
from sim.errors import HolmesError
from sim.formats import catalog
from sim.workload.model import Model

NAME = "torchtitan TOML"
SCHEDULES = {"1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved"}
"""torch's name of a schedule -> ours."""
FAMILIES = {"llama3": "llama-3", "deepseek_v3": "deepseek-v3", "qwen3": "qwen3"}
"""torchtitan's model -> beginning of its names in the catalogue, which end in the flavor; DeepSeek-V3 has one."""
HARMLESS = (
    "job", "profiling", "metrics", "optimizer", "lr_scheduler", "checkpoint", "comm", "validation", "experimental", "debug",
    "fault_tolerance", "memory_estimation", "quantize", "float8", "mx",
)  # fmt: skip
"""Sections that change no step time; those of narrow precisions count where `model.converters` names them."""
HARMLESS_KEYS = (
    "model.tokenizer_path", "model.hf_assets_path", "model.print_after_conversion", "model.converters", "training.steps",
    "training.dataset", "training.dataset_path", "training.max_norm", "training.seed", "training.deterministic",
    "model.name", "model.flavor", "training.mixed_precision_reduce", "training.gc_freq",
)  # fmt: skip
Value = TypeVar("Value", int, str, bool)


@dataclass(slots=True)
class _Table:
    """The values of a file, with the keys that were asked for."""

    name: str
    text: str
    values: dict[str, Any]
    used: set[str] = field(default_factory=set)

    def get(self, key: str, default: Value) -> Value:
        """The value of section.key. Raises HolmesError where it has another type than the default."""
        self.used.add(key)
        section, _, last = key.partition(".")
        value = self.values.get(section, {}).get(last, default)
        if type(value) is not type(default):
            raise self.fault(
                key, f"{value!r}: {'a whole number' if type(default) is int else type(default).__name__} is expected"
            )
        return value

    def fault(self, key: str, what: str) -> HolmesError:
        """An error at a key."""
        return HolmesError(f"{self.name}:{self.line(key)}: {key}: {what}")

    def line(self, key: str) -> int:
        """The line of a key in its section; 1 if it is not there."""
        section, _, last = key.partition(".")
        here = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\s*\[([^\]]+)\]", line):
                here = header[1].strip()
            elif here == section and re.match(rf"\s*{re.escape(last)}\s*=", line):
                return number
        return 1


def recognises(text: str) -> bool:
    """Whether a text has torchtitan's sections."""
    return all(re.search(rf"^\s*\[{section}\]", text, re.MULTILINE) for section in ("model", "training"))


def read(text: str, name: str, given: Given) -> Job:
    """The job of a launch. Raises HolmesError."""
    try:
        table = _Table(name, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"\(at line (\d+)", str(error))
        raise HolmesError(f"{name}:{at[1] if at else len(text.splitlines())}: not TOML: {error}") from None
    model = given.model or _model(table)
    pp, shard = table.get("parallelism.pipeline_parallel_degree", 1), table.get("parallelism.data_parallel_shard_degree", -1)
    local = table.get("training.local_batch_size", 0) or table.get("training.batch_size", 8)
    whole = table.get("training.global_batch_size", -1)
    config, precision = _config(table, pp, local, shard), _precision(table)
    return Job(
        target="torchtitan",
        model=model,
        global_batch_size=whole if whole > 0 else None,
        local_batch_size=local,
        seq_len=table.get("training.seq_len", 2048),
        precision=precision,
        config=config | _stages(table, model, pp),
        ends_count=pp > 1,
        sharded=max(shard, 0),
        replicated=table.get("parallelism.data_parallel_replicate_degree", 1),
        not_modelled=tuple(_not_modelled(table)),
    )


def _model(table: _Table) -> Model:
    name, flavor = table.get("model.name", "llama3"), table.get("model.flavor", "8B")
    family = FAMILIES.get(name, "")
    wanted = family if name == "deepseek_v3" and flavor == "671B" else f"{family}-{flavor.lower()}"
    if wanted not in catalog.names("models"):
        known = ", ".join(f"{key} ({start}-...)" for key, start in FAMILIES.items())
        raise table.fault("model.flavor", f"{name} {flavor} is not in the catalogue; give --model; known families: {known}")
    return catalog.model(wanted)


def _precision(table: _Table) -> str:
    found = table.get("training.mixed_precision_param", "bfloat16")
    if found not in ("bfloat16", "float32"):
        raise table.fault("training.mixed_precision_param", f"{found!r}: bfloat16 or float32 is expected")
    converters = table.values.get("model", {}).get("converters", [])
    if any("mx" in str(one) for one in converters):
        return "mxfp8"
    return "fp8" if any("float8" in str(one) for one in converters) else {"bfloat16": "bf16", "float32": "fp32"}[found]


def _config(table: _Table, pp: int, local: int, shard: int) -> dict[str, Any]:
    tp, cp = table.get("parallelism.tensor_parallel_degree", 1), table.get("parallelism.context_parallel_degree", 1)
    reshard = table.get("parallelism.fsdp_reshard_after_forward", "default")
    again = reshard == "always" or (reshard == "default" and pp == 1)
    zero = 0 if shard == 1 and cp == 1 else 1 if pp > 1 else 3 if again else 2
    mode = table.get("activation_checkpoint.mode", "selective")
    found: dict[str, Any] = {
        "tp": tp, "pp": pp, "cp": cp, "zero_stage": zero, "sequence_parallel": tp > 1, "attention": "flash",
        "recompute": "full" if mode == "full" else "none", "gradient_precision": "fp32", "overlap_grad_reduce": pp == 1,
        "overlap_param_gather": pp == 1,
        "own_tp_overlap": table.get("parallelism.enable_async_tensor_parallel", False),
        "microbatch_size": table.get("parallelism.pipeline_parallel_microbatch_size", 1) if pp > 1 else local,
    }  # fmt: skip
    ep = table.get("parallelism.expert_parallel_degree", 1)
    return found | ({"ep": ep, "etp": table.get("parallelism.expert_tensor_parallel_degree", 1)} if ep > 1 else {})


def _stages(table: _Table, model: Model, pp: int) -> dict[str, Any]:
    """vpp and the schedule: embedding and head count as a layer each (`generate_llm_fqn_per_model_part`)."""
    written = table.get("parallelism.pipeline_parallel_schedule", "1F1B")
    if pp == 1:
        return {"vpp": 1, "schedule": "1f1b"}
    if written not in SCHEDULES:
        raise table.fault("parallelism.pipeline_parallel_schedule", f"{written}: {', '.join(SCHEDULES)} are modelled")
    each = table.get("parallelism.pipeline_parallel_layers_per_stage", 0)
    interleaved = written == "Interleaved1F1B"
    if not each:
        return {"vpp": 2 if interleaved else 1, "schedule": SCHEDULES[written]}
    stages = -(-(model.layers + 2) // each)
    if stages % pp or (stages > pp) != interleaved:
        what = f"{each}: {stages} stages, embedding and head counted as a layer each, for pp {pp} with {written}"
        raise table.fault("parallelism.pipeline_parallel_layers_per_stage", what)
    return {"vpp": stages // pp, "schedule": SCHEDULES[written]}


def _not_modelled(table: _Table) -> Iterator[str]:
    mode = table.get("activation_checkpoint.mode", "selective")
    if mode not in ("none", "full"):
        yield f"{table.name}:{table.line('activation_checkpoint.mode')}: activation_checkpoint.mode {mode}: counted as none"
    for section, values in table.values.items():
        if section in HARMLESS or not isinstance(values, dict):
            continue
        for key, value in values.items():
            whole = f"{section}.{key}"
            if whole in table.used or whole in HARMLESS_KEYS or value in (False, ""):
                continue
            yield f"{table.name}:{table.line(whole)}: {whole} = {value}"
