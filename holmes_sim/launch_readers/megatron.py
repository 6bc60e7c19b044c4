"""Megatron-LM: a text of its arguments, or a shell or Slurm script that contains them.

Flags and defaults are those of megatron/training/arguments.py at NVIDIA/Megatron-LM d98e8a64 (2026-08-22)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from holmes_sim.launch_reading import flagscale_schedule, megatron_sharding, shell
from holmes_sim.launch_reading.flags import Flags, by_name
from holmes_sim.launch_reading.given import Given
from holmes_sim.launch_reading.harmless import is_harmless
from holmes_sim.launch_reading.job import Job
from holmes_sim.launch_reading.megatron_model import SHAPE, model_of
from holmes_sim.launching.context import COMM_TYPES
from sim.errors import HolmesError
from sim.plan.context_parallelism import HYBRID
from sim.plan.offloading import ACTIVATIONS, OPTIMIZER
from sim.workload.model import Model

NAME = "Megatron-LM arguments, alone or in a shell or Slurm script"
SIGNS = ("tensor-model-parallel-size", "num-layers", "micro-batch-size")
"""Flags of which a launch of Megatron-LM has at least one."""
ACTIVATION_LAYERS = "cpu-offloading-num-layers"
"""Flag with the number of layers, the first ones, whose activations hosts keep."""
FP8_RECIPES = ("delayed", "tensorwise", "mxfp8")
"""Values of --fp8-recipe whose casts are modelled."""
CP_ALGORITHMS = {word: name for name, word in COMM_TYPES.items()}
"""--cp-comm-type -> `cp_algo`."""
LEVELS = "hierarchical-context-parallel-sizes"
BATCH = re.compile(r"^#SBATCH\s+(-[A-Za-z]|--[\w-]+)(?:[= ]\s*)?(\S+)", re.MULTILINE)


def recognises(text: str) -> bool:
    """Whether a text has flags of Megatron-LM."""
    return any(f"--{sign}" in text for sign in SIGNS)


def read(text: str, name: str, given: Given) -> Job:
    """The job of a launch. Raises HolmesError."""
    asked = {flag.lstrip("-"): value for flag, value in BATCH.findall(text)}
    if "SLURM_NNODES" in given.variables:
        asked["nodes"] = given.variables["SLURM_NNODES"]
    script = shell.follow(text, _slurm(asked), given.variables)
    flags, launcher = _command(script, text, name)
    tp = flags.number("tensor-model-parallel-size", 1)
    model, assumed = (given.model, ()) if given.model is not None else model_of(flags, tp)
    _check_model(flags, model)
    if given.model is not None:
        flags.used |= SHAPE
    pp, layers, vpp = _stages(flags, model)
    if paired := flagscale_schedule.is_used(flags):
        layers, vpp = flagscale_schedule.stages(flags, layers or (model.layers / pp,) * pp, vpp), 2
    job = Job(
        target="flagscale" if paired else "megatron",
        model=model,
        global_batch_size=flags.number("global-batch-size") if flags.has("global-batch-size") else None,
        local_batch_size=flags.number("micro-batch-size", 1),
        seq_len=flags.number("seq-length"),
        precision=_precision(flags),
        config=_config(flags, tp, pp, vpp) | ({"schedule": flagscale_schedule.NAME} if paired else {}),
        layers=layers,
        ends_count=flags.has("account-for-embedding-in-pipeline-split"),
        sharded=0,
        replicated=flags.number("num-distributed-optimizer-instances", 1),
        devices=_devices(launcher, asked),
        optimizer=_optimizer(flags),
        not_modelled=tuple(_not_modelled(flags, script)),
        assumed=(*assumed, *_assumed(flags)),
    )
    if flags.has("use-tp-pp-dp-mapping"):
        raise flags.fault("use-tp-pp-dp-mapping", "only the default order of ranks, tp-cp-ep-dp-pp, is modelled")
    return job


def _optimizer(flags: Flags) -> str:
    """The optimizer, by the precision of its moments; other precisions stay among what is not modelled."""
    moments = ("exp-avg-dtype", "exp-avg-sq-dtype")
    if any(flags.values.get(flag) != ["bf16"] for flag in moments) or "use-precision-aware-optimizer" not in flags.values:
        return "adam"
    flags.used |= {*moments, "use-precision-aware-optimizer"}
    return "adam-bf16-moments"


def _slurm(asked: dict[str, str]) -> dict[str, str]:
    """Variables that Slurm sets for a job with these options of #SBATCH."""
    nodes, tasks = asked.get("nodes", asked.get("N")), asked.get("ntasks-per-node")
    found = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS_PER_NODE": tasks}
    found["SLURM_GPUS_ON_NODE"] = _per_node(asked)
    return {key: value for key, value in found.items() if value}


