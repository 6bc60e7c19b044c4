"""The arguments that the shim gives torch's builders of groups, with torch's own code between the call and the backend."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch.distributed")

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

LONG = timedelta(minutes=10)


def table(*hosts: tuple[tuple[int, ...], str, str], unified: bool = False) -> dict[str, Any]:
    """A rank table of hosts (ranks, fabric, vendor)."""
    rows = [
        {
            "host": f"h{index}", "node": f"c/node{index}", "ranks": list(ranks), "devices": list(range(len(ranks))),
            "vendor": vendor, "fabrics": {fabric: 1e10} if fabric else {},
        }
        for index, (ranks, fabric, vendor) in enumerate(hosts)
    ]  # fmt: skip
    return {"world_size": sum(len(ranks) for ranks, _, _ in hosts), "unified": unified, "hosts": rows}


HYBRID = table(
    ((0, 1), "infiniband-0", "nvidia"),
    ((2, 3), "infiniband-0", "nvidia"),
    ((4, 5), "roce-0", "nvidia"),
    ((6, 7), "roce-0", "nvidia"),
)
VENDORS = table(((0, 1), "infiniband-0", "nvidia"), ((2, 3), "infiniband-0", "nvidia"), ((4, 5), "infiniband-0", "amd"))


def world(backend: str | None, rank: int = 0, size: int = 8, **named: Any) -> None:
    dist.init_process_group(backend, store=FakeStore(), rank=rank, world_size=size, **named)


def test_the_world_and_each_group_get_their_network(steered, nccl):
    steered(HYBRID)
    world("nccl", rank=2)
    for ranks in ([2, 3], [0, 2], [2, 6], range(4), None):
        dist.new_group(ranks)
    assert nccl == [
        ([], "Socket", LONG),
        ([2, 3], None, LONG),
        ([0, 2], "IB", LONG),
        ([2, 6], "Socket", LONG),
        ([0, 1, 2, 3], "IB", LONG),
        (list(range(8)), "Socket", LONG),
    ]


def test_dimensions_of_a_mesh_get_their_network(steered, nccl):
    """DeviceMesh has taken new_group by name before the shim comes."""
    steered(HYBRID)
    world("nccl", rank=5)
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    assert nccl == [([], "Socket", LONG), ([1, 5], "Socket", LONG), ([5, 7], "IB", LONG), ([4, 5], None, LONG)]
    assert [dist.get_process_group_ranks(mesh[name].get_group()) for name in ("pp", "dp", "tp")] == [[1, 5], [5, 7], [4, 5]]


def test_positional_arguments_and_the_order_of_ranks_are_passed_on(steered, nccl):
    steered(HYBRID)
    dist.init_process_group("nccl", None, timedelta(minutes=3), 8, 6, FakeStore())
    dist.new_group([6, 2], timedelta(minutes=4), sort_ranks=False)
    dist.new_group([4, 6], use_local_synchronization=True)
    assert nccl == [
        ([], "Socket", timedelta(minutes=3)),
        ([6, 2], "Socket", timedelta(minutes=4)),
        ([4, 6], "IB", LONG),
    ]


def test_options_of_the_script_stand_and_its_objects_stay_as_they_are(steered, nccl):
    steered(HYBRID)
    world("nccl")
    mine, silent = dist.ProcessGroupNCCL.Options(), dist.ProcessGroupNCCL.Options()
    mine.config.net_name = "UCX"
    dist.new_group([0, 4], pg_options=mine)
    for ranks in ([0, 4], [0, 2]):
        dist.new_group(ranks, pg_options=silent)
    assert [name for _, name, _ in nccl] == ["Socket", "UCX", "Socket", "IB"]
    assert silent.config.net_name is None


@pytest.mark.parametrize("backend", ["fake", "gloo"])
def test_other_backends_are_left_alone(backend, steered, nccl, monkeypatch):
    seen: list[Any] = []
    helper = distributed_c10d._new_process_group_helper
    spy = lambda *given, **named: (seen.append((str(given[3]), named["backend_options"])), helper(*given, **named))[1]  # noqa: E731
    monkeypatch.setattr(distributed_c10d, "_new_process_group_helper", spy)
    steered(HYBRID)
    if backend == "gloo":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.new_group([0])
    else:
        world("fake")
        dist.new_group([0, 4])
    assert seen == [(backend, None), (backend, None)]
    assert nccl == []


def test_groups_across_vendors_use_gloo_and_others_the_requested_backend(steered, nccl, monkeypatch):
    calls: list[tuple[Any, ...]] = []

    def plain_init(backend=None, store=None, rank=-1, world_size=-1, pg_options=None, device_id=None):
        calls.append(("world", backend, pg_options, device_id))

    def plain_group(ranks=None, timeout=None, backend=None, pg_options=None, sort_ranks=True):
        calls.append((ranks, backend, pg_options and pg_options.config.net_name))

    for module in (dist, distributed_c10d):
        monkeypatch.setattr(module, "init_process_group", plain_init)
        monkeypatch.setattr(module, "new_group", plain_group)
    steered(VENDORS)
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    for ranks in ([0, 2], [0, 4], [4, 5]):
        dist.new_group(ranks)
    dist.new_group([0, 2], backend="gloo")
    dist.new_group([0, 4], backend="hccl")
    dist.new_group([2, 4], backend="mpi")
    assert calls == [
        ("world", "gloo", None, None),
        ([0, 2], "nccl", "IB"),
        ([0, 4], "gloo", None),
        ([4, 5], "nccl", None),
        ([0, 2], "gloo", None),
        ([0, 4], "gloo", None),
        ([2, 4], "mpi", None),
    ]


@pytest.mark.parametrize(("given", "built"), [(None, "gloo"), ("cpu:gloo,cuda:nccl", "gloo"), ("hccl", "gloo"), ("mpi", "mpi")])
def test_the_world_across_vendors(given, built, steered, monkeypatch):
    seen: list[Any] = []
    original = lambda backend=None, pg_options=None, device_id=None: seen.append(backend)  # noqa: E731
    for module in (dist, distributed_c10d):
        monkeypatch.setattr(module, "init_process_group", original)
    steered(VENDORS)
    dist.init_process_group(given)
    assert seen == [built]


def test_parts_of_a_world_that_is_bound_to_devices_do_not_inherit_its_network(steered, nccl, monkeypatch):
    """`init_process_group(device_id=...)` binds; DeviceMesh then splits, and torch hands on the world's options."""
    seen: list[Any] = []

    def original_split(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, backend=None):
        seen.append((split_ranks, pg_options.config.net_name, pg_options.is_high_priority_stream))

    for module in (dist, distributed_c10d):
        monkeypatch.setattr(module, "split_group", original_split)
    steered(HYBRID)
    options = dist.ProcessGroupNCCL.Options()
    options.is_high_priority_stream = True
    world("nccl", rank=5, pg_options=options)
    dist.split_group(split_ranks=[[0, 4], [1, 5]])
    dist.split_group(None, [[0, 2], [1, 3], [4, 6], [5, 7]])
    dist.split_group(split_ranks=[[0, 1], [4, 5]])
    assert seen == [
        ([[0, 4], [1, 5]], "Socket", True),
        ([[0, 2], [1, 3], [4, 6], [5, 7]], "IB", True),
        ([[0, 1], [4, 5]], None, False),
    ]


