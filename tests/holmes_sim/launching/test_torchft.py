"""torchft: settings of an island, its script, the lighthouse, and what is refused."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from holmes_sim import exporters
from holmes_sim.exporters import torchtitan
from holmes_sim.launching import torchft
from sim.plan.islands import IslandsPrediction
from sim.sync import Sync
from tests.island_plans import islands

STREAMING = Sync("streaming-diloco", 100, 5, 4)
INT8 = Sync("diloco", 100, compression="int8")


def files(plan):
    assert list(exporters.unsupported_islands("torchtitan", plan)) == []
    return {name: file.content for name, file in torchtitan.islands_launch(plan).files.items()}


def refused(plan):
    return list(torchft.unsupported(plan))


def test_settings_of_streaming_diloco():
    found = torchft.settings(islands(STREAMING), 1)
    assert found == {
        "enable": True,
        "replica_id": 1,
        "group_size": 2,
        "min_replica_size": 2,
        "process_group": "gloo",
        "process_group_timeout_ms": 3600000,
        "semi_sync_method": "diloco",
        "sync_steps": 100,
        "should_quantize": False,
        "num_fragments": 4,
        "fragment_sync_delay": 5,
        "fragment_update_alpha": 0.5,
    }


@pytest.mark.parametrize(
    ("sync", "more"),
    [
        (Sync("every-step"), {}),
        (Sync("local-sgd", 30), {"semi_sync_method": "local_sgd", "sync_steps": 30}),
        (
            Sync("diloco", 30, compression="int8"),
            {
                "semi_sync_method": "diloco", "sync_steps": 30, "should_quantize": True, "num_fragments": 1,
                "fragment_sync_delay": 0, "fragment_update_alpha": 0.0,
            },
        ),
    ],
)  # fmt: skip
def test_settings_of_other_strategies(sync, more):
    found = torchft.settings(islands(sync), 0)
    assert dict(list(found.items())[6:]) == more


def test_an_island_has_its_settings_and_the_batch_of_all():
    text = files(islands(STREAMING, batch=8))["island1/holmes_island.py"]
    function = next(part for part in ast.parse(text).body if getattr(part, "name", "") == "island")
    statements = [ast.unparse(part) for part in function.body]
    assert statements == [
        "config = FaultTolerantTrainer.Config(**values(plan()))",
        "config.fault_tolerance = FaultTolerance(enable=True, replica_id=1, group_size=2, min_replica_size=2, "
        "process_group='gloo', process_group_timeout_ms=3600000, semi_sync_method='diloco', sync_steps=100, "
        "should_quantize=False, num_fragments=4, fragment_sync_delay=5, fragment_update_alpha=0.5)",
        "config.training.global_batch_size = 16",
        "config.training.disable_cuda_graphs = True",
        "config.model_spec = FaultTolerantModelSpec(**values(config.model_spec), fragment_fn=fragment_llm)",
        "config.optimizer = TorchFTOptimizersContainer.Config(**values(config.optimizer))",
        "config.checkpoint = TorchFTCheckpointManager.Config(**values(config.checkpoint))",
        "config.checkpoint.enable = True",
        "config.debug.seed = 0",
        "config.loss = config.loss.loss_fn",
        "config.comm.train_timeout_seconds = max(config.comm.train_timeout_seconds, 3600)",
        "set_spmd_backend(config.parallelism.spmd_backend)",
        "return config",
    ]


def test_scripts_find_the_lighthouse_the_module_and_a_port_of_their_own():
    found = files(islands(nodes=2, batch=16))
    assert found["lighthouse.sh"].splitlines()[-1] == (
        'exec torchft_lighthouse --bind "[::]:29510" --min_replicas 2 --quorum_tick_ms 100 --join_timeout_ms 3600000 "$@"'
    )
    assert found["island1/launch/west-node1.sh"].splitlines()[-4:] == [
        'export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"',
        'export TORCHFT_LIGHTHOUSE="${TORCHFT_LIGHTHOUSE:-http://east-node0:29510}"',
        'export MASTER_PORT="${MASTER_PORT:-29601}"',
        'exec torchrun --nnodes=2 --nproc-per-node=8 --node-rank=1 --master-addr="${MASTER_ADDR:-west-node0}" '
        '--master-port="${MASTER_PORT:-29500}" "$here"/holmes_launch.py -m torchtitan.train --module holmes_island '
        '--config island "$@"',
    ]
    assert (
        "export TORCHFT_TIMEOUT_SEC='3600'\nexport TORCHFT_QUORUM_TIMEOUT_SEC='3600'\n" in found["island1/env/west-node1.env"]
    )


@pytest.mark.parametrize(("exchange", "waits", "seconds"), [(3.0, (0.0, 2.0), 600), (300.0, (0.0, 82.4), 3824)])
def test_torchft_waits_ten_times_as_long_as_predicted(exchange, waits, seconds):
    predicted = IslandsPrediction(1000.0, (10.0, 10.0), exchange, exchange, waits, 1e5, 0.4)
    assert torchft.patience(islands().annotated(predicted)) == seconds


def test_nccl_sends_int8_over_sockets_where_islands_use_rdma_inside_only():
    """Two sites have no common RDMA fabric: NCCL_IB_HCA of islands of two hosts would lead NCCL astray between them."""
    assert torchft.process_group(islands()) == "gloo"
    for nodes, told in ((1, False), (2, True)):
        plan = islands(INT8, nodes=nodes, batch=8 * nodes)
        assert torchft.process_group(plan) == "nccl"
        assert ("over_sockets()" in files(plan)["island0/holmes_island.py"]) is told


class Config:
    net_name = None


class Options:
    def __init__(self):
        self.config = Config()


class NcclGroups:
    """Stands for torch.distributed.ProcessGroupNCCL."""

    Options = Options


class FaultTolerantGroups:
    """Stands for torchft's ProcessGroupNCCL."""

    def _create_pg(self, store, rank, world_size):
        return NcclGroups.Options().config.net_name, store, rank, world_size