def _per_node(asked: dict[str, str]) -> str:
    """Devices of a node by the options of #SBATCH; empty if they say none."""
    written = asked.get("gpus-per-node") or next((v for k, v in asked.items() if k == "gres" and v.startswith("gpu")), "")
    return written.rpartition(":")[2] if written else asked.get("ntasks-per-node", "")


def _command(script: shell.Script, text: str, name: str) -> tuple[Flags, Flags]:
    """The flags of the program, and those of its launcher (torchrun, srun), of the command with most flags of Megatron-LM.

    In a text without a program all lines that begin with a flag are one command."""
    bare = [word for _, words in script.commands if words[0].startswith("--") for word in words]
    every = [bare, *(words for _, words in script.commands if not words[0].startswith("--"))]
    if not any(f"--{sign}" in words for words in every for sign in SIGNS):
        every += [value.split() for value in script.variables.values()]
    words = max(every, key=lambda words: sum(word.startswith("--") for word in words))
    if not any(f"--{sign}" in words for sign in SIGNS):
        raise HolmesError(f"{name}: no command with flags of Megatron-LM; their text alone, one flag a line, is read too")
    at = next((index + 1 for index, word in enumerate(words) if re.search(r"\.py[\"']?$", word)), 0)
    return Flags(name, text, by_name(words[at:])), Flags(name, text, by_name(words[:at]))


def _devices(launcher: Flags, asked: dict[str, str]) -> int:
    """Number of devices that the launch says, of torchrun's numbers or else Slurm's; 0 if it says none."""
    nodes = launcher.values.get("nnodes") or [asked.get("nodes", asked.get("N", ""))]
    per_node = launcher.values.get("nproc-per-node") or [_per_node(asked)]
    both = nodes[0], per_node[0]
    return int(both[0]) * int(both[1]) if all(one.isdigit() for one in both) else 0


def _check_model(flags: Flags, model: Model) -> None:
    """Raises HolmesError where the model that the user gave has another number of layers."""
    if flags.has("num-layers") and flags.number("num-layers") != model.layers:
        raise flags.fault("num-layers", f"{flags.word('num-layers')}: model {model.name} has {model.layers}")


def _precision(flags: Flags) -> str:
    kind = next((name for name in ("bf16", "fp16") if flags.has(name)), "fp32")
    if flags.has("fp4-format"):
        return "nvfp4"
    if flags.has("fp8-format") or flags.has("fp8"):
        if flags.values.get("fp8-recipe", ["delayed"])[0] not in FP8_RECIPES:
            return "fp8"  # blockwise and custom stay among what is not modelled
        return "mxfp8" if flags.word("fp8-recipe") == "mxfp8" else "fp8"
    return kind


def _assumed(flags: Flags) -> Iterator[str]:
    """What is assumed of the model and the schedule of a launch."""
    yield from (*_scaling(flags), *_one_by_one(flags), *_parts_of_context(flags))
    yield from (*megatron_sharding.assumed(flags), *flagscale_schedule.assumed(flags))


def _scaling(flags: Flags) -> tuple[str, ...]:
    """What a launch in fp8 with current scaling assumes: the stack of the topology says how tensors are scaled."""
    if flags.values.get("fp8-recipe") != ["tensorwise"]:
        return ()
    return ("--fp8-recipe tensorwise: casts read each tensor twice if the topology's stack says current_scaling, once if not",)