def test_every_module_that_took_a_builder_by_name_is_steered(steered, monkeypatch):
    import sys

    early = SimpleNamespace(new_group=distributed_c10d.new_group)
    monkeypatch.setitem(sys.modules, "early_bird", early)
    original = distributed_c10d.new_group
    steered(HYBRID)
    holders = [name for name, module in sys.modules.items() if vars(module).get("new_group") is original]
    assert holders == []
    assert early.new_group is distributed_c10d.new_group is dist.new_group


def test_groups_of_every_rank_on_a_mesh_are_the_plans(steered):
    """32 ranks on four hosts, tp 8, pp 2, dp 2: the mesh pp, dp, tp over ranks in order, built by torch's fake backend."""
    hosts = [(tuple(range(8 * i, 8 * i + 8)), ("infiniband-0", "roce-0")[i // 2], "nvidia") for i in range(4)]
    steered(table(*hosts))
    found: dict[str, set[tuple[int, ...]]] = {"pp": set(), "dp": set(), "tp": set()}
    for rank in range(32):
        world("fake", rank, 32)
        mesh = init_device_mesh("cpu", (2, 2, 8), mesh_dim_names=("pp", "dp", "tp"))
        for name, groups in found.items():
            groups.add(tuple(dist.get_process_group_ranks(mesh[name].get_group())))
        dist.destroy_process_group()
    assert found["tp"] == {tuple(range(first, first + 8)) for first in (0, 8, 16, 24)}
    assert found["dp"] == {(first, first + 8) for first in (*range(8), *range(16, 24))}
    assert found["pp"] == {(first, first + 16) for first in range(16)}
