"""A plan on two nodes of a topology that was read from a file, and the message of an error of a plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.errors import PlanError
from sim.formats.topology import load
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan, Stage
from tests import builders

TOPOLOGY = """\
format: holmes-sim/topology/1
name: pair
clusters:
  ib:
    nodes: 1
    node:
      devices: {type: a100-sxm4-80gb, count: 4}
      intra_node: nvlink3
      nics: [{type: infiniband, bandwidth: 200 Gbit/s}, {type: ethernet, bandwidth: 25 Gbit/s}]
  roce:
    nodes: 1
    node:
      devices: {type: a100-sxm4-80gb, count: 4}
      intra_node: nvlink3
      nics: [{type: roce, bandwidth: 200 Gbit/s}, {type: ethernet, bandwidth: 25 Gbit/s}]
links:
  - {between: [ib, roce], type: ethernet, bandwidth: 50 Gbit/s, latency: 50 us}
workload:
  model: {name: small, layers: 4, hidden: 64, heads: 8, ffn_hidden: 256, vocab: 512}
  global_batch_size: 8
  seq_len: 128
  precision: fp16
"""


def refused(make: Callable[[], object]) -> str:
    """The message of the PlanError that a function raises."""
    with pytest.raises(PlanError) as caught:
        make()
    return str(caught.value)


def plan_of_a_file(folder: Path) -> Plan:
    """A plan on a topology that is written to a folder and read."""
    (folder / "topo.yaml").write_text(TOPOLOGY)
    topology = load(folder / "topo.yaml")
    assert topology.workload is not None
    config = ParallelConfig(tp=2, pp=2, dp=2, num_microbatches=(3, 5), recompute="full", sequence_parallel=True)
    placement = tuple(Device(name, 0, index) for name in ("ib", "roce") for index in range(4))
    by_hand = builders.plan(topology.fleet, 2, 2, 2, microbatches=(3, 5)).made_by
    return Plan(
        topology, topology.workload, config, (Stage(0, 3), Stage(3, 4)), placement,
        groups_of(topology.fleet, config, placement), by_hand,
    )  # fmt: skip