def _parts_of_context(flags: Flags) -> tuple[str, ...]:
    """What a launch assumes whose cp ranks exchange heads and keys: which of them are on one node is known with the fleet."""
    if CP_ALGORITHMS.get(flags.word("cp-comm-type", "p2p")) != HYBRID or flags.number("context-parallel-size", 1) == 1:
        return ()
    sizes = " ".join(flags.values.get(LEVELS, []))
    return (f"--{LEVELS} {sizes}: ranks on one node exchange heads, ranks of several nodes keys",)


def _one_by_one(flags: Flags) -> tuple[str, ...]:
    """What a launch with several experts on a rank assumes without --moe-grouped-gemm: Megatron-Core has a SequentialMLP."""
    several = flags.number("num-experts", 1) > flags.number("expert-model-parallel-size", 1)
    if not several or flags.has("moe-grouped-gemm"):
        return ()
    return ("no --moe-grouped-gemm: the experts of a rank run one after the other, which takes longer than is counted here",)


def _config(flags: Flags, tp: int, pp: int, vpp: int) -> dict[str, Any]:
    precision, cp = _precision(flags), flags.number("context-parallel-size", 1)
    sequence = flags.has("sequence-parallel") and tp > 1
    found: dict[str, Any] = {
        "tp": tp, "pp": pp, "cp": cp, "vpp": vpp, "schedule": "interleaved" if vpp > 1 else "1f1b",
        "microbatch_size": flags.number("micro-batch-size", 1), "sequence_parallel": sequence,
        "attention": "unfused" if flags.word("attention-backend") in ("unfused", "local") else "flash",
        "own_tp_overlap": flags.has("tp-comm-overlap"), **megatron_sharding.settings(flags, precision),
    }  # fmt: skip
    if cp > 1 and (algorithm := _cp_algo(flags, cp)) != "ring":
        found["cp_algo"] = algorithm
    if flags.has("num-experts"):
        found |= _experts(flags, tp)
    return found | _recomputation(flags) | _offload(flags)


def _cp_algo(flags: Flags, cp: int) -> str:
    """How cp ranks share attention. Raises HolmesError for another word, and for levels that are not those of cp ranks."""
    exchange = flags.word("cp-comm-type", "p2p")
    if exchange not in CP_ALGORITHMS:
        raise flags.fault("cp-comm-type", f"{exchange} is unknown; known: {', '.join(CP_ALGORITHMS)}")
    if CP_ALGORITHMS[exchange] == HYBRID:
        sizes = flags.words(LEVELS)
        if not all(map(str.isdecimal, sizes)) or len(sizes) != 2 or math.prod(map(int, sizes)) != cp:
            wanted = f"two numbers whose product is the context-parallel size, {cp}, are expected"
            raise flags.fault(LEVELS if sizes else "cp-comm-type", f"{' '.join(sizes) or exchange}: {wanted} as --{LEVELS}")
    return CP_ALGORITHMS[exchange]


def _offload(flags: Flags) -> dict[str, Any]:
    """Optimizer state on the hosts, if all of it is there, and activations, if those of all layers but the last one are; a part
    of either stays among what is not modelled."""
    found: list[str] = []
    whole = flags.values.get("optimizer-offload-fraction", ["1.0"]) in (["1"], ["1.0"])
    if "optimizer-cpu-offload" in flags.values and whole:
        flags.used |= {"optimizer-cpu-offload", "optimizer-offload-fraction", "use-precision-aware-optimizer"}
        found.append(OPTIMIZER)
    layers = flags.values.get("num-layers", ["0"])[-1]
    if layers.isdecimal() and flags.values.get(ACTIVATION_LAYERS) == [str(int(layers) - 1)] and int(layers) > 1:
        flags.used.add(ACTIVATION_LAYERS)
        found.append(ACTIVATIONS)
    return {"offload": tuple(found)} if found else {}


def _experts(flags: Flags, tp: int) -> dict[str, Any]:
    dispatcher = flags.word("moe-token-dispatcher-type", "allgather")
    if dispatcher == "flex":
        dispatcher = flags.word("moe-flex-dispatcher-backend", "deepep")
    return {
        "ep": flags.number("expert-model-parallel-size", 1), "etp": flags.number("expert-tensor-parallel-size", tp),
        "dispatcher": dispatcher, "overlap_expert_communication": flags.has("overlap-moe-expert-parallel-comm"),
        "overlap_shared_experts": flags.has("moe-shared-expert-overlap") and flags.has("moe-shared-expert-intermediate-size"),
        **_capacity(flags),
    }  # fmt: skip


