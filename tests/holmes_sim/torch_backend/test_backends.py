"""What a group is built with, by hand; and that it needs no torch to say so."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest

from holmes_sim.torch_backend.backends import backend
from sim.hardware.cluster import Trunk
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, device, fleet


def hybrid(vendor: str) -> Plan:
    """InfiniBand machines and RoCE machines, the latter of a vendor: tp in a node, dp in a fabric, pp across."""
    clusters = [
        cluster(name, 2, 2, (builders.nic(nic), builders.nic("ethernet", 3e9)), device(vendor=of))
        for name, nic, of in (("a", "infiniband", "nvidia"), ("b", "roce", vendor))
    ]
    return builders.plan(fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),)), tp=2, pp=2, dp=2)


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        (["cuda"] * 8, {"tp": ["nccl"] * 4, "dp": ["nccl"] * 4, "pp": ["gloo"] * 4}),
        (["cpu"] * 8, {"tp": ["gloo"] * 4, "dp": ["gloo"] * 4, "pp": ["gloo"] * 4}),
        (["cuda"] * 4 + ["rocm"] * 4, {"tp": ["nccl"] * 4, "dp": ["nccl"] * 4, "pp": ["gloo"] * 4}),
        (
            ["cuda"] * 4 + ["cpu"] * 4,
            {"tp": ["nccl"] * 2 + ["gloo"] * 2, "dp": ["nccl"] * 2 + ["gloo"] * 2, "pp": ["gloo"] * 4},
        ),
        (["cuda", "cuda", "rocm", "rocm"] * 2, {"tp": ["nccl"] * 4, "dp": ["gloo"] * 4, "pp": ["gloo"] * 4}),
    ],
    ids=["CUDA", "CPUs", "CUDA here, ROCm there", "CUDA here, CPUs there", "by turns in each fabric"],
)
def test_backend_of_each_group(on: list[str], expected: dict[str, list[str]]) -> None:
    plan = hybrid("amd")
    found: dict[str, list[str]] = {}
    for group in plan.groups:
        found.setdefault(group.kind, []).append(backend(plan, group, on))
    assert found == expected


@pytest.mark.parametrize(("vendor", "expected"), [("nvidia", "nccl"), ("amd", "gloo")])
def test_a_group_that_the_plan_has_across_vendors(vendor: str, expected: str) -> None:
    """Such a group goes through the hosts in the plan, whatever its hosts turn out to have."""
    plan = builders.plan(hybrid(vendor).fleet, dp=8)
    assert [backend(plan, group, ["cuda"] * 8) for group in plan.groups] == [expected]


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("cpu", [("gloo", [0, 1], None), ("gloo", [0, 4], None), ("gloo", [0, 2], None)]),
        ("cuda", [("nccl", [0, 1], ""), ("gloo", [0, 4], None), ("nccl", [0, 2], "IB")]),
    ],
)
def test_the_groups_that_torch_builds(on: str, expected: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL is not there on a CPU: its options are those of torch 2.14's CUDA build, by name."""
    pytest.importorskip("torch")
    import torch

    from holmes_sim.torch_backend import groups

    groups_built: list[object] = []

    class Options:
        def __init__(self) -> None:
            self.config = SimpleNamespace(net_name="")

    def new_group(ranks: list[int], backend: str, pg_options: Options | None, **kwargs: object) -> object:
        assert kwargs["sort_ranks"] is False
        assert kwargs["timeout"] == timedelta(seconds=5)
        groups_built.append((backend, ranks, pg_options and pg_options.config.net_name))
        return SimpleNamespace(set_timeout=lambda timeout: None)

    monkeypatch.setattr(groups.dist, "ProcessGroupNCCL", SimpleNamespace(Options=Options), raising=False)
    monkeypatch.setattr(groups.dist, "new_group", new_group)
    monkeypatch.setattr(groups.communication, "all_reduce", lambda value, group: None)
    groups.build(hybrid("nvidia"), 0, torch.device("cpu"), [on] * 8, 5.0, 9.0, lambda text: None)
    assert groups_built == expected


def test_no_torch_is_imported() -> None:
    code = "import sys, holmes_sim.torch_backend.backends; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