def test_groups_of_torchft_are_told_to_use_sockets_and_others_are_not(monkeypatch):
    text = files(islands(INT8, nodes=2, batch=16))["island0/holmes_island.py"]
    function = next(part for part in ast.parse(text).body if getattr(part, "name", "") == "over_sockets")
    space = {"Any": object}
    exec(compile(ast.Module([function], []), "holmes_island.py", "exec"), space)
    stands = {"torch": ModuleType("torch"), "torch.distributed": ModuleType("torch.distributed")}
    stands |= {"torchft": ModuleType("torchft"), "torchft.process_group": ModuleType("torchft.process_group")}
    stands["torch"].distributed = stands["torch.distributed"]
    stands["torch.distributed"].ProcessGroupNCCL = NcclGroups
    stands["torchft.process_group"].ProcessGroupNCCL = FaultTolerantGroups
    for name, module in stands.items():
        monkeypatch.setitem(sys.modules, name, module)
    space["over_sockets"]()
    assert FaultTolerantGroups()._create_pg("store", 1, 2) == ("Socket", "store", 1, 2)
    assert NcclGroups.Options().config.net_name is None


def test_nccl_joins_islands_of_one_fabric():
    both = islands(nodes=2, batch=16, dp=8, num_microbatches=(2,) * 8)
    one, other = both.islands
    spread = [replace(device, cluster="east", node=index // 4 % 2) for index, device in enumerate(one.placement)]
    placed = [replace(device, index=index % 4) for index, device in enumerate(spread)]
    beside = [replace(device, index=index % 4 + 4) for index, device in enumerate(spread)]
    pair = replace(both, islands=(replace(one, placement=tuple(placed)), replace(other, placement=tuple(beside))))
    assert torchft.process_group(pair) == "nccl"


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (
            islands(Sync("co2", 10)),
            ["strategy co2: torchft has DiLoCo, Local SGD and an exchange of every step; every-step, local-sgd, "
             "diloco, streaming-diloco"],
        ),
        (
            islands(Sync("diloco", 10, aggregation="median")),
            ["aggregation median: torchft takes the mean of the islands; mean"],
        ),
        (
            islands(Sync("local-sgd", 10, compression="int8")),
            ["compression int8: should_quantize is int8, for DiLoCo alone; none, or int8 with diloco"],
        ),
        (
            islands(Sync("streaming-diloco", 10, 0, 4)),
            ["fragments 4: they are exchanged at equal intervals; a divisor of inner_steps 10"],
        ),
        (
            islands(Sync("streaming-diloco", 12, 3, 4)),
            ["overlap_steps 3: one exchange at a time, one every 3 steps; at most 2"],
        ),
        (
            islands(Sync("streaming-diloco", 100, 0, 50)),
            ["fragments 50: each has a layer, the embedding or the head; at most 34"],
        ),
        (
            islands(Sync("streaming-diloco", 12, 0, 4), pp=4, dp=2, zero_stage=1, num_microbatches=(4, 4)),
            ["fragments 4 with pp 4: fragments are cut from a whole model; pp 1, or one fragment"],
        ),
        (
            islands(pp=2, dp=4, vpp=2, schedule="interleaved", zero_stage=1, num_microbatches=(2,) * 4),
            ["vpp 2: local steps exchange the first model part of a rank only; vpp 1"],
        ),
        (islands(zero_stage=0), ["zero_stage 0 with dp 8: an island has no replicas; ZeRO 1 or 3 over all of dp"]),
        (
            islands(Sync("every-step"), batch=32),
            ["strategy every-step with 4 microbatches and pp 1: gradients of each microbatch are exchanged; one microbatch, a "
             "pipeline, or diloco"],
        ),
        (
            islands(west={"batch": 16}),
            ["islands[1].global_batch_size 16: its mean does not weigh islands by their batches; 8, as in islands[0]"],
        ),
        (
            islands(west={"dp": 4, "tp": 2}),
            ["islands[1].tp 2: rank r of an island exchanges its shard with rank r of the others; 1, as in islands[0]",
             "islands[1].dp 4: rank r of an island exchanges its shard with rank r of the others; 8, as in islands[0]",
             "islands[1].zero_shard_size 4: rank r of an island exchanges its shard with rank r of the others; 8, as in "
             "islands[0]"],
        ),
    ],
)  # fmt: skip
def test_what_torchft_cannot_express(plan, lines):
    assert refused(plan) == lines