def _capacity(flags: Flags) -> dict[str, Any]:
    """Tokens that an expert takes at most; a negative factor means that none is dropped (transformer_config.py)."""
    padded = flags.has("moe-pad-expert-input-to-capacity")
    if not (word := flags.word("moe-expert-capacity-factor")):
        if padded:
            raise flags.fault("moe-pad-expert-input-to-capacity", "it needs --moe-expert-capacity-factor, such as 1.1")
        return {}
    try:
        factor = float(word)
    except ValueError:
        factor = 0.0
    if not factor or not math.isfinite(factor):
        raise flags.fault("moe-expert-capacity-factor", f"{word}: a number above 0 is expected here, such as 1.1")
    return {"capacity_factor": factor, "pad_to_capacity": padded} if factor > 0 else {}


def _recomputation(flags: Flags) -> dict[str, Any]:
    kind = flags.word("recompute-granularity", "selective" if flags.has("recompute-activations") else "none")
    if kind == "full":
        block = flags.word("recompute-method") == "block"
        flags.has("recompute-num-layers")
        return {"recompute": "full", "recompute_layers": (flags.number("recompute-num-layers", 1),) if block else ()}
    if kind not in ("none", "selective"):
        raise flags.fault("recompute-granularity", f"{kind}: full or selective is expected here")
    modules = tuple(flags.words("recompute-modules")) if kind == "selective" else ()
    return {"recompute": kind, "recompute_modules": modules}


def _stages(flags: Flags, model: Model) -> tuple[int, tuple[int, ...], int]:
    """(pp, layers of every virtual stage or none for equal ones, vpp)."""
    pp, layers = flags.number("pipeline-model-parallel-size", 1), model.layers
    if written := flags.word("pipeline-model-parallel-layout").strip("\"'"):
        found = tuple(_layers_of(part) for part in written.split("|"))
        if sum(found) != layers or len(found) % pp:
            what = f"{written}: {sum(found)} layers on {len(found)} stages; expected are {layers} on a multiple of pp {pp}"
            raise flags.fault("pipeline-model-parallel-layout", what)
        return pp, found, len(found) // pp
    vpp = flags.number("num-virtual-stages-per-pipeline-rank", 1)
    if flags.has("num-layers-per-virtual-pipeline-stage"):
        each = flags.number("num-layers-per-virtual-pipeline-stage") * pp
        if layers % each:
            what = f"{each // pp} x pp {pp} does not divide {layers} layers"
            raise flags.fault("num-layers-per-virtual-pipeline-stage", what)
        vpp = layers // each
    first, last = (flags.number(f"decoder-{end}-pipeline-num-layers", 0) for end in ("first", "last"))
    if not first and not last:
        return pp, (), vpp
    others = pp - bool(first) - bool(last)
    if vpp > 1 or others < 1 or (layers - first - last) % others:
        flag = "decoder-first-pipeline-num-layers" if first else "decoder-last-pipeline-num-layers"
        raise flags.fault(flag, f"{layers - first - last} other layers do not divide into {others} stages (vpp {vpp})")
    inner = ((layers - first - last) // others,) * others
    return pp, (*((first,) if first else ()), *inner, *((last,) if last else ())), 1


def _layers_of(part: str) -> int:
    """Layers of a stage of --pipeline-model-parallel-layout: t, t*3, or (tt)*2."""
    part = re.sub(r"\(([a-zA-Z]+)\)\*(\d+)", lambda m: m[1] * int(m[2]), part)
    part = re.sub(r"([a-zA-Z])\*(\d+)", lambda m: m[1] * int(m[2]), part)
    return part.count("t")


def _not_modelled(flags: Flags, script: shell.Script) -> Iterator[str]:
    """Flags that may change the step time and that nothing here reads, and blocks of the script that were left out."""
    for flag, values in flags.values.items():
        if flag not in flags.used and not is_harmless(flag):
            yield f"{flags.name}:{flags.line(flag)}: " + " ".join([f"--{flag}", *values])
    for line in script.left_out:
        yield f"{flags.name}:{line}: arguments under a condition that cannot be followed"
