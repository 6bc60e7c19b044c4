"""The shim's way into torch, undone after each test, and a stand-in for NCCL, which torch for CPUs has not."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from holmes_sim.launching import holmes_launch

BUILDERS = ("init_process_group", "new_group", "split_group")


@pytest.fixture
def steered(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    """Steer torch by a rank table until the test ends."""
    pytest.importorskip("torch.distributed")
    from torch.distributed import distributed_c10d

    def steer(table: dict[str, Any]) -> None:
        for name in BUILDERS:
            original = getattr(distributed_c10d, name)
            for module in list(sys.modules.values()):
                if vars(module).get(name) is original:
                    monkeypatch.setattr(module, name, original)
        holmes_launch.steer(table)

    return steer


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[list[int], str | None, timedelta]]]:
    """torch with a backend nccl that only writes down (ranks, [] for all; net_name; timeout) of every group it is asked for.

    All between the call and the backend's constructor is torch's own (`_new_process_group_helper`)."""
    dist = pytest.importorskip("torch.distributed")
    from torch.distributed import distributed_c10d

    made: list[tuple[list[int], str | None, timedelta]] = []

    class Options:
        def __init__(self) -> None:
            self.config = SimpleNamespace(net_name=None)
            self.is_high_priority_stream = False
            self._timeout = timedelta(minutes=10)

    class ProcessGroupNCCL(dist.ProcessGroup):
        def __init__(self, store: Any, rank: int, size: int, options: Any):
            super().__init__(rank, size)
            made.append((options.global_ranks_in_group, options.config.net_name, options._timeout))
            self.options = copy.deepcopy(options)

        def _set_sequence_number_for_group(self) -> None:
            pass

        def _set_group_desc(self, description: str) -> None:
            pass

        def _set_group_name(self, name: str) -> None:
            self.name = name

        def _get_backend(self, device: object) -> object:
            return self

        @property
        def group_name(self) -> str:
            return self.name

    ProcessGroupNCCL.Options = Options
    monkeypatch.setattr(distributed_c10d, "_NCCL_AVAILABLE", True)
    monkeypatch.setattr(distributed_c10d, "default_pg_nccl_timeout", timedelta(minutes=10))
    for module in (distributed_c10d, dist):
        monkeypatch.setattr(module, "ProcessGroupNCCL", ProcessGroupNCCL, raising=False)
    yield made
    if dist.is_initialized():
        dist.destroy_process_group()
