"""Pydantic models of a fitted software stack (`sim/catalog/stacks`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.formats.fields import Count, Factor, Flag, Fraction, NonNegative, RelativeError, Size, StrictModel, Time, Whole
from sim.hardware.memory_facts import KEPT, MEGATRON, MemoryFacts
from sim.hardware.refusals import REFUSED
from sim.hardware.stack import DEFAULT, FACTS, NUMBERS, PASSES, TIMES, Stack
from sim.plan.expert_parallelism import DISPATCHERS
from sim.plan.layer_partitions import PARTITIONS
from sim.units import MEBI, MICRO


def _number_name(value: object) -> object:
    if value not in NUMBERS:
        raise ValueError(f"{value!r} is not a number of a stack; known: {', '.join(NUMBERS)}")
    return value


NumberName = Annotated[str, BeforeValidator(_number_name)]


def _kept_name(value: object) -> object:
    if value not in KEPT:
        raise ValueError(f"{value!r} is nothing that software is known to keep; known: {', '.join(KEPT)}")
    return value


KeptName = Annotated[str, BeforeValidator(_kept_name)]


def _pass_name(value: object) -> object:
    if value not in PASSES:
        raise ValueError(f"{value!r} is not an elementwise kernel; known: {', '.join(PASSES)}")
    return value


def _refused_name(value: object) -> object:
    if value not in REFUSED:
        raise ValueError(f"{value!r} is nothing that software is known to refuse; known: {', '.join(REFUSED)}")
    return value


def _dispatcher_name(value: object) -> object:
    if value not in DISPATCHERS:
        raise ValueError(f"{value!r} is unknown; known: {', '.join(DISPATCHERS)}")
    return value


def _partition_name(value: object) -> object:
    if value not in PARTITIONS:
        raise ValueError(f"{value!r} is unknown; known: {', '.join(PARTITIONS)}")
    return value


PartitionName = Annotated[str, BeforeValidator(_partition_name)]
DispatcherName = Annotated[str, BeforeValidator(_dispatcher_name)]
RefusedName = Annotated[str, BeforeValidator(_refused_name)]
PassName = Annotated[str, BeforeValidator(_pass_name)]


class StackMemory(StrictModel):
    """What a software stack keeps in memory beyond Megatron-LM (`sim.hardware.memory_facts`)."""

    keeps: tuple[KeptName, ...] = ()
    workspace: Size = MEGATRON.workspace
    fragmentation: Fraction = MEGATRON.fragmentation
    launches: tuple[Count, Count] | None = MEGATRON.launches

    def facts(self) -> MemoryFacts:
        """The facts of the simulator."""
        return MemoryFacts(**self.model_dump())


class StackNumbers(StrictModel):
    """Fitted numbers of a software stack. A missing number has the value of the default stack."""

    gemm: Factor = DEFAULT.gemm
    attention: Factor = DEFAULT.attention
    attention_newest: Factor = DEFAULT.attention_newest
    elementwise: Factor = DEFAULT.elementwise
    communication: Factor = DEFAULT.communication
    launch: Time = DEFAULT.launch
    step: Time = DEFAULT.step
    launch_per_rank: Time = DEFAULT.launch_per_rank
    network_delay: Time = DEFAULT.network_delay
    update_bytes: NonNegative = DEFAULT.update_bytes

    def stack(self) -> Stack:
        """The stack of the simulator."""
        return Stack(**self.model_dump())

    def written(self) -> dict[str, object]:
        """The numbers that are given, as plain data, with all digits."""
        found = {name: getattr(self, name) for name in NUMBERS if name in self.model_fields_set}
        return {name: f"{value / MICRO:.15g} us" if name in TIMES else value for name, value in found.items()}


class StackConstants(StrictModel):
    """A software stack: its numbers, and facts that are not fitted (`sim.hardware.stack.Stack`).

    `runs` is the number of measured runs that the numbers were fitted to; 0 for numbers that were written by hand."""

    name: str
    runs: Whole = 0
    blocking: Flag = False
    all_reduces: Flag = False
    tp_overlap: Flag = False
    tp_backward_overlap: Flag = False
    copied_sequences: Flag = False
    gathered_keys: Flag = False
    whole_latents: Flag = False
    separate_qkv: Flag = False
    separate_gate: Flag = False
    separate_scatters: Flag = False
    summed_norms: Flag = False
    tensor_lists: Flag = False
    engine_modules: Flag = False
    unfused_optimizer: Flag = False
    held_receivers: Flag = False
    message_calls: tuple[Whole, Whole, Whole, Whole] = DEFAULT.message_calls
    newest_attention: Flag = DEFAULT.newest_attention
    cudnn_9_19: Flag = False
    attention_bf16_sums: Flag = False
    newest_products: Flag = False
    fused_accumulation: Flag = False
    early_stop: Flag = False
    whole_messages: Flag = False
    fp8_param_gather: Flag = False
    fp8_attention: Flag = False
    fp8_head: Flag = False
    current_scaling: Flag = False
    amax_reduction: Flag = False
    fused_experts: Flag = False
    dispatcher: DispatcherName = DEFAULT.dispatcher
    overlap_shared_experts: Flag = False
    overlap_expert_communication: Flag = False
    passes: dict[PassName, Factor] = Field({})
    memory: StackMemory = StackMemory()
    refuses: tuple[RefusedName, ...] = ()
    fitted: StackNumbers

    @model_validator(mode="after")
    def _has_one_overlap(self) -> Self:
        """Raise ValueError for overlaps of an exchange of tokens that no configuration has (`ParallelConfig.check_experts`)."""
        name = "overlap_expert_communication"
        if self.overlap_expert_communication and self.overlap_shared_experts:
            raise ValueError(f"{name} with overlap_shared_experts: tokens travel beside one of the two; leave one out")
        if self.overlap_expert_communication and self.dispatcher == "allgather":
            raise ValueError(f"{name} with dispatcher allgather: it overlaps an all_to_all; alltoall, deepep or hybridep")
        return self

    def stack(self, numbers: StackNumbers | None = None) -> Stack:
        """The stack of the simulator with the given numbers, or its own, and the facts of this entry."""
        chosen = self.fitted if numbers is None else numbers
        passes = tuple(sorted(self.passes.items()))
        switches = {fact: getattr(self, fact) for fact in FACTS}
        found = replace(chosen.stack(), memory=self.memory.facts(), passes=passes, refuses=self.refuses, **switches)
        return replace(found, dispatcher=self.dispatcher, message_calls=self.message_calls)

    def unfitted(self) -> Stack:
        """The default stack with the facts of this entry."""
        return self.stack().unfitted()


def written_facts(stack: Stack) -> dict[str, object]:
    """The facts of a stack as plain data, without those of the default stack."""
    memory, found = stack.memory, dict[str, object]()
    if memory.keeps:
        found["keeps"] = list(memory.keeps)
    if memory.workspace != MEGATRON.workspace:
        found["workspace"] = f"{memory.workspace / MEBI:.15g} MiB"
    if memory.fragmentation:
        found["fragmentation"] = memory.fragmentation
    if memory.launches:
        found["launches"] = list(memory.launches)
    switches = {fact: own for fact in FACTS if (own := getattr(stack, fact)) != getattr(DEFAULT, fact)}
    passes = {"passes": dict(stack.passes)} if stack.passes else {}
    refuses = {"refuses": list(stack.refuses)} if stack.refuses else {}
    dispatcher = {"dispatcher": stack.dispatcher} if stack.dispatcher != DEFAULT.dispatcher else {}
    calls = {"message_calls": list(stack.message_calls)} if any(stack.message_calls) else {}
    return switches | dispatcher | calls | passes | ({"memory": found} if found else {}) | refuses


class UsualFacts(StrictModel):
    """What a run with a software did where its case does not say.

    `layer_partition`: how layers are divided among stages (`sim.plan.layer_partitions`). `overlaps_pure_data`: gradients are
    reduced beside the backward where devices share nothing but data (tp and pp 1), and behind it elsewhere."""

    layer_partition: PartitionName = "transformer-only"
    overlaps_pure_data: Flag = False


class StackErrors(StrictModel):
    """Mean absolute relative errors of the step: with the default stack, with the fit, and on cases that a fit did not see."""

    default: RelativeError
    fitted: RelativeError
    held_out: RelativeError


class HeldOutFacts(StrictModel):
    """A fit without the cases of one group, and the names of these cases.

    `axis` says what the cases of a group share: "model" (family, or else device types or networks), "tp", "pp" or "nodes";
    "run" is a single case."""

    axis: Literal["model", "tp", "pp", "nodes", "run"] = "model"
    group: str
    fitted: StackNumbers
    cases: list[str]


class StackFacts(StackConstants):
    """A software stack that `holmes-sim calibrate` fitted to `cases`; without cases, only its facts are known.

    The source of a fact is in `sources`. `fits` names the numbers to fit; without it, they are those to which the steps are
    most sensitive."""

    format: Literal["holmes-sim/stack/1"]
    usual: UsualFacts = UsualFacts()
    fits: list[NumberName] = Field([], max_length=4)
    sources: dict[str, str] = Field({})
    fitted: StackNumbers = Field(StackNumbers())
    error: StackErrors | None = None
    cases: list[str] = Field([])
    held_out: list[HeldOutFacts] = Field([])
