"""Megatron-LM's parser and checks, on any machine: run by `reading`, from a checkout of NVIDIA/Megatron-LM (read at d98e8a64).

In the order of a run: parse_args, validate_args, core_transformer_config_from_args (megatron/training), the groups of
initialize_model_parallel in a fake process group, the numbers of microbatches, and the first lines of the interleaved schedule,
up to where it would run. Transformer Engine, Triton and a GPU are not needed: modules of Triton are replaced by mocks where
Megatron-LM imports them, and what it asks a GPU and the version of Transformer Engine is answered. `typing.override` is
Python 3.12's.
"""

from __future__ import annotations

import builtins
import os
import sys
import typing
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import typing_extensions
from torch.testing._internal.distributed.fake_pg import FakeStore

THEIRS = "--train-iters 10 --lr 1e-4 --mock-data --tokenizer-type NullTokenizer --vocab-size 1000 --no-rope-fusion"
"""What a launch leaves to its user. Fused rotary positions need Transformer Engine."""


class Reached(Exception):
    """The checks of the schedule are over."""


class Chunk(torch.nn.Module):
    """A model that the schedule asks for its configuration, and, behind its checks, for its type."""

    def __init__(self, config: object):
        super().__init__()
        self.config = config

    @property
    def model_type(self) -> object:
        """Ends the schedule."""
        raise Reached

    def __getattr__(self, name: str) -> Any:
        if name == "model_type":
            raise Reached
        return super().__getattr__(name)


def prepare(folder: Path) -> None:
    """Import it."""
    sys.path.insert(0, str(folder))
    typing.override = getattr(typing, "override", typing_extensions.override)
    true = builtins.__import__

    def imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        asks = str((globals or {}).get("__name__", ""))
        if level == 0 and name.split(".")[0] == "triton" and asks.startswith("megatron"):
            return mock.MagicMock(__version__="3.3.0")
        return true(name, globals, locals, fromlist, level)

    builtins.__import__ = imported
    import megatron.core.transformer.transformer_config as config
    from megatron.training import arguments

    arguments.get_device_arch_version = lambda: 9
    torch.cuda.get_device_properties = lambda _=0: type("Properties", (), {"major": 9, "minor": 0})()
    torch.cuda.get_device_capability = lambda _=None: (9, 0)
    arguments.is_te_min_version = config.is_te_min_version = lambda *_, **__: True


def check(launch: dict[str, Any]) -> None:
    """Raises what Megatron-LM raises for these words of its command line (`files`) on so many ranks (`world`)."""
    from megatron.core import num_microbatches_calculator, parallel_state
    from megatron.training import arguments

    os.environ |= {"RANK": "0", "WORLD_SIZE": str(launch["world"]), "LOCAL_RANK": "0"} | launch["environment"]
    with mock.patch.object(sys, "argv", ["pretrain_gpt.py", *launch["files"]["megatron.args"].split(), *THEIRS.split()]):
        parsed = arguments.validate_args(arguments.parse_args())
    config = arguments.core_transformer_config_from_args(parsed)
    parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=launch["world"])
    parallel_state.initialize_model_parallel(
        parsed.tensor_model_parallel_size, parsed.pipeline_model_parallel_size, parsed.virtual_pipeline_model_parallel_size,
        context_parallel_size=parsed.context_parallel_size, expert_model_parallel_size=parsed.expert_model_parallel_size,
        expert_tensor_parallel_size=parsed.expert_tensor_parallel_size,
        hierarchical_context_parallel_sizes=parsed.hierarchical_context_parallel_sizes,
        num_distributed_optimizer_instances=parsed.num_distributed_optimizer_instances, create_gloo_process_groups=False,
    )  # fmt: skip
    calculated = None, parsed.global_batch_size, parsed.micro_batch_size, parsed.data_parallel_size
    num_microbatches_calculator.init_num_microbatches_calculator(0, *calculated)
    try:
        many = num_microbatches_calculator.get_num_microbatches()
    finally:
        num_microbatches_calculator.destroy_num_microbatches_calculator()
    if parsed.virtual_pipeline_model_parallel_size:
        _interleaved(config, many, parsed)
    _divided(parsed)


def _interleaved(config: Any, many: int, parsed: Any) -> None:
    """The checks of forward_backward_pipelining_with_interleaving on the number of microbatches."""
    from megatron.core.pipeline_parallel import schedules

    group = mock.MagicMock(size=lambda: parsed.pipeline_model_parallel_size, rank=lambda: 0)
    config.overlap_p2p_comm, config.batch_p2p_comm, config.timers, config.no_sync_func = True, False, None, None
    config.grad_scale_func = config.finalize_model_grads_func = None
    chunks = [Chunk(config) for _ in range(parsed.virtual_pipeline_model_parallel_size)]
    try:
        schedules.forward_backward_pipelining_with_interleaving(
            forward_step_func=None, data_iterator=[None for _ in chunks], model=chunks, num_microbatches=many,
            seq_length=parsed.seq_length, micro_batch_size=parsed.micro_batch_size,
            p2p_communicator=mock.MagicMock(config=config, pp_group=group), pg_collection=mock.MagicMock(),
        )  # fmt: skip
    except Reached:
        return


def _divided(parsed: Any) -> None:
    """What tp divides at run time: the tokens of sequence parallelism, weights and heads."""
    from megatron.core.tensor_parallel import mappings
    from megatron.core.utils import divide

    tp = parsed.tensor_model_parallel_size
    group = mock.MagicMock(size=lambda: tp, rank=lambda: 0)
    if parsed.sequence_parallel:
        mappings._split_along_first_dim(torch.empty(parsed.seq_length // parsed.context_parallel_size), group)
    for size in (parsed.padded_vocab_size, parsed.num_attention_heads, parsed.ffn_hidden_size):
        divide(size, tp)
    if parsed.num_experts:
        divide(parsed.moe_ffn_hidden_size, parsed.expert_tensor_parallel_size)
