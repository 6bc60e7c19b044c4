"""The config function of an island for torchtitan 0.3.0 with torchft, as the text of a Python module.

`holmes_sim.launching.torchft` says what its settings mean."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sim.plan.islands import IslandsPlan

TEMPLATE = '''\
"""Island {index} of {count}, {name} on {topology}, for torchtitan 0.3.0 with torchft; written by holmes-sim.

    torchrun ... -m torchtitan.train --module holmes_island --config island

The config function of holmes_plan.py, as replica group {index} of torchft.
"""

from dataclasses import fields
from typing import Any

from holmes_plan import plan
from torchtitan.distributed.utils import set_spmd_backend
from torchtitan.experiments.torchft.checkpoint import TorchFTCheckpointManager
from torchtitan.experiments.torchft.config.job_config import FaultTolerance, FaultTolerantModelSpec
from torchtitan.experiments.torchft.diloco import fragment_llm
from torchtitan.experiments.torchft.optimizer import TorchFTOptimizersContainer
from torchtitan.experiments.torchft.trainer import FaultTolerantTrainer


def values(config: Any) -> dict[str, Any]:
    return {{field.name: getattr(config, field.name) for field in fields(config)}}

{sockets}
def island() -> FaultTolerantTrainer.Config:
    config = FaultTolerantTrainer.Config(**values(plan()))
    config.fault_tolerance = FaultTolerance(
{settings}
    )
    config.training.global_batch_size = {batch}  # of all islands
    config.training.disable_cuda_graphs = True  # torchft replaces gradients, which a captured graph does not see
    config.model_spec = FaultTolerantModelSpec(**values(config.model_spec), fragment_fn=fragment_llm)
    config.optimizer = TorchFTOptimizersContainer.Config(**values(config.optimizer))
    config.checkpoint = TorchFTCheckpointManager.Config(**values(config.checkpoint))
    config.checkpoint.enable = True  # torchft brings an island that joins to the state of the others through it
    config.debug.seed = 0  # the same first weights on every island
    config.loss = config.loss.loss_fn  # FaultTolerantTrainer gives the chunked loss no head
    config.comm.train_timeout_seconds = max(config.comm.train_timeout_seconds, {patience})
    set_spmd_backend(config.parallelism.spmd_backend)  # FaultTolerantTrainer does not
{told}    return config
'''
SOCKETS = '''
def over_sockets() -> None:
    """Give torchft's NCCL groups, which join islands, the network of sockets: RDMA devices do not reach other islands."""
    import torch.distributed as dist
    from torchft.process_group import ProcessGroupNCCL

    create = ProcessGroupNCCL._create_pg

    def created(self: Any, *arguments: Any) -> Any:
        plain = dist.ProcessGroupNCCL.Options

        def options() -> Any:
            found = plain()
            found.config.net_name = "Socket"
            return found

        dist.ProcessGroupNCCL.Options = options
        try:
            return create(self, *arguments)
        finally:
            dist.ProcessGroupNCCL.Options = plain

    ProcessGroupNCCL._create_pg = created

'''


def text(plan: IslandsPlan, index: int, settings: Mapping[str, object], seconds: int, over_sockets: bool) -> str:
    """The text of holmes_island.py for an island; `settings` are those of FaultTolerance, and an exchange
    may take `seconds`."""
    name, topology = (found.translate({34: None, 92: None}) for found in (plan.workload.model.name, plan.topology.name))
    lines = (f"        {key}={json.dumps(value) if isinstance(value, str) else value}," for key, value in settings.items())
    return TEMPLATE.format(
        index=index, count=len(plan.islands), name=name, topology=topology, settings="\n".join(lines),
        batch=sum(plan.batches), sockets=SOCKETS if over_sockets else "", told="    over_sockets()\n" if over_sockets else "",
        patience=seconds,
    )  # fmt: skip
